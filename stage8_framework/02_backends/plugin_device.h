// A device of the framework that a plug-in provides: its memory, in 8.1's pool, and one stream, and
// who may work there. Plain C++ that knows no device.
//
//   PluginDevice "own"   memory and stream   of own's device 0
//                        seats               own | vendor | reference      (the CPU's memory only)
//                        policy              own, then reference           what run() tries in turn
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stage8_framework/02_backends/abi.h"
#include "stage8_framework/02_backends/ops.h"

namespace tensor {
class Splitting;
}

namespace framework {

struct Plugin;
class BestChoices;

// A plug-in that can work in a device's memory.
struct Seat {
  std::string name;
  const CourseBackend* table = nullptr;
  std::int32_t number = 0;  // of its device
  bool at_once = false;   // run() does its work itself: the device's stream must have done its own
  void* state = nullptr;  // nullptr until it is asked for
  std::vector<std::int32_t> ops{};      // its numbers of the rows of kOps, -1 for what it has not
  std::vector<std::int32_t> kernels{};  // which kernel of each row; 0 is its own choice

  // Throws gpu::Error or std::runtime_error where the plug-in can't open its device.
  void open();
};

class PluginDevice;

// Who sees all that this thread asks of devices: 8.5, which records it.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  // `seat` has queued the call, by this kernel and with this workspace.
  virtual void queued(PluginDevice& device, Seat& seat, const Call& call, std::int32_t kernel,
                      size_t workspace) = 0;
  // The host is about to read or to write the device's memory. May refuse it by throwing.
  virtual void host_access(const PluginDevice& device, bool reads, size_t bytes) = 0;
};
inline thread_local CallWatcher* call_watcher = nullptr;

// Throws gpu::Error where `error` has a code of the device, else std::runtime_error.
[[noreturn]] void throw_error(const CourseError& error, const std::string& who);

// Lives as long as the process: registry.h makes it. One thread queues work on it at a time.
class PluginDevice final : public Device {
 public:
  // `seats`: the plug-in whose memory this is, then all that can work there.
  PluginDevice(std::string name, std::vector<Seat> seats);
  ~PluginDevice() override;
  PluginDevice(const PluginDevice&) = delete;
  PluginDevice& operator=(const PluginDevice&) = delete;

  const char* name() const override { return name_.c_str(); }
  void* allocate(size_t bytes) override;
  void free(void* block) noexcept override;
  void to_device(void* to, const void* host, size_t bytes) override;
  void to_host(void* host, const void* from, size_t bytes) override;
  // By the plug-in whose memory it is, whatever the policy says.
  void copy(const Tensor& out, const Tensor& a) override;

  void wait();     // until all that was queued is done
  void release();  // gives memory that no tensor has back to the plug-in
  bool is_host_memory() const;
  tensor::Splitting& pool() { return *pool_; }
  const CourseBackend& table() const { return *seats_[0].table; }
  void* state() const { return seats_[0].state; }
  void* stream() const { return stream_; }

  std::vector<Seat>& seats() { return seats_; }
  // The seat of that name, opened. Throws std::invalid_argument, and says which there are.
  Seat& seat(const std::string& plugin);

  // The device's own plug-in, then the reference where it has a seat.
  std::vector<Seat*> default_policy();
  std::vector<Seat*> policy;  // whom run() tries, in turn
  bool takes_best = false;    // the fastest one first, as measured
  std::unique_ptr<BestChoices> best;

  // What ran elsewhere than the policy's first plug-in, and why.
  struct Fallback {
    const Op* op;
    std::string wanted, reason, by;
    std::uint64_t times;
  };
  std::vector<Fallback> fallbacks;

  // What an Autocast has not cast, because nobody would have taken it.
  struct LeftInF32 {
    const Op* op;
    std::string reason;
    std::uint64_t times;
  };
  std::vector<LeftInF32> left_in_f32;

 private:
  std::string name_;
  std::vector<Seat> seats_;
  void* stream_ = nullptr;
  std::unique_ptr<tensor::Splitting> pool_;
};

}  // namespace framework
