// parse_npy(), read_npy(): an array that was read and is written again, as doubles, is the same.
#include "common/npy.h"

#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace {

// The file that NumPy writes for such an array, of version 2. One without elements is of bytes:
// beside a 0 the smallest type has the largest extents.
std::string to_file(const NpyArray& array) {
  const std::string type = array.size() == 0 ? "|u1" : "<f8";
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (";
  for (const std::size_t extent : array.shape) header += std::to_string(extent) + ",";
  header += ")}\n";
  std::string file("\x93NUMPY\2\0", 8);
  for (const unsigned shift : {0u, 8u, 16u, 24u})
    file += static_cast<char>(header.size() >> shift & 255);
  const char* values = reinterpret_cast<const char*>(array.values.data());
  return file + header + std::string(values, array.size() * sizeof(double));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto array = fuzz::parsed(fuzz::bytes_of(data, size), parse_npy, read_npy, to_file);
  if (!array) return 0;

  std::size_t count = 1;
  for (const std::size_t extent : array->shape) count *= extent;
  fuzz::expect(array->size() == count, "there are as many values as the shape says");
  fuzz::expect(count <= size, "each value is in the file");
  const NpyArray again = parse_npy(fuzz::kName, to_file(*array));
  fuzz::expect(again.shape == array->shape, "the shape comes back");
  fuzz::expect(count == 0 || std::memcmp(again.values.data(), array->values.data(),
                                         count * sizeof(double)) == 0,
               "the values come back bit for bit");
  return 0;
}
