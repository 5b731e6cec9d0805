// What the plug-in `own` does beside operations: memory, order, graphs, and errors that end at the
// table. The operations are walk_test.cpp's.
#include <cstring>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/layout.h"
#include "stage8_framework/02_backends/registry.h"

namespace {

// Device 0 of the plug-in, a stream, and two vectors of kCount floats.
class Own {
 public:
  static constexpr std::int64_t kCount = 1000;

  Own() {
    for (const framework::Plugin& plugin : framework::plugins())
      if (plugin.name == "own") table = plugin.table;
    REQUIRE(table != nullptr);
    REQUIRE(table->open(0, &state, &error) == 0);
    REQUIRE(table->stream_create(state, &stream, &error) == 0);
    for (void*& block : blocks) REQUIRE(table->allocate(state, kBytes, &block, &error) == 0);
  }
  ~Own() {
    for (void* block : blocks) table->free(state, block);
    table->stream_destroy(state, stream);
    table->close(state);
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;

  void write(int block, float value) {
    const std::vector<float> host(kCount, value);
    REQUIRE(table->to_device(state, blocks[block], host.data(), kBytes, stream, &error) == 0);
  }
  std::vector<float> read(int block) {
    std::vector<float> host(kCount);
    REQUIRE(table->to_host(state, host.data(), blocks[block], kBytes, stream, &error) == 0);
    return host;
  }
  // Queues block `to` = x * x, x block `from`.
  std::int32_t square(int to, int from) {
    static constexpr std::int64_t kStride = 1;
    const auto f32 = static_cast<std::int32_t>(framework::Dtype::f32);
    const CourseTensor x{blocks[from], &kCount, &kStride, 1, f32};
    const CourseTensor y{blocks[to], &kCount, &kStride, 1, f32};
    const CourseCall call{table->find(state, "square"), 0, 1, 1, &x, &y, nullptr, nullptr};
    return table->run(state, &call, stream, &error);
  }

  static constexpr size_t kBytes = kCount * sizeof(float);
  const CourseBackend* table = nullptr;
  void *state = nullptr, *stream = nullptr, *blocks[2] = {};
  CourseError error{};
};

std::vector<float> all(float value) { return std::vector<float>(Own::kCount, value); }

}  // namespace

TEST_CASE("own keeps what is written, and one call comes after the other") {
  Own own;
  own.write(0, 3), own.write(1, 7);
  CHECK(own.read(0) == all(3));
  CHECK(own.square(1, 0) == 0);
  CHECK(own.square(0, 1) == 0);
  CHECK(own.table->stream_wait(own.state, own.stream, &own.error) == 0);
  CHECK(own.read(0) == all(81));
  CHECK(own.read(1) == all(9));
}

TEST_CASE("own captures calls without running them, and launches them as often as asked") {
  Own own;
  own.write(0, 3), own.write(1, 7);
  CHECK(own.square(1, 0) == 0);  // loads the code
  own.write(1, 7);
  void* graph = nullptr;
  REQUIRE(own.table->capture_begin(own.state, own.stream, &own.error) == 0);
  CHECK(own.square(1, 0) == 0);
  CHECK(own.square(0, 1) == 0);
  REQUIRE(own.table->capture_end(own.state, own.stream, &graph, &own.error) == 0);
  CHECK(own.read(1) == all(7));
  for (int time = 0; time < 2; ++time)
    CHECK(own.table->graph_launch(own.state, graph, own.stream, &own.error) == 0);
  CHECK(own.read(1) == all(6561));  // 3, 9, 81, 6561
  own.table->graph_destroy(own.state, graph);
}

TEST_CASE("own's events stand in a stream, and time what is between them") {
  Own own;
  void *begin = nullptr, *end = nullptr;
  REQUIRE(own.table->event_create(own.state, &begin, &own.error) == 0);
  REQUIRE(own.table->event_create(own.state, &end, &own.error) == 0);
  own.write(0, 3);
  double seconds = -1;
  CHECK(own.table->event_record(own.state, begin, own.stream, &own.error) == 0);
  CHECK(own.square(1, 0) == 0);
  CHECK(own.table->event_record(own.state, end, own.stream, &own.error) == 0);
  CHECK(own.table->stream_wait_event(own.state, own.stream, end, &own.error) == 0);
  CHECK(own.table->event_seconds(own.state, begin, end, &seconds, &own.error) == 0);
  CHECK(seconds > 0);
  CHECK(seconds < 60);
  own.table->event_destroy(own.state, begin), own.table->event_destroy(own.state, end);
}

TEST_CASE("what fails in own is a code and a line") {
  Own own;
  void* block = &own;
  CHECK(own.table->allocate(own.state, size_t{1} << 60, &block, &own.error) != 0);
  CHECK(block == nullptr);
  CHECK(own.error.code > 0);
  CHECK(std::strlen(own.error.text) > 0);
  CHECK(std::string(own.error.text).find('\n') == std::string::npos);

  own.error = {};
  void* state = nullptr;
  CHECK(own.table->open(own.table->device_count(), &state, &own.error) != 0);
  CHECK(state == nullptr);
  CHECK(own.error.code > 0);
  CHECK(own.table->find(own.state, "no such operation") == -1);
  own.write(0, 2);
  CHECK(own.square(1, 0) == 0);  // it goes on
  CHECK(own.read(1) == all(4));
}
