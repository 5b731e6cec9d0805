// Graphs: what is captured runs when the graph is launched, and what can't be captured is an error
// that leaves the stream as it was.
#include "common/graph.h"

#include <stdexcept>
#include <vector>

#include "common/testing.h"

namespace {

// A byte of device memory for each element, filled and read without kernels.
struct Bytes {
  explicit Bytes(size_t size) : n(size) {
    HIP_CHECK(hipMalloc(&data, n));
    HIP_CHECK(hipMemset(data, 0, n));
  }
  ~Bytes() { static_cast<void>(hipFree(data)); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  void fill(int value, hipStream_t stream) { HIP_CHECK(hipMemsetAsync(data, value, n, stream)); }
  std::vector<unsigned char> to_host() const {
    std::vector<unsigned char> host(n);
    HIP_CHECK(hipMemcpy(host.data(), data, n, hipMemcpyDeviceToHost));
    return host;
  }
  bool holds(unsigned char value) const {
    return to_host() == std::vector<unsigned char>(n, value);
  }

  size_t n;
  void* data = nullptr;
};

}  // namespace

TEST_CASE("graph: nothing runs before it is launched, and all of it each time") {
  Bytes bytes(1000);
  const gpu::Stream stream, other;
  const gpu::Graph graph(stream, [&] { bytes.fill(1, stream), bytes.fill(2, stream); });
  CHECK(graph.nodes() == 2);
  stream.wait();
  CHECK(bytes.holds(0));
  graph.launch(stream);
  stream.wait();
  CHECK(bytes.holds(2));
  bytes.fill(3, nullptr);
  graph.launch(other);
  other.wait();
  CHECK(bytes.holds(2));
}

TEST_CASE("graph: an empty one has no nodes") {
  const gpu::Stream stream;
  const gpu::Graph graph(stream, [] {});
  CHECK(graph.nodes() == 0);
  graph.launch(stream);
  stream.wait();
}

TEST_CASE("graph: what can't be captured is an error, and the stream takes work again") {
  Bytes bytes(8);
  const gpu::Stream stream;
  const auto capture_wait = [&] {
    const gpu::Graph graph(stream, [&] {
      bytes.fill(1, stream);
      HIP_CHECK(hipStreamSynchronize(stream));
    });
  };
  CHECK_THROWS_AS(capture_wait(), gpu::Error);
  const auto capture_error = [&] {
    const gpu::Graph graph(stream, [&] {
      bytes.fill(1, stream);
      throw std::runtime_error("no such algorithm");
    });
  };
  CHECK_THROWS_AS(capture_error(), std::runtime_error);
  CHECK(hipGetLastError() == hipSuccess);
  CHECK(bytes.holds(0));
  bytes.fill(5, stream);
  stream.wait();
  CHECK(bytes.holds(5));
  CHECK_THROWS_AS(gpu::Graph(nullptr, [] {}), gpu::Error);
}

TEST_CASE("testing: the same bits from a graph") {
  Bytes bytes(100);
  const auto reset = [&] { bytes.fill(0xFF, nullptr); };
  const auto read = [&] { return bytes.to_host(); };
  int calls = 0;
  testing::require_same_in_graph(
      reset, [&](hipStream_t stream) { bytes.fill(4, stream), ++calls; }, read);
  CHECK(calls == 2);  // once as it is, once to be captured
  testing::run_captured([&](hipStream_t stream) { bytes.fill(6, stream); });
  CHECK(bytes.holds(6));
}
