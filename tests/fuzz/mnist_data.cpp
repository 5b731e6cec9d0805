// mnist::parse(): two files of images and two of labels. In an input they stand one behind the
// other with the line "----" between them; what is missing at its end is empty.
#include "stage5_training/08_train_mnist/mnist_data.h"

#include <algorithm>
#include <iterator>

#include "tests/fuzz/fuzz.h"

namespace {

void check(const mnist::Digits& digits) {
  fuzz::expect(digits.count() > 0, "there are digits");
  fuzz::expect(digits.pixels.size() == digits.count() * mnist::kPixels,
               "there are as many images as labels");
  fuzz::expect(std::all_of(digits.labels.begin(), digits.labels.end(),
                           [](auto label) { return label < mnist::kClasses; }),
               "each label is a digit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kBorder = "----\n";
  const std::string_view bytes = fuzz::bytes_of(data, size);
  mnist::File files[std::size(mnist::kFiles)];
  std::size_t begin = 0;
  for (std::size_t i = 0; i < std::size(mnist::kFiles); ++i) {
    const std::size_t end = std::min(bytes.find(kBorder, begin), size);
    files[i] = {fuzz::kName + "/" + mnist::kFiles[i],
                std::string(bytes.substr(std::min(begin, size), end - std::min(begin, end)))};
    begin = end + kBorder.size();
  }
  for (std::size_t i = 0; i < std::size(mnist::kFiles); i += 2) {
    const auto digits =
        fuzz::read_or_refused(fuzz::kName, [&] { return mnist::parse(files[i], files[i + 1]); });
    if (digits) check(*digits);
  }
  return 0;
}
