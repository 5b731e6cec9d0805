// transfers: what the runtime's own copies reach, within the device and between host and device.
#include "common/gpu_runtime.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

void launch_copy_runtime(const Memory& memory, hipStream_t stream) {
  HIP_CHECK(
      hipMemcpyAsync(memory.to, memory.from, memory.bytes(), hipMemcpyDeviceToDevice, stream));
}

// The device can't reach pageable memory, which the operating system may move or swap out. So the
// driver first copies it, piece by piece, to pinned memory of its own.
void launch_upload_pageable(const Memory& memory, hipStream_t stream) {
  HIP_CHECK(
      hipMemcpyAsync(memory.to, memory.pageable, memory.host_bytes, hipMemcpyHostToDevice, stream));
}

// Pinned memory stays where it is: the device's copy engine fetches it while the host goes on.
void launch_upload_pinned(const Memory& memory, hipStream_t stream) {
  HIP_CHECK(
      hipMemcpyAsync(memory.to, memory.pinned, memory.host_bytes, hipMemcpyHostToDevice, stream));
}

void launch_download_pageable(const Memory& memory, hipStream_t stream) {
  HIP_CHECK(
      hipMemcpyAsync(memory.pageable, memory.to, memory.host_bytes, hipMemcpyDeviceToHost, stream));
}

void launch_download_pinned(const Memory& memory, hipStream_t stream) {
  HIP_CHECK(
      hipMemcpyAsync(memory.pinned, memory.to, memory.host_bytes, hipMemcpyDeviceToHost, stream));
}

}  // namespace timing
