#include "common/npy.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>

#include "common/input_file.h"
#include "common/printable.h"
#include "common/sizes.h"

namespace {

// The bytes of a file, taken apart from front to back. Every error names the file.
class Reader {
 public:
  Reader(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(path_ + " " + what);
  }

  // The next `count` bytes.
  const char* take(std::size_t count) {
    if (count > left())
      fail("is truncated: " + std::to_string(count) + " bytes are due at byte " +
           std::to_string(position_) + ", " + std::to_string(left()) + " are there");
    position_ += count;
    return bytes_.data() + position_ - count;
  }
  std::size_t left() const { return bytes_.size() - position_; }

 private:
  const std::string& path_;
  std::string_view bytes_;
  std::size_t position_ = 0;
};

std::size_t little_endian(const char* bytes, std::size_t count) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < count; ++i)
    value |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

// What stands behind 'key': in the header, a Python dictionary on one line, to the end of that
// line.
std::string value_of(const Reader& file, const std::string& header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "'");
  const std::size_t colon = at == std::string::npos ? at : header.find(':', at);
  const std::size_t begin =
      colon == std::string::npos ? colon : header.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) file.fail("has no '" + key + "' in its header");
  return header.substr(begin);
}

// Reads "(3, 4)", "(3,)" or "()".
std::vector<std::size_t> parse_shape(const Reader& file, const std::string& text) {
  std::vector<std::size_t> shape;
  const std::size_t end = text.find(')');
  if (text[0] != '(' || end == std::string::npos) file.fail("has no shape in its header");
  std::size_t at = 1;
  while ((at = text.find_first_not_of(" ,", at)) < end) {
    if (text[at] < '0' || text[at] > '9') file.fail("has a shape that is not made of numbers");
    errno = 0;
    char* stop = nullptr;
    shape.push_back(std::strtoull(text.c_str() + at, &stop, 10));
    if (errno != 0) file.fail("has a shape that is too large");
    at = static_cast<std::size_t>(stop - text.c_str());
  }
  return shape;
}

template <class T>
void widen(const char* bytes, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

struct Type {
  const char* name;  // as NumPy writes it; '<' is little-endian, as is every machine we run on
  std::size_t size;
  void (*widen)(const char* bytes, std::vector<double>& values);
};

constexpr Type kTypes[] = {{"<f4", 4, widen<float>},
                           {"<f8", 8, widen<double>},
                           {"<i4", 4, widen<std::int32_t>},
                           {"<i8", 8, widen<std::int64_t>},
                           {"|u1", 1, widen<std::uint8_t>}};

const Type& find_type(const Reader& file, const std::string& descr) {
  const std::string name = descr.substr(0, descr.find('\'', 1)).substr(1);
  for (const Type& type : kTypes)
    if (name == type.name) return type;
  file.fail("holds elements of type '" + printable(name.substr(0, 20)) +
            "'; float32, float64, int32, int64 and uint8 can be read");
}

}  // namespace

NpyArray read_npy(const std::string& path) { return parse_npy(path, input_file::read(path)); }

NpyArray parse_npy(const std::string& path, std::string_view bytes) {
  Reader file(path, bytes);
  if (std::memcmp(file.take(6), "\x93NUMPY", 6) != 0) file.fail("is not a .npy file");
  const int version = file.take(2)[0];
  if (version < 1 || version > 3)
    file.fail("has .npy version " + std::to_string(version) + "; 1 to 3 can be read");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t header_length = little_endian(file.take(length_bytes), length_bytes);
  const std::string header(file.take(header_length), header_length);

  const Type type = find_type(file, value_of(file, header, "descr"));
  if (value_of(file, header, "fortran_order").rfind("False", 0) != 0)
    file.fail("is in Fortran order; save it with numpy.ascontiguousarray");

  NpyArray array;
  array.shape = parse_shape(file, value_of(file, header, "shape"));
  const std::optional<std::size_t> count =
      sizes::product(array.shape, std::numeric_limits<std::size_t>::max() / type.size);
  if (!count) file.fail("has a shape that is too large");
  const char* elements = file.take(*count * type.size);
  if (file.left() != 0) file.fail("has bytes left over behind its array");
  array.values.resize(*count);
  type.widen(elements, array.values);
  return array;
}

std::string reference_path(const std::string& name) {
  const char* folder = std::getenv("COURSE_REFERENCES");
  if (folder == nullptr || *folder == '\0')
    throw std::runtime_error(
        "COURSE_REFERENCES is not set: run the tests with ctest, or point it at the folder that "
        "scripts/references/make_references.py has filled");
  return std::string(folder) + "/" + name;
}
