// mnist::read(): a folder with four files, some of which may be missing. In an input they stand one
// behind the other with the line "----" between them; one that begins with gzip's bytes is named
// .gz.
#include "stage5_training/08_train_mnist/mnist_data.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/fuzz/idx.h"

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
  static const fuzz::Folder folder;
  const std::string mnist = folder.file("mnist"), border = "----\n";
  std::filesystem::create_directory(mnist);

  static std::string there[std::size(mnist::kFiles)];
  const std::string bytes = fuzz::text_of(data, size);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < std::size(mnist::kFiles); ++i) {
    const std::size_t end = std::min(bytes.find(border, begin), bytes.size());
    const std::string file = bytes.substr(std::min(begin, end), end - std::min(begin, end));
    begin = end + border.size();
    if (file == there[i]) continue;  // as the last input had it
    const std::string path = mnist + "/" + mnist::kFiles[i];
    std::remove(path.c_str());
    std::remove((path + ".gz").c_str());
    if (!file.empty())
      std::ofstream(fuzz::is_gzip(file) ? path + ".gz" : path, std::ios::binary) << file;
    there[i] = file;
  }

  const auto digits =
      fuzz::read_or_refused(folder.path(), [&] { return mnist::read(folder.path()); });
  if (digits) check(digits->train), check(digits->test);
  return 0;
}
