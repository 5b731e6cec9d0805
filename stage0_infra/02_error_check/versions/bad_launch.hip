// bad_launch: a launch that can't start, and how any error is caught.
#include "common/gpu.h"
#include "stage0_infra/02_error_check/error_check.h"

namespace error_check {

gpu::Error caught(const std::function<void()>& provoke) {
  // exercise: run it, and return the gpu::Error if it throws one (about 5 lines)
  try {
    provoke();
  } catch (const gpu::Error& error) {
    return error;
  }
  // end exercise
  return {hipSuccess, "not reported by this runtime"};
}

// Computes nothing, in as many threads as it is launched with.
// Fixes : -
// Idea  : what is wrong is the launch, so the kernel needs no work.
// Thread: each returns at once.
// Costs : nothing: with 2048 threads it never starts.
static __global__ void idle(int) {}

// No device has room for 2048 threads in one block. LAUNCH reports it at once.
gpu::Error provoke_bad_launch() {
  return caught([] { LAUNCH(idle, 1, 2048, 0, 0); });
}

}  // namespace error_check
