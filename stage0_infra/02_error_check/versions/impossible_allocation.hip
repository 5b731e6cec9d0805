// impossible_allocation: more memory than any device has.
#include <cstddef>

#include "common/gpu_runtime.h"
#include "stage0_infra/02_error_check/error_check.h"

namespace error_check {

// hipMalloc fails at once and leaves the pointer as it was. A program that does not look launches
// its kernels on a null pointer.
gpu::Error provoke_impossible_allocation() {
  constexpr size_t kPebibyte = size_t{1} << 50;
  return caught([] {
    void* memory = nullptr;
    HIP_CHECK(hipMalloc(&memory, kPebibyte));
  });
}

}  // namespace error_check
