// The data of step 5.8: MNIST's handwritten digits from their files, or digits that are drawn here
// where there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mnist {

inline constexpr std::size_t kSide = 28, kPixels = kSide * kSide;
inline constexpr unsigned kClasses = 10;

// Grey images, 0 for the paper and 255 for the ink, and what digit each shows.
struct Digits {
  std::vector<std::uint8_t> pixels;  // (count, kSide, kSide)
  std::vector<std::uint8_t> labels;  // (count), 0 to 9
  std::size_t count() const { return labels.size(); }
};

struct DataSet {
  Digits train, test;
};

// ---- MNIST's files ----------------------------------------------------------------------------

inline constexpr const char* kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// Which of the four files (train- and t10k-, images and labels) are neither there as .gz nor
// plain in folder/mnist.
std::vector<std::string> missing_files(const std::string& folder);

// Reads them. Throws std::runtime_error with one line where a file is missing or damaged, where the
// images are not 28 x 28, or where there are more of them than labels, or fewer.
DataSet read(const std::string& folder);

// A file's bytes, and its path for the messages.
struct File {
  std::string path, bytes;
};
// The digits in a file of images and one of labels; throws as read() does.
Digits parse(const File& images, const File& labels);

// ---- Drawn digits -----------------------------------------------------------------------------

// `count` digits of a few strokes each, at random places, of random sizes and slants: digit number
// i of a seed is always the same.
Digits draw(std::size_t count, std::uint64_t seed);

}  // namespace mnist
