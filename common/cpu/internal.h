// What the files of the CPU backend share with one another: included by common/cpu/*.cpp and by the
// backend's own tests, never by a program.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/cpu/runtime_api.h"

namespace cpu {

// ---- Which device (device.cpp) ----------------------------------------------------------------

inline constexpr int kMaxDevices = 8;
extern int device_count;  // HIP_CPU_DEVICES; 1 until device() is called
// This host thread's: the one that hipSetDevice chose, or for which it works at the moment.
extern __thread int current_device_number;
// Ends the program for the value of one of the backend's variables: a line, exit code 2, and no
// report on buffers that are in use.
[[noreturn]] void refuse(const char* variable, const char* value, const char* allowed);
inline int current_device() { return current_device_number; }
bool exists(int device);
// Makes a device the current one while it lives: for work on behalf of a stream or a launch.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device_number) { current_device_number = device; }
  ~OnDevice() { current_device_number = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};
// Sets of devices, a bit for each. Those whose memory a kernel of `device` may use: itself and its
// peers.
using DeviceSet = unsigned;
inline constexpr DeviceSet kAllDevices = (1u << kMaxDevices) - 1;
DeviceSet reachable_from(int device);

// ---- Errors (errors.cpp) ----------------------------------------------------------------------

// Records the calling thread's last error, unless it is hipSuccess, and returns it.
hipError_t set_error(hipError_t error);
// Prints one line on stderr, "cpu backend: <line>", and keeps it for last_diagnosis().
void diagnose(const std::string& line);
// diagnose() and set_error() in one.
hipError_t fail(hipError_t error, const std::string& diagnosis);
// A launch that was refused; an empty diagnosis prints nothing. A launch returns nothing, so its
// error counts as unread until any call returns it; one that nobody ever reads is reported at exit.
void launch_failed(hipError_t error, const std::string& diagnosis);

// A kernel went wrong while it ran: prints the diagnosis; its device is lost. As on a GPU the next
// call that waits returns the error, and from then on every call, until hipDeviceReset(). Callable
// from any thread; of several faults of a device the first counts.
void raise_fault(hipError_t error, const std::string& diagnosis, int device = current_device());
// True from the fault on: queued work must not run any more.
bool device_lost(int device = current_device());
// hipSuccess, or the fault once a waiting call has surfaced it: every call begins by asking.
hipError_t device_state(int device = current_device());
// The same for calls that wait: surfaces a fault.
hipError_t device_wait(int device = current_device());
std::string last_diagnosis();
// What hipDeviceReset() does to the errors: those of the current device.
void forget_errors();

// ---- Memory (memory.cpp, pointers.cpp, reach.cpp, redzones.cpp) --------------------------------

enum class PointerKind { device, pinned, freed, host, null };
// A live buffer and the guard pages around it are device or pinned, a remembered freed one is
// freed; everything else that is not null is host.
PointerKind pointer_kind(const void* pointer);
// Where an address lies among the device's buffers, e.g. "4 bytes past the end of the 4096-byte
// buffer allocated at file:line". Empty if it is nowhere near one.
std::string describe_address(const void* address);
// The device to which the buffer around this pointer belongs; -1 where there is none.
int owner_of(const void* pointer);
// False if `address` is in the memory of a device that the current one can't reach; *why says so.
bool is_reachable(const void* address, std::string* why);
// The same for every pointer among a kernel's arguments.
bool are_reachable(const void* arguments, size_t bytes, std::string* why);
// May `function` use [pointer, pointer + bytes), in that place, as its `role`? Else false, and *why
// in one line.
enum class Place { host, device, either };
bool check_range(const std::string& function, const char* role, const void* pointer, size_t bytes,
                 Place place, std::string* why);
// False if a redzone of these devices' buffers was written since the last call; *what says which.
// Looks at up to 64 buffers per call, in turn. The memory must be open.
bool check_redzones(DeviceSet devices, std::string* what);
// With HIP_CPU_STRICT=1 device memory is unreadable except while one of these lives, and then only
// that of these devices: one that asks for others waits until it is gone. So a thread has one.
class OpenMemory {
 public:
  explicit OpenMemory(DeviceSet devices = kAllDevices);
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};
std::string count_bytes(size_t bytes);  // "1 byte", "2 bytes"
// Frees every buffer of the current device: what hipDeviceReset() does to the memory.
void free_all_memory();
// Bytes of device memory that live buffers of the current device take.
size_t used_memory();
// Lines about this process's buffers that nobody freed: at most `most`, the last counts the rest.
std::vector<std::string> describe_leaks(size_t most);

// On as many threads as the size is worth (copy.cpp).
void fill_bytes(void* to, int value, size_t bytes);

// ---- Streams and graphs (stream.cpp, capture.cpp) ---------------------------------------------

// May work be queued on this stream now? Else hipErrorInvalidHandle, or the capture error that
// follows from it.
hipError_t check_stream(hipStream_t stream);
// The device that a stream belongs to; the default stream is the current device's.
int device_of(hipStream_t stream);
// How many streams have been made and not destroyed, of all devices.
size_t live_streams();
// May a call that a graph can't hold (allocating, waiting) be made now? Else the error, and the
// captures that forbid it are invalidated.
hipError_t check_not_capturing();
// While is_capturing(stream), work queued on it becomes a node of the graph and does not run.
void record(hipStream_t stream, std::function<void()> work);
// Those of the current device: what hipDeviceReset() does to streams, events and graphs.
void destroy_all_handles();

// ---- The device (device.cpp) ------------------------------------------------------------------

// The limits are those of real devices, so that what runs here runs there.
struct Device {
  std::string name;
  int wave = 32;            // HIP_CPU_WAVE
  int threads = 1;          // HIP_CPU_THREADS: of the host
  int multiprocessors = 1;  // HIP_CPU_MULTIPROCESSORS, else as many as threads
  // HIP_CPU_BLOCKS: of a grid whose kernel goes round. Launchers ask for it.
  int blocks = std::numeric_limits<int>::max();
  bool strict = false;  // HIP_CPU_STRICT
  bool poison = false;  // HIP_CPU_POISON: static shared memory begins each block as NaN
  // HIP_CPU_GUARD: where the guard pages of buffers lie. `end`: a buffer ends at one, or up to 15
  // bytes before it, for it begins at a multiple of 16. `exact`: it ends at one to the byte and is
  // aligned as its size is. `begin`: it begins at one.
  enum class Guard { end, exact, begin } guard = Guard::end;
  static constexpr int kMaxThreadsPerBlock = 1024;
  static constexpr int kMaxBlockDim[3] = {1024, 1024, 64};
  static constexpr int kMaxGridDim[3] = {2147483647, 65535, 65535};
  static constexpr size_t kMaxSharedBytes = 64 * 1024;  // static and dynamic together
  // Of kernels that ask for it with hipFuncSetAttribute, as on sm_90.
  static constexpr size_t kMostSharedBytes = 227 * 1024;
  static constexpr int kMaxThreadsPerMultiprocessor = 2048;
};
// What all devices are alike in. Reads the environment at the first call. A wrong value is one line
// on stderr and exit code 2.
const Device& device();
// Bytes of memory that this process may still take, and may have in all: the machine's or its
// control group's, whichever is less.
size_t available_memory();
size_t total_memory();
// Bytes of shared memory that a launch may have: kMaxSharedBytes, or the most that any kernel has
// asked for.
size_t allowed_shared_bytes();
bool ask_for_shared_bytes(int bytes);  // false: no block has as many

}  // namespace cpu
