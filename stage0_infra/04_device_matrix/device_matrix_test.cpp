// DeviceBuffer, Matrix and every way to fill it.
#include "stage0_infra/04_device_matrix/device_matrix.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage0_infra/04_device_matrix/reference.h"

using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

std::vector<std::uint32_t> random_bits(size_t n) {
  std::vector<std::uint32_t> values(n);
  std::uint32_t state = 12345;
  for (auto& value : values) value = state = state * 1664525u + 1013904223u;
  return values;
}

constexpr size_t kHuge = std::numeric_limits<size_t>::max();

// The error code that `work` throws; hipSuccess if it throws none.
template <class Function>
int error_code(Function&& work) {
  try {
    work();
  } catch (const gpu::Error& error) {
    return error.code;
  }
  return hipSuccess;
}

}  // namespace

TEST_CASE("a buffer carries every bit there and back") {
  for (const size_t n : {1, 2, 31, 63, 255, 257, 4099, 1000003}) {
    CAPTURE(n);
    const auto host = random_bits(n);
    const DeviceBuffer<std::uint32_t> buffer(host);
    REQUIRE(buffer.size() == n);
    REQUIRE(buffer.bytes() == 4 * n);
    REQUIRE(buffer.to_host() == host);
  }
}

TEST_CASE("elements of any plain type") {
  struct Triple {
    double value;
    char letter;
    short number;
  };
  const DeviceBuffer<Triple> triples(std::vector<Triple>{{1.5, 'a', 3}, {-2.5, 'b', -4}});
  const auto back = triples.to_host();
  REQUIRE(back.size() == 2);
  REQUIRE(back[1].value == -2.5);
  REQUIRE(back[1].letter == 'b');
  REQUIRE(back[1].number == -4);
  const std::vector<unsigned char> bytes{1, 2, 3};
  REQUIRE(DeviceBuffer<unsigned char>(bytes).to_host() == bytes);
}

TEST_CASE("a buffer of size 0 holds nothing and copies nothing") {
  DeviceBuffer<float> none(size_t{0});
  REQUIRE(none.data() == nullptr);
  REQUIRE(none.size() == 0);
  REQUIRE(none.to_host().empty());
  none.poison();
  none.to_device(nullptr, 0);
  REQUIRE(DeviceBuffer<float>(std::vector<float>{}).data() == nullptr);
  REQUIRE(DeviceBuffer<float>().data() == nullptr);
}

TEST_CASE("part of a buffer can be overwritten, more than all of it can't") {
  DeviceBuffer<int> buffer(std::vector<int>{1, 2, 3, 4});
  const int values[] = {7, 8, 9, 10, 11};
  buffer.to_device(values, 2);
  REQUIRE(buffer.to_host() == std::vector<int>{7, 8, 3, 4});
  REQUIRE_THROWS_AS(buffer.to_device(values, 5), std::out_of_range);
  REQUIRE(buffer.to_host() == std::vector<int>{7, 8, 3, 4});
}

TEST_CASE("poison marks every element as unwritten") {
  DeviceBuffer<float> buffer(std::vector<float>(1000, 1.0f));
  buffer.poison();
  for (const float value : buffer.to_host()) REQUIRE(is_poison(value));
}

TEST_CASE("a buffer can be moved, never copied") {
  static_assert(!std::is_copy_constructible_v<DeviceBuffer<int>>);
  static_assert(!std::is_copy_assignable_v<DeviceBuffer<int>>);
  static_assert(std::is_nothrow_move_constructible_v<DeviceBuffer<int>>);
  static_assert(std::is_nothrow_move_assignable_v<DeviceBuffer<int>>);

  DeviceBuffer<int> first(std::vector<int>{1, 2, 3});
  const int* address = first.data();
  DeviceBuffer<int> second(std::move(first));
  REQUIRE(second.data() == address);
  REQUIRE(first.data() == nullptr);
  REQUIRE(first.size() == 0);

  DeviceBuffer<int> third(std::vector<int>{9});
  third = std::move(second);
  REQUIRE(third.data() == address);
  REQUIRE(third.to_host() == std::vector<int>{1, 2, 3});
  REQUIRE(second.data() == nullptr);

  DeviceBuffer<int>& itself = third;
  third = std::move(itself);
  REQUIRE(third.to_host() == std::vector<int>{1, 2, 3});
}

TEST_CASE("destroyed buffers give their memory back") {
  // The CPU backend looks for leaks itself when the process ends; its free memory is the machine's.
  if (gpu::kBackend == std::string("cpu")) return;
  constexpr size_t kBytes = size_t{64} << 20, kBuffers = 8;
  size_t before = 0, after = 0, total = 0;
  { const DeviceBuffer<char> first_use(kBytes); }
  HIP_CHECK(hipMemGetInfo(&before, &total));
  for (size_t i = 0; i < kBuffers; ++i) DeviceBuffer<char>{kBytes};
  HIP_CHECK(hipMemGetInfo(&after, &total));
  REQUIRE(after + kBytes > before);
}

