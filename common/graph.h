// Graphs: what is queued on a stream, recorded once and launched again as a whole. Launching a
// kernel takes the host longer than a small kernel takes the device; a graph is launched at once.
// No kernels: plain C++.
#pragma once

#include <cstddef>
#include <utility>

#include "common/gpu_runtime.h"

namespace gpu {

class Graph {
 public:
  // Records what `queue()` queues on `stream`, which must be one that was created: the default
  // stream can't be captured. Nothing runs. Kernels' arguments are those of the recording. Throws
  // where something in `queue` can't be recorded (memory allocated or freed, a wait, work on the
  // default stream); the stream takes work again then.
  template <class Queue>
  Graph(hipStream_t stream, Queue&& queue) {
    HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
    hipGraph_t graph = nullptr;
    try {
      std::forward<Queue>(queue)();
    } catch (...) {
      if (hipStreamEndCapture(stream, &graph) == hipSuccess && graph != nullptr)
        static_cast<void>(hipGraphDestroy(graph));
      static_cast<void>(hipGetLastError());
      throw;
    }
    HIP_CHECK(hipStreamEndCapture(stream, &graph));
    hipError_t error = hipGraphGetNodes(graph, nullptr, &nodes_);
    if (error == hipSuccess) error = hipGraphInstantiateWithFlags(&executable_, graph, 0);
    static_cast<void>(hipGraphDestroy(graph));
    HIP_CHECK(error);
  }
  ~Graph() { static_cast<void>(hipGraphExecDestroy(executable_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // How many kernels, copies and fills were recorded.
  size_t nodes() const { return nodes_; }
  // Queues all of them, on any stream. The graph must live until they have run.
  void launch(hipStream_t stream) const { HIP_CHECK(hipGraphLaunch(executable_, stream)); }

 private:
  hipGraphExec_t executable_ = nullptr;
  size_t nodes_ = 0;
};

// A stream of its own. Work on it waits for earlier work on the default stream, and the other way
// around.
class Stream {
 public:
  Stream() { HIP_CHECK(hipStreamCreate(&stream_)); }
  ~Stream() { static_cast<void>(hipStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator hipStream_t() const { return stream_; }
  void wait() const { HIP_CHECK(hipStreamSynchronize(stream_)); }

 private:
  hipStream_t stream_ = nullptr;
};

}  // namespace gpu
