// Kernels with planted mistakes, which the checks of tensor_test.cpp must catch. All are for 32-bit
// elements.
#include "common/gpu.h"
#include "stage8_framework/01_tensor/detail/walk.h"

namespace tensor_test {

using tensor::Problem;
using tensor::Walk;

// No thread is told that it is beyond the last element.
static __global__ void copy_unbounded(unsigned* out, const unsigned* a, Walk walk) {
  const Walk::Place place = walk(blockIdx.x * blockDim.x + threadIdx.x);
  out[place.out] = a[place.a];
}

// a is read as if it were row-major.
static __global__ void copy_unstrided(unsigned* out, const unsigned* a, Walk walk, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[walk(i).out] = a[i];
}

// A tile of 32 x 32 is read before all of it has been written.
static __global__ void turn_unsynchronized(unsigned* out, const unsigned* a) {
  __shared__ unsigned tile[32][33];
  tile[threadIdx.y][threadIdx.x] = a[threadIdx.y * 32 + threadIdx.x];
  out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

void launch_unbounded(void* out, const void* a, size_t, const Problem& p, hipStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(p.elements()) / 256 + 1;
  LAUNCH_ON(stream, copy_unbounded, blocks, 256, 0, static_cast<unsigned*>(out),
            static_cast<const unsigned*>(a), Walk(p));
}

void launch_unstrided(void* out, const void* a, size_t, const Problem& p, hipStream_t stream) {
  const unsigned n = static_cast<unsigned>(p.elements());
  LAUNCH_ON(stream, copy_unstrided, n / 256 + 1, 256, 0, static_cast<unsigned*>(out),
            static_cast<const unsigned*>(a), Walk(p), n);
}

void launch_unsynchronized(void* out, const void* a, size_t, const Problem&, hipStream_t stream) {
  LAUNCH_ON(stream, turn_unsynchronized, 1, dim3(32, 32), 0, static_cast<unsigned*>(out),
            static_cast<const unsigned*>(a));
}

}  // namespace tensor_test
