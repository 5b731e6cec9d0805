// Kernels that only softmax_test.cpp launches: a merge by itself, an Output, and known mistakes.
#include <string>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace softmax_test {

// A MaxSum, for plain C++.
struct Part {
  float max, sum;
};

// out[i] = a[i] and b[i] together.
static __global__ void merge_parts(Part* out, const Part* a, const Part* b) {
  const unsigned i = threadIdx.x;
  const softmax::MaxSum whole = softmax::merge({a[i].max, a[i].sum}, {b[i].max, b[i].sum});
  out[i] = {whole.max, whole.sum};
}

void launch_merge(Part* out, const Part* a, const Part* b, size_t n) {
  LAUNCH(merge_parts, 1, static_cast<unsigned>(n), 0, out, a, b);
}

// Stores half of each probability, which is exact.
struct Half {
  struct Row {
    __device__ void finish(softmax::MaxSum) const {}
    __device__ float operator()(size_t, float probability) const { return 0.5f * probability; }
  };
  __device__ Row row(size_t) const { return {}; }
};

// Half of the softmax by a version, or by best; false where that has no Output, or can't hold such
// a row.
bool launch_half(const char* version, float* y, const float* x, size_t rows, size_t cols) {
  const std::string name = version;
  if (name == "row_in_registers")
    return softmax::launch_row_in_registers(y, x, rows, cols, Half{}, nullptr);
  if (name == "row_in_shared")
    return softmax::launch_row_in_shared(y, x, rows, cols, Half{}, nullptr);
  if (name == "online")
    softmax::launch_online(y, x, rows, cols, Half{}, nullptr);
  else if (name == "best")
    softmax::launch_best(y, x, rows, cols, Half{}, nullptr);
  return name == "online" || name == "best";
}

// softmax::block_merge without its last barrier. So that the mistake also shows on a device where
// all waves happen to arrive together, those behind the first come late.
static __global__ void softmax_without_barrier(float* y, const float* x, size_t cols) {
  __shared__ softmax::MaxSum parts[softmax::kMaxWaves];
  if (threadIdx.x < softmax::kMaxWaves) parts[threadIdx.x] = softmax::nothing();
  __syncthreads();  // every part is empty
  softmax::MaxSum part = softmax::nothing();
  for (size_t c = threadIdx.x; c < cols; c += softmax::kBlock)
    part = softmax::merge(part, {x[c], 1.0f});
  part = softmax::wave_merge(part);
  volatile int wait = gpu::wave_id() > 0 ? 20000 : 0;
  while (wait > 0) wait = wait - 1;
  if (gpu::lane_id() == 0) parts[gpu::wave_id()] = part;
  const int waves = static_cast<int>(softmax::kBlock) / gpu::wave_size();
  const softmax::MaxSum whole =
      softmax::wave_merge(gpu::lane_id() < waves ? parts[gpu::lane_id()] : softmax::nothing());
  for (size_t c = threadIdx.x; c < cols; c += softmax::kBlock)
    y[c] = softmax::exponential(x[c] - whole.max) / whole.sum;
}

// Without the maximum, or without the last `missing` columns in maximum and sum.
static __global__ void softmax_with_mistake(float* y, const float* x, size_t cols, bool subtract,
                                            size_t missing) {
  float max = 0, sum = 0;
  for (size_t c = 0; c + missing < cols; ++c) max = subtract ? fmaxf(max, x[c]) : max;
  for (size_t c = 0; c + missing < cols; ++c) sum += softmax::exponential(x[c] - max);
  for (size_t c = 0; c < cols; ++c) y[c] = softmax::exponential(x[c] - max) / sum;
}

void launch_without_barrier(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_without_barrier, 1, softmax::kBlock, 0, y, x, cols);
}
void launch_without_maximum(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_with_mistake, 1, 1, 0, y, x, cols, false, 0);
}
void launch_without_tail(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_with_mistake, 1, 1, 0, y, x, cols, true, 1);
}

}  // namespace softmax_test