TEST_CASE("what can't be allocated is out of memory, and the next call works") {
  REQUIRE(error_code([] { DeviceBuffer<float> huge(kHuge / 4); }) == hipErrorOutOfMemory);
  REQUIRE(error_code([] { DeviceBuffer<float> wraps(kHuge / 4 + 2); }) == hipErrorOutOfMemory);
  REQUIRE(error_code([] { DeviceBuffer<char> tera(size_t{1} << 50); }) == hipErrorOutOfMemory);
  REQUIRE(error_code([] { Matrix<float> wraps(size_t{1} << 33, size_t{1} << 33); }) ==
          hipErrorOutOfMemory);
  REQUIRE(hipGetLastError() == hipSuccess);
  Matrix<float> matrix(3, 3);
  matrix.fill(1);  // a launch that an error left unread would make fail
  REQUIRE(matrix.to_host() == std::vector<float>(9, 1.0f));
}

TEST_CASE("every fill writes all of the matrix and nothing else") {
  const size_t shapes[][2] = {{0, 0},    {0, 5},      {5, 0},      {1, 1},
                              {4, 4},    {1, 100003}, {100003, 1}, {17, 33},
                              {65, 129}, {1023, 257}, {262147, 3}};
  for (const auto& version : device_matrix::kVersions)
    for (const auto& [rows, cols] : shapes) {
      CAPTURE(version.name, rows, cols);
      Guarded<float> out(rows * cols, 3);
      version.launch(out.data(), rows, cols, 3.14f, nullptr);
      HIP_CHECK(hipDeviceSynchronize());
      REQUIRE_OK(device_matrix::compare_fill(out.to_host(), 3.14f));
      REQUIRE(out.intact());
    }
}

TEST_CASE("fill works for every element type") {
  Matrix<int> ints(5, 7);
  ints.fill(-3);
  REQUIRE(ints.to_host() == std::vector<int>(35, -3));
  Matrix<double> doubles(2, 9);
  doubles.fill(3.14);
  REQUIRE(doubles.to_host() == std::vector<double>(18, 3.14));
  Matrix<unsigned> words(3, 3);
  words.fill(0xFFFFFFFFu);
  REQUIRE(words.to_host() == std::vector<unsigned>(9, 0xFFFFFFFFu));
  DeviceBuffer<double> buffer(15);
  device_matrix::launch_fill_2d(buffer.data(), 3, 5, -0.1);
  REQUIRE(buffer.to_host() == std::vector<double>(15, -0.1));
}

TEST_CASE("the checks refuse zeros, a forgotten element, swapped ones and one wrong bit") {
  constexpr float kValue = 3.14f;
  const std::vector<float> filled(20, kValue);
  REQUIRE(device_matrix::compare_fill(filled, kValue).ok);
  REQUIRE_FALSE(device_matrix::compare_fill(std::vector<float>(20, 0.0f), kValue).ok);
  auto forgotten = filled;
  std::memset(&forgotten[19], 0xFF, sizeof(float));
  REQUIRE(device_matrix::compare_fill(forgotten, kValue).unwritten == 1);
  REQUIRE_FALSE(device_matrix::compare_fill(forgotten, kValue).ok);

  std::vector<float> sent(20);
  const auto bits = random_bits(20);
  std::memcpy(sent.data(), bits.data(), sizeof(float) * 20);
  sent[3] = std::numeric_limits<float>::quiet_NaN();
  REQUIRE(device_matrix::compare_bits(sent, sent).ok);
  REQUIRE_FALSE(device_matrix::compare_bits(std::vector<float>(20), sent).ok);
  auto swapped = sent;
  std::swap(swapped[4], swapped[5]);
  REQUIRE_FALSE(device_matrix::compare_bits(swapped, sent).ok);
  auto other_nan = sent;
  std::uint32_t nan_bits = 0;
  std::memcpy(&nan_bits, &other_nan[3], sizeof nan_bits);
  nan_bits ^= 1;
  std::memcpy(&other_nan[3], &nan_bits, sizeof nan_bits);
  REQUIRE_FALSE(device_matrix::compare_bits(other_nan, sent).ok);
}

TEST_CASE("a matrix is row-major and keeps its shape when moved") {
  Matrix<int> matrix(2, 3, {1, 2, 3, 4, 5, 6});
  REQUIRE(matrix.rows() == 2);
  REQUIRE(matrix.cols() == 3);
  REQUIRE(matrix.bytes() == 24);
  Matrix<int> moved(std::move(matrix));
  REQUIRE(matrix.rows() == 0);
  REQUIRE(matrix.cols() == 0);
  REQUIRE(matrix.size() == 0);
  REQUIRE(moved.rows() == 2);
  REQUIRE(moved.to_host() == std::vector<int>{1, 2, 3, 4, 5, 6});
  REQUIRE(to_string(moved) ==
          "         1         2         3\n"
          "         4         5         6\n");
  static_assert(!std::is_copy_constructible_v<Matrix<int>>);
}

TEST_CASE("the wrong number of values does not fit a matrix") {
  REQUIRE_THROWS_AS((Matrix<int>(2, 3, {1, 2, 3})), std::invalid_argument);
  Matrix<int> matrix(2, 2);
  REQUIRE_THROWS_AS(matrix.to_device({1, 2, 3, 4, 5}), std::invalid_argument);
}

TEST_CASE("a large matrix prints its corner, an empty one nothing") {
  Matrix<float> large(3, 100);
  large.fill(0.5f);
  const std::string text = to_string(large, 2);
  REQUIRE(text ==
          "       0.5       0.5  ...\n"
          "       0.5       0.5  ...\n"
          "       ...\n");
  REQUIRE(to_string(Matrix<float>(0, 3)).empty());
}
