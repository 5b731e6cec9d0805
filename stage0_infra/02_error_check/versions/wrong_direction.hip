// wrong_direction: a copy whose direction is not the one that it is said to have.
#include <vector>

#include "common/device_buffer.h"
#include "stage0_infra/02_error_check/error_check.h"

namespace error_check {

// The source is in device memory and the copy is announced as one from the host. AMD's runtime
// looks only at the pointers and copies all the same.
gpu::Error provoke_wrong_direction() {
  gpu::DeviceBuffer<int> device(std::vector<int>(16, 1));
  std::vector<int> host(16);
  return caught([&] {
    HIP_CHECK(hipMemcpy(host.data(), device.data(), device.bytes(), hipMemcpyHostToDevice));
  });
}

}  // namespace error_check
