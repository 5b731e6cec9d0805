// Checking calls: HIP_CHECK(expr) throws gpu::Error naming expression, file:line, error name and
// text. Checking results is compare()'s work, in common/compare.h. Included by
// common/gpu_runtime.h, which declares what is used here.
#pragma once

#include <cstddef>

#include "common/error.h"

#define HIP_CHECK(expr) ::gpu::check((expr), #expr, __FILE__, __LINE__)

namespace gpu {

inline void check(hipError_t error, const char* expr, const char* file, int line) {
  if (error == hipSuccess) return;
  // The exception has the error now: no later check shall report it again.
  static_cast<void>(hipGetLastError());
  throw_error(static_cast<int>(error), hipGetErrorName(error), hipGetErrorString(error), expr, file,
              line);
}

// Fills a buffer with 0xFF bytes, which read as NaN in every floating type and as -1 in integers:
// outputs are poisoned before each checked launch, so that what a kernel forgot to write shows.
inline void poison(void* device_pointer, size_t bytes) {
  HIP_CHECK(hipMemset(device_pointer, 0xFF, bytes));
}

}  // namespace gpu
