// A compiled function as a kernel: run_code.hip.
#pragma once

#include "common/runtime_code.h"

namespace runtime_code {

using BlockFunction = void (*)(unsigned block_x, unsigned block_y, const std::uint64_t* arguments);

void launch_blocks(BlockFunction function, dim3 grid, const KernelArguments& arguments,
                   hipStream_t stream);

}  // namespace runtime_code
