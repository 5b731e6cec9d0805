// Errors: what they are called, who gets to know of them, and what is told at exit.
//
// Three kinds. A call that fails returns its error. A launch returns nothing, so its error waits in
// the host thread's "last error" until someone asks. A kernel that goes wrong while it runs has
// lost its device: nobody can say what the memory holds, so from the next call that waits on, every
// call returns that error until the device is reset. Other devices are none the worse.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "common/cpu/internal.h"

namespace cpu {

namespace {

struct ErrorName {
  hipError_t code;
  const char* name;
  const char* text;
};

constexpr ErrorName kErrorNames[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorDeinitialized, "hipErrorDeinitialized", "driver shutting down"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration",
     "invalid configuration argument"},
    {hipErrorInvalidPitchValue, "hipErrorInvalidPitchValue", "invalid pitch argument"},
    {hipErrorInvalidSymbol, "hipErrorInvalidSymbol", "invalid device symbol"},
    {hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {hipErrorInsufficientDriver, "hipErrorInsufficientDriver",
     "driver version is insufficient for runtime version"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidContext, "hipErrorInvalidContext", "invalid device context"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu",
     "no kernel image is available for execution on the device"},
    {hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorIllegalState, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {hipErrorContextIsDestroyed, "hipErrorContextIsDestroyed", "context is destroyed"},
    {hipErrorAssert, "hipErrorAssert", "device-side assert triggered"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorCooperativeLaunchTooLarge, "hipErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {hipErrorStreamCaptureMerge, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {hipErrorStreamCaptureUnmatched, "hipErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {hipErrorStreamCaptureUnjoined, "hipErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {hipErrorStreamCaptureIsolation, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {hipErrorStreamCaptureImplicit, "hipErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {hipErrorCapturedEvent, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {hipErrorStreamCaptureWrongThread, "hipErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const ErrorName& lookup(hipError_t error) {
  static constexpr ErrorName unknown{hipErrorUnknown, "hipErrorUnknown", "unknown error"};
  for (const ErrorName& entry : kErrorNames)
    if (entry.code == error) return entry;
  return unknown;
}

thread_local hipError_t last_error = hipSuccess;

// The process whose refused launch or fault nobody has read yet; 0: none. A forked child must not
// report what happened to its parent.
std::atomic<pid_t> launch_unread{0};
std::atomic<hipError_t> unread_launch_error{hipSuccess};

struct DeviceFault {
  std::atomic<hipError_t> error{hipSuccess};
  std::atomic<bool> surfaced{false};
  std::atomic<pid_t> unread{0};
};
DeviceFault faults[kMaxDevices];

struct Diagnosis {
  std::mutex mutex;
  std::string line;
};
Diagnosis& diagnosis() {  // never destroyed: faults may come as late as they like
  static Diagnosis* const instance = new Diagnosis;
  return *instance;
}

// The last thing that runs in a process which ends normally: says what the program left behind and
// turns success into exit code 1. It is registered before any static object of the program exists,
// hence runs when all of them are gone.
void report_at_exit(int status, void*) {
  const pid_t self = getpid();
  std::vector<std::string> lines;
  if (launch_unread == self)
    lines.push_back(std::string("a launch failed and nobody asked for its error: ") +
                    lookup(unread_launch_error).name);
  for (const DeviceFault& fault : faults)
    if (fault.unread == self)
      lines.push_back(std::string("a kernel failed and no call waited for it: ") +
                      lookup(fault.error).name);
  for (std::string& leak : describe_leaks(10 - lines.size())) lines.push_back(std::move(leak));
  if (lines.empty()) return;
  std::fflush(nullptr);
  for (const std::string& line : lines) std::fprintf(stderr, "cpu backend: %s\n", line.c_str());
  if (status == 0) _exit(1);
}

__attribute__((constructor(101))) void register_report() { on_exit(report_at_exit, nullptr); }

}  // namespace

hipError_t set_error(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}

void diagnose(const std::string& line) {
  const std::lock_guard<std::mutex> lock(diagnosis().mutex);
  diagnosis().line = line;
  std::fflush(stdout);  // keeps the two streams in order where they meet
  std::fprintf(stderr, "cpu backend: %s\n", line.c_str());
}

std::string last_diagnosis() {
  const std::lock_guard<std::mutex> lock(diagnosis().mutex);
  return diagnosis().line;
}

hipError_t fail(hipError_t error, const std::string& why) {
  diagnose(why);
  return set_error(error);
}

void launch_failed(hipError_t error, const std::string& why) {
  if (!why.empty()) diagnose(why);  // a lost device has been explained already
  static_cast<void>(set_error(error));
  unread_launch_error.store(error);
  launch_unread = getpid();
}

void raise_fault(hipError_t error, const std::string& why, int device) {
  diagnose(why);
  hipError_t none = hipSuccess;
  if (faults[device].error.compare_exchange_strong(none, error)) faults[device].unread = getpid();
}

bool device_lost(int device) { return faults[device].error != hipSuccess; }

hipError_t device_state(int device) {
  return set_error(faults[device].surfaced ? faults[device].error.load() : hipSuccess);
}

hipError_t device_wait(int device) {
  if (!device_lost(device)) return hipSuccess;
  faults[device].surfaced = true;
  faults[device].unread = 0;
  return device_state(device);
}

void forget_errors() {
  DeviceFault& fault = faults[current_device()];
  fault.surfaced = false;
  fault.error.store(hipSuccess);
  fault.unread = 0;
  launch_unread = 0;
  last_error = hipSuccess;
}

}  // namespace cpu

hipError_t hipPeekAtLastError() {
  cpu::launch_unread = 0;
  const hipError_t lost = cpu::device_state();
  return lost != hipSuccess ? lost : cpu::last_error;
}

hipError_t hipGetLastError() {
  const hipError_t error = hipPeekAtLastError();
  cpu::last_error = hipSuccess;
  return error;
}

const char* hipGetErrorName(hipError_t error) { return cpu::lookup(error).name; }
const char* hipGetErrorString(hipError_t error) { return cpu::lookup(error).text; }
