// safetensors::parse_tensors() and read(), bytes_of() and write(): a file that was read and is
// written again is the same.
#include "common/safetensors.h"

#include <cstring>

#include "common/input_file.h"
#include "tests/fuzz/fuzz.h"

namespace {

void expect_same(const safetensors::File& got, const safetensors::File& want) {
  fuzz::expect(got.metadata == want.metadata, "the metadata comes back");
  fuzz::expect(got.tensors.size() == want.tensors.size(), "all tensors come back");
  for (const safetensors::Tensor& tensor : want.tensors) {
    const safetensors::Tensor* found = got.find(tensor.name);
    fuzz::expect(found != nullptr && found->shape == tensor.shape, "each shape comes back");
    fuzz::expect(found->values.size() == tensor.values.size(), "all values come back");
    fuzz::expect(found->integers == tensor.integers, "all integers come back");
    fuzz::expect(tensor.values.empty() || std::memcmp(found->values.data(), tensor.values.data(),
                                                      tensor.values.size() * sizeof(float)) == 0,
                 "the values come back bit for bit");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::bytes_of(data, size);
  constexpr auto kTypes = safetensors::Types::f32_and_i64;
  const auto parse = [](const std::string& path, std::string_view all) {
    return safetensors::parse_tensors(path, all, kTypes);
  };
  const auto read = [](const std::string& path) { return safetensors::read(path, kTypes); };
  const auto file = fuzz::parsed(bytes, parse, read, safetensors::bytes_of);
  if (!file) return 0;

  for (const safetensors::Tensor& tensor : file->tensors) {
    std::size_t count = 1;
    for (const std::size_t extent : tensor.shape) count *= extent;
    fuzz::expect((tensor.is_integer ? tensor.integers.size() : tensor.values.size()) == count,
                 "there are as many values as the shape says");
    fuzz::expect(file->find(tensor.name) == &tensor, "each name is there once");
  }
  const std::string again = safetensors::bytes_of(*file);
  expect_same(safetensors::parse_tensors(fuzz::kName, again, kTypes), *file);
  if (!fuzz::is_chosen(bytes)) return 0;
  static const fuzz::Folder folder;
  const std::string path = folder.file("again");
  safetensors::write(path, *file);
  fuzz::expect(input_file::read(path) == again, "the file is those bytes");
  return 0;
}
