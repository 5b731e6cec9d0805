// Arrays with memory of their own, and arrays that are parts of a block.
#include "common/device_parts.h"

#include <cstdint>

#include "common/testing.h"

namespace {

struct Workspace {
  Workspace(size_t doubles, size_t floats, gpu::DeviceParts* parts = nullptr)
      : wide(gpu::take<double>(parts, doubles)), narrow(gpu::take<float>(parts, floats)) {}
  gpu::DeviceArray<double> wide;
  gpu::DeviceArray<float> narrow;
};

size_t bytes_of(size_t doubles, size_t floats) {
  gpu::DeviceParts counted;
  const Workspace none(doubles, floats, &counted);
  REQUIRE(none.wide.data() == nullptr);
  REQUIRE(none.narrow.data() == nullptr);
  REQUIRE(none.wide.size() == doubles);
  REQUIRE(none.narrow.size() == floats);
  return counted.bytes();
}

}  // namespace

TEST_CASE("what is counted ends with the last part, and each part begins at a line") {
  CHECK(bytes_of(0, 0) == 0);
  CHECK(bytes_of(0, 3) == 12);
  CHECK(bytes_of(3, 0) == 24);
  CHECK(bytes_of(3, 3) == 128 + 12);
  CHECK(bytes_of(16, 1) == 128 + 4);
  CHECK(bytes_of(17, 1) == 256 + 4);
}

TEST_CASE("parts lie in the block in the order in which they are taken") {
  const size_t bytes = bytes_of(17, 5);
  gpu::DeviceBuffer<char> block(bytes);
  gpu::DeviceParts parts(block.data());
  Workspace workspace(17, 5, &parts);
  CHECK(parts.bytes() == bytes);
  CHECK(static_cast<void*>(workspace.wide.data()) == block.data());
  CHECK(static_cast<void*>(workspace.narrow.data()) == block.data() + 256);
  CHECK(workspace.wide.size() == 17);
  CHECK(workspace.narrow.size() == 5);

  const Workspace moved = std::move(workspace);
  CHECK(static_cast<const void*>(moved.narrow.data()) == block.data() + 256);
  CHECK(moved.narrow.size() == 5);
}

TEST_CASE("a part of nothing is nowhere, and takes nothing") {
  gpu::DeviceBuffer<char> block(256);
  gpu::DeviceParts parts(block.data());
  CHECK(parts.take<float>(1).data() != nullptr);
  CHECK(parts.take<float>(0).data() == nullptr);
  CHECK(parts.bytes() == 4);
  CHECK(static_cast<void*>(parts.take<float>(1).data()) == block.data() + 128);
}

TEST_CASE("without parts the memory is the array's own") {
  Workspace workspace(2, 5);
  CHECK(workspace.wide.data() != nullptr);
  CHECK(workspace.narrow.size() == 5);
  float* const before = workspace.narrow.data();
  const Workspace moved = std::move(workspace);
  CHECK(moved.narrow.data() == before);

  gpu::DeviceArray<float> array = gpu::DeviceBuffer<float>(3);
  CHECK(array.size() == 3);
  array = gpu::DeviceBuffer<float>(4);  // frees what it had
  CHECK(array.size() == 4);
  const gpu::DeviceArray<float> none;
  CHECK(none.size() == 0);
  CHECK(none.data() == nullptr);
  CHECK(none.to_host().empty());
}

TEST_CASE("a block stays when its parts go") {
  gpu::DeviceBuffer<float> block(std::vector<float>{1, 2, 3});
  {
    const gpu::DeviceArray<float> part(block.data() + 1, 2);
    CHECK(part.to_host() == std::vector<float>{2, 3});
  }
  CHECK(block.to_host() == std::vector<float>{1, 2, 3});
}
