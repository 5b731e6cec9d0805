// The digits that are drawn, and the reader of MNIST's files.
#include "stage5_training/08_train_mnist/mnist_data.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"

namespace {

namespace fs = std::filesystem;
using mnist::kClasses;
using mnist::kPixels;
using tests::big_endian;
using tests::Folder;
using tests::write_file;

}  // namespace

TEST_CASE("the drawn digits are the same in any number, and unlike each other", "[harness]") {
  const mnist::Digits few = mnist::draw(20, 1), many = mnist::draw(200, 1),
                      other = mnist::draw(20, 2);
  REQUIRE(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin()));
  REQUIRE(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin()));
  REQUIRE(few.pixels != other.pixels);
  std::vector<int> counts(kClasses);
  for (const std::uint8_t label : many.labels) ++counts.at(label);
  for (const int count : counts) REQUIRE(count > 5);
  for (size_t i = 0; i < many.count(); ++i) {
    const auto image = many.pixels.begin() + static_cast<std::ptrdiff_t>(i * kPixels);
    const auto ink = std::count_if(image, image + kPixels, [](std::uint8_t p) { return p > 127; });
    REQUIRE((ink > 15 && ink < 300));
  }
}

TEST_CASE("MNIST's files: all there, some missing, not belonging together", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  REQUIRE(mnist::missing_files(data).size() == 4);
  const mnist::Digits train = mnist::draw(12, 1), test = mnist::draw(5, 2);
  tests::write_digits(data, "train", train.pixels, train.labels);
  REQUIRE(mnist::missing_files(data).size() == 2);
  try {
    mnist::read(data);
    FAIL("files are missing");
  } catch (const std::runtime_error& error) {
    REQUIRE(contains_text(error.what(), "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz"));
    REQUIRE(contains_text(error.what(), "scripts/data.py"));
  }
  tests::write_digits(data, "t10k", test.pixels, test.labels);
  REQUIRE(mnist::missing_files(data).empty());
  const mnist::DataSet read = mnist::read(data);
  REQUIRE((read.train.pixels == train.pixels && read.train.labels == train.labels));
  REQUIRE((read.test.pixels == test.pixels && read.test.labels == test.labels));

  write_file(data + "/mnist/t10k-labels-idx1-ubyte",
             big_endian(0x801) + big_endian(4) + "\1\2\3\4");
  try {
    mnist::read(data);
    FAIL("5 images have 4 labels");
  } catch (const std::runtime_error& error) {
    REQUIRE(contains_text(error.what(), "has 5 images, but"));
    REQUIRE(contains_text(error.what(), "has 4 labels"));
  }
  write_file(
      data + "/mnist/t10k-images-idx3-ubyte",
      big_endian(0x803) + big_endian(4) + big_endian(2) + big_endian(3) + std::string(24, 'x'));
  REQUIRE_THROWS_AS(mnist::read(data), std::runtime_error);
}
