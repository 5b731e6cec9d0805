// Streams, events and graphs: the same on every backend.
#include <vector>

#include "common/gpu.h"
#include "common/testing.h"

namespace {

constexpr unsigned kCount = 1000;

static __global__ void add_one(int* values, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += 1;
}

static __global__ void add_arrays(int* sum, const int* a, const int* b, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

struct Buffer {
  explicit Buffer(unsigned n = kCount) : count(n) { HIP_CHECK(hipMalloc(&data, n * sizeof(int))); }
  ~Buffer() { static_cast<void>(hipFree(data)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t bytes() const { return count * sizeof(int); }
  std::vector<int> to_host() const {
    std::vector<int> host(count);
    HIP_CHECK(hipMemcpy(host.data(), data, bytes(), hipMemcpyDeviceToHost));
    return host;
  }

  unsigned count;
  int* data = nullptr;
};

struct Stream {
  explicit Stream(unsigned flags = hipStreamNonBlocking) {
    HIP_CHECK(hipStreamCreateWithFlags(&handle, flags));
  }
  ~Stream() { static_cast<void>(hipStreamDestroy(handle)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator hipStream_t() const { return handle; }

  hipStream_t handle = nullptr;
};

struct Event {
  explicit Event(unsigned flags = hipEventDefault) {
    HIP_CHECK(hipEventCreateWithFlags(&handle, flags));
  }
  ~Event() { static_cast<void>(hipEventDestroy(handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator hipEvent_t() const { return handle; }

  hipEvent_t handle = nullptr;
};

// A captured graph, instantiated.
struct Executable {
  explicit Executable(hipGraph_t graph) {
    HIP_CHECK(hipGraphInstantiateWithFlags(&handle, graph, 0));
  }
  ~Executable() { static_cast<void>(hipGraphExecDestroy(handle)); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  hipGraphExec_t handle = nullptr;
};

size_t node_count(hipGraph_t graph) {
  size_t count = 0;
  HIP_CHECK(hipGraphGetNodes(graph, nullptr, &count));
  return count;
}

// Errors that a test provoked must not meet the next HIP_CHECK.
void forget_error() { static_cast<void>(hipGetLastError()); }

}  // namespace

TEST_CASE("work on a stream runs in order") {
  const Stream stream;
  const Buffer buffer;
  std::vector<int> host(kCount, -1);
  HIP_CHECK(hipMemsetAsync(buffer.data, 0, buffer.bytes(), stream));
  for (int i = 0; i < 3; ++i) LAUNCH_ON(stream, add_one, 4, 256, 0, buffer.data, kCount);
  HIP_CHECK(
      hipMemcpyAsync(host.data(), buffer.data, buffer.bytes(), hipMemcpyDeviceToHost, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(hipStreamQuery(stream) == hipSuccess);
  REQUIRE(host == std::vector<int>(kCount, 3));
}

TEST_CASE("one stream waits for an event of another") {
  const Stream first, second;
  const Event done;
  const Buffer buffer;
  HIP_CHECK(hipMemsetAsync(buffer.data, 0, buffer.bytes(), first));
  LAUNCH_ON(first, add_one, 4, 256, 0, buffer.data, kCount);
  HIP_CHECK(hipEventRecord(done, first));
  HIP_CHECK(hipStreamWaitEvent(second, done, 0));
  LAUNCH_ON(second, add_one, 4, 256, 0, buffer.data, kCount);
  HIP_CHECK(hipStreamSynchronize(second));
  REQUIRE(buffer.to_host() == std::vector<int>(kCount, 2));
}

TEST_CASE("events measure time") {
  const Event start, stop, never, untimed(hipEventDisableTiming);
  const Buffer buffer;
  HIP_CHECK(hipMemset(buffer.data, 0, buffer.bytes()));
  HIP_CHECK(hipEventRecord(start, nullptr));
  LAUNCH(add_one, 4, 256, 0, buffer.data, kCount);
  HIP_CHECK(hipEventRecord(stop, nullptr));
  HIP_CHECK(hipEventRecord(untimed, nullptr));
  HIP_CHECK(hipEventSynchronize(stop));
  REQUIRE(hipEventQuery(stop) == hipSuccess);
  float ms = -1;
  HIP_CHECK(hipEventElapsedTime(&ms, start, stop));
  REQUIRE(ms >= 0);
  REQUIRE(ms < 10000);

  REQUIRE(hipEventElapsedTime(&ms, start, never) == hipErrorInvalidHandle);
  REQUIRE(hipEventElapsedTime(&ms, start, untimed) == hipErrorInvalidHandle);
  REQUIRE(hipEventQuery(never) == hipSuccess);  // nothing to wait for
  forget_error();
}

TEST_CASE("a captured graph runs when it is launched, as often as it is launched") {
  const Stream stream;
  const Buffer buffer;
  std::vector<int> input(kCount), output(kCount, -1);
  for (unsigned i = 0; i < kCount; ++i) input[i] = static_cast<int>(i);
  HIP_CHECK(hipMemset(buffer.data, 0xFF, buffer.bytes()));

  hipStreamCaptureStatus status = hipStreamCaptureStatusInvalidated;
  HIP_CHECK(hipStreamIsCapturing(stream, &status));
  REQUIRE(status == hipStreamCaptureStatusNone);
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipStreamIsCapturing(stream, &status));
  REQUIRE(status == hipStreamCaptureStatusActive);
  HIP_CHECK(
      hipMemcpyAsync(buffer.data, input.data(), buffer.bytes(), hipMemcpyHostToDevice, stream));
  LAUNCH_ON(stream, add_one, 4, 256, 0, buffer.data, kCount);
  LAUNCH_ON(stream, add_one, 4, 256, 0, buffer.data, kCount);
  HIP_CHECK(hipMemsetAsync(buffer.data, 0, 4 * sizeof(int), stream));
  HIP_CHECK(
      hipMemcpyAsync(output.data(), buffer.data, buffer.bytes(), hipMemcpyDeviceToHost, stream));
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  REQUIRE(node_count(graph) == 5);
  REQUIRE(buffer.to_host() == std::vector<int>(kCount, -1));  // nothing has run yet

  const Executable executable(graph);
  HIP_CHECK(hipGraphDestroy(graph));  // the executable lives on
  for (int launch = 0; launch < 3; ++launch) {
    for (int& value : input) value += launch;  // a copy node reads what is there when it runs
    HIP_CHECK(hipGraphLaunch(executable.handle, stream));
    HIP_CHECK(hipStreamSynchronize(stream));
    for (unsigned i = 0; i < kCount; ++i) {
      CAPTURE(launch, i);
      REQUIRE(output[i] == (i < 4 ? 0 : input[i] + 2));
    }
  }
}

TEST_CASE("kernel arguments of a graph are those of the capture") {
  const Stream stream;
  const Buffer buffer;
  HIP_CHECK(hipMemset(buffer.data, 0, buffer.bytes()));
  unsigned n = 10;
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  LAUNCH_ON(stream, add_one, 4, 256, 0, buffer.data, n);
  n = kCount;
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  const Executable executable(graph);
  HIP_CHECK(hipGraphDestroy(graph));
  HIP_CHECK(hipGraphLaunch(executable.handle, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  const std::vector<int> values = buffer.to_host();
  REQUIRE(values[9] == 1);
  REQUIRE(values[10] == 0);
}

TEST_CASE("events fork a capture into a second stream and join it again") {
  const Stream origin, branch;
  const Event forked, joined;
  const Buffer a, b, sum;
  HIP_CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipEventRecord(forked, origin));
  HIP_CHECK(hipStreamWaitEvent(branch, forked, 0));
  HIP_CHECK(hipMemsetAsync(a.data, 0, a.bytes(), origin));
  HIP_CHECK(hipMemsetAsync(b.data, 0, b.bytes(), branch));
  LAUNCH_ON(origin, add_one, 4, 256, 0, a.data, kCount);
  LAUNCH_ON(branch, add_one, 4, 256, 0, b.data, kCount);
  HIP_CHECK(hipEventRecord(joined, branch));
  HIP_CHECK(hipStreamWaitEvent(origin, joined, 0));
  LAUNCH_ON(origin, add_arrays, 4, 256, 0, sum.data, a.data, b.data, kCount);
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamEndCapture(origin, &graph));
  REQUIRE(node_count(graph) == 5);
  const Executable executable(graph);
  HIP_CHECK(hipGraphDestroy(graph));
  HIP_CHECK(hipGraphLaunch(executable.handle, branch));  // any stream will do
  HIP_CHECK(hipStreamSynchronize(branch));
  REQUIRE(sum.to_host() == std::vector<int>(kCount, 2));
}

TEST_CASE("a branch that is never joined spoils the capture") {
  const Stream origin, branch;
  const Event forked;
  const Buffer buffer;
  HIP_CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipEventRecord(forked, origin));
  HIP_CHECK(hipStreamWaitEvent(branch, forked, 0));
  HIP_CHECK(hipMemsetAsync(buffer.data, 0, buffer.bytes(), branch));
  hipGraph_t graph = nullptr;
  REQUIRE(hipStreamEndCapture(origin, &graph) == hipErrorStreamCaptureUnjoined);
  REQUIRE(graph == nullptr);
  forget_error();
}

TEST_CASE("waiting for a capturing stream spoils the capture") {
  const Stream stream;
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  REQUIRE(hipStreamSynchronize(stream) == hipErrorStreamCaptureUnsupported);
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  HIP_CHECK(hipStreamIsCapturing(stream, &status));
  REQUIRE(status == hipStreamCaptureStatusInvalidated);
  hipGraph_t graph = nullptr;
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipErrorStreamCaptureInvalidated);
  REQUIRE(graph == nullptr);
  forget_error();
  const Buffer buffer;  // and all is well again
  HIP_CHECK(hipMemsetAsync(buffer.data, 0, buffer.bytes(), stream));
  HIP_CHECK(hipStreamSynchronize(stream));
}

TEST_CASE("allocating while a stream captures spoils the capture, unless it is relaxed") {
  const Stream stream;
  void* pointer = nullptr;
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  REQUIRE(hipMalloc(&pointer, 1024) == hipErrorStreamCaptureUnsupported);
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipErrorStreamCaptureInvalidated);
  forget_error();

  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  HIP_CHECK(hipMalloc(&pointer, 1024));
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  HIP_CHECK(hipGraphDestroy(graph));
  HIP_CHECK(hipFree(pointer));
}

TEST_CASE("captures begin and end where they may") {
  const Stream stream;
  hipGraph_t graph = nullptr;
  REQUIRE(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal) ==
          hipErrorStreamCaptureUnsupported);
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipErrorIllegalState);
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipErrorIllegalState);
  forget_error();
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipSuccess);
  REQUIRE(node_count(graph) == 0);
  HIP_CHECK(hipGraphDestroy(graph));
  forget_error();
}

#if defined(GPU_BACKEND_CPU)

#include "common/cpu/internal.h"

TEST_CASE("cpu: handles that were destroyed or never made are errors, not crashes") {
  hipStream_t stream = nullptr;
  hipEvent_t event = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  HIP_CHECK(hipEventCreate(&event));
  HIP_CHECK(hipStreamDestroy(stream));
  HIP_CHECK(hipEventDestroy(event));
  REQUIRE(hipStreamDestroy(stream) == hipErrorInvalidHandle);
  REQUIRE(hipStreamSynchronize(stream) == hipErrorInvalidHandle);
  REQUIRE(hipEventRecord(event, nullptr) == hipErrorInvalidHandle);
  REQUIRE(hipEventDestroy(event) == hipErrorInvalidHandle);
  REQUIRE(hipStreamQuery(reinterpret_cast<hipStream_t>(&stream)) == hipErrorInvalidHandle);
  REQUIRE(hipGraphLaunch(nullptr, nullptr) == hipErrorInvalidValue);
  forget_error();
}

TEST_CASE("cpu: the default stream can't wait for a blocking stream that captures") {
  const Stream stream(hipStreamDefault);
  const Buffer buffer;
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  REQUIRE(hipMemsetAsync(buffer.data, 0, buffer.bytes(), nullptr) == hipErrorStreamCaptureImplicit);
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipErrorStreamCaptureInvalidated);
  forget_error();
}

TEST_CASE("cpu: a capture keeps to itself") {
  const Stream first, second;
  const Event outside, inside;
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipEventRecord(outside, nullptr));
  HIP_CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  REQUIRE(hipStreamWaitEvent(first, outside, 0) == hipErrorStreamCaptureIsolation);
  REQUIRE(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);

  HIP_CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipStreamBeginCapture(second, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipEventRecord(inside, first));
  REQUIRE(hipEventQuery(inside) == hipErrorCapturedEvent);
  REQUIRE(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);
  HIP_CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipEventRecord(inside, first));
  REQUIRE(hipStreamWaitEvent(second, inside, 0) == hipErrorStreamCaptureMerge);
  REQUIRE(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);
  REQUIRE(hipStreamEndCapture(second, &graph) == hipErrorStreamCaptureInvalidated);
  forget_error();
}

TEST_CASE("cpu: a graph that copies from a freed buffer loses the device") {
  const Stream stream;
  const Buffer buffer;
  int* gone = nullptr;
  HIP_CHECK(hipMalloc(&gone, buffer.bytes()));
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  HIP_CHECK(hipMemcpyAsync(buffer.data, gone, buffer.bytes(), hipMemcpyDeviceToDevice, stream));
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  const Executable executable(graph);
  HIP_CHECK(hipFree(gone));
  HIP_CHECK(hipGraphLaunch(executable.handle, stream));
  REQUIRE(hipStreamSynchronize(stream) == hipErrorIllegalAddress);
  REQUIRE(cpu::last_diagnosis().find("freed 4000-byte buffer") != std::string::npos);
  HIP_CHECK(hipDeviceReset());
}

#endif
