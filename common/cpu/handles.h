// Streams, events and graphs: what is known of each, and where a handle is looked up. For
// common/cpu/*.cpp only.
//
// Work runs as soon as it is queued, so a stream has nothing to keep in order: it exists to be
// captured. While a stream captures, what is queued on it becomes a node of a graph that remembers
// which nodes had to be finished first, and does not run; an event recorded there stands for the
// nodes behind which it was recorded, and a stream that waits for the event joins the capture. The
// nodes' order of arrival is one order that respects all those needs, and a launch runs them in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "common/cpu/internal.h"

namespace cpu {

using Clock = std::chrono::steady_clock;
using NodeNumbers = std::set<size_t>;

struct Node {
  std::function<void()> work;
  NodeNumbers needs;  // the nodes, all of smaller number, that must have finished
  int device;         // where it runs
};
struct Graph {
  int device = 0;  // of the stream that captured it; a node of one that joined has its own
  std::vector<Node> nodes;
};

// A graph in the making: the stream where it began and all that have joined it.
struct Capture {
  hipStream_t origin;
  hipStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  Graph graph;
};

struct Stream {
  int device = 0;
  unsigned flags = hipStreamDefault;
  std::shared_ptr<Capture> capture;  // null: work runs at once
  NodeNumbers last;                  // the nodes that the next one needs
};

struct Event {
  int device = 0;
  unsigned flags = hipEventDefault;
  bool recorded = false;
  Clock::time_point time;
  std::shared_ptr<Capture> capture;  // where it was recorded, if that was a capture
  NodeNumbers after;                 // and the nodes that it stands for
};

// Objects by handle. Handles are numbers that are never used again, so one that was destroyed, or
// never made, is not found.
template <class Handle, class Object>
class Table {
 public:
  Handle add(Object object) {
    const auto handle = reinterpret_cast<Handle>(next_ += 16);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  Object* find(Handle handle) {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool remove(Handle handle) { return objects_.erase(handle) != 0; }
  template <class Condition>
  void remove_if(Condition condition) {
    for (auto at = objects_.begin(); at != objects_.end();)
      at = condition(at->second) ? objects_.erase(at) : std::next(at);
  }
  auto begin() { return objects_.begin(); }
  auto end() { return objects_.end(); }

 private:
  std::map<Handle, Object> objects_;
  std::uintptr_t next_ = 0x1000;
};

struct Objects {
  std::mutex mutex;
  Table<hipStream_t, Stream> streams;
  Table<hipEvent_t, Event> events;
  Table<hipGraph_t, std::shared_ptr<const Graph>> graphs;
  Table<hipGraphExec_t, std::shared_ptr<const Graph>> executables;
  std::vector<std::shared_ptr<Capture>> captures;  // those that have not ended
  std::atomic<bool> any_capture{false};            // what a launch looks at before it locks
};

// Never destroyed: static objects of the program may use their handles.
inline Objects& objects() {
  static Objects* const instance = new Objects;
  return *instance;
}

// The end of a capture, good or bad: its streams run work again (capture.cpp).
void end_capture(Objects& o, const std::shared_ptr<Capture> capture);

}  // namespace cpu
