// How a function that a compiler made while the program runs becomes a kernel of the CPU backend:
// queued on a stream, recorded by a graph, its blocks shared by the host's threads.
#include "common/cpu/run_code.h"
#include "common/gpu.h"

namespace runtime_code {

// Thread: one for each block, whose whole work the function does.
static __global__ void call_for_block(BlockFunction function, KernelArguments arguments) {
  function(blockIdx.x, blockIdx.y, arguments.values);
}

void launch_blocks(BlockFunction function, dim3 grid, const KernelArguments& values,
                   hipStream_t stream) {
  LAUNCH_ON(stream, call_for_block, grid, 1, 0, function, values);
}

}  // namespace runtime_code
