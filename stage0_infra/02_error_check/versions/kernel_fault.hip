// kernel_fault: an error while a kernel runs, which a later call reports.
#include <cstdint>

#include "common/gpu.h"
#include "stage0_infra/02_error_check/error_check.h"

namespace error_check {

// *address = 1    address: any number, as that of an unsigned.
// Fixes : -
// Idea  : the device has no memory at such an address: the write faults.
// Thread: one thread writes.
// Costs : the device. Nothing else works in this process afterwards.
static __global__ void write_word(std::uint64_t address) {
  *reinterpret_cast<unsigned*>(static_cast<std::uintptr_t>(address)) = 1;
}

// The launch succeeds. The next call that waits returns the error, and so does every later call.
// AMD's runtime does not return: it prints the address and ends the process.
gpu::Error provoke_kernel_fault() {
  constexpr std::uint64_t kUnmapped = 64;  // in the first page, where no system maps memory
  return caught([] {
    LAUNCH(write_word, 1, 1, 0, kUnmapped);
    HIP_CHECK(hipDeviceSynchronize());
  });
}

}  // namespace error_check
