// Inputs and comparisons of the programs of 7.4 and 7.5, for float and for bf16.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/device_buffer.h"
#include "common/half.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

inline constexpr float kSpread = 2.5;  // of queries and keys: some keys fit much better than others

// Numbers in [-1, 1), or integers in [-3, 3], times `largest`, rounded to the type.
using Fill = void (*)(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                      hipStream_t queue);
template <class T>
void fill(gpu::DeviceBuffer<T>& array, float largest, std::uint64_t seed, std::uint32_t stream,
          Fill launch_fill = random_numbers::launch_fill_uniform) {
  if constexpr (std::is_same_v<T, float>) {
    launch_fill(array.data(), array.size(), seed, stream, nullptr);
    axpy::launch_vectorized_scale(array.data(), largest, array.data(), array.size());
  } else {
    gpu::DeviceBuffer<float> exact(array.size());
    fill(exact, largest, seed, stream, launch_fill);
    gemm_mixed::launch_round<T>(array.data(), exact.data(), array.size());
  }
}

template <class T>
std::vector<float> floats_of(const std::vector<T>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const T value : values) floats.push_back(gpu::to_float(value));
  return floats;
}
template <class T>
std::vector<float> floats_of(const gpu::DeviceBuffer<T>& array) {
  return floats_of(array.to_host());
}

// The row's version works in `floats` floats beside inputs and outputs: `memory` has them then, and
// the row's note says how much that is. Where there is no such memory, the row is skipped.
inline void give_memory(Measured& row, gpu::DeviceBuffer<float>& memory, size_t floats) {
  const double bytes = sizeof(float) * static_cast<double>(floats);
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (bytes >= 0.95 * static_cast<double>(free_bytes)) {
    row.skipped = "needs " + memory_text(bytes);
    return;
  }
  row.note = memory_text(bytes);
  if (floats > memory.size()) memory = gpu::DeviceBuffer<float>(floats);
}

// The sampled rows of an array, within their bounds or, if is_exact, equal.
template <class T>
Comparison compare_rows(const RowSample& sample, const T* array, const dense::Values& want,
                        bool is_exact = false) {
  const std::vector<T> got = sample.to_host(array);
  Comparison result = compare(
      got.size(), [&](size_t i) { return gpu::to_float(got[i]); },
      [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return is_exact ? 0 : want.error[i]; });
  if (!got.empty())
    result.index =
        sample.rows[result.index / sample.cols] * sample.cols + result.index % sample.cols;
  return result;
}

}  // namespace attention
