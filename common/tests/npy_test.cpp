// read_npy() on files made byte by byte: what NumPy writes is read, everything else is refused with
// a line that names the file.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"

namespace {

// A file with this content, gone when the object goes.
class File {
 public:
  explicit File(const std::string& content)
      : path_((std::filesystem::temp_directory_path() /
               ("npy_test." + std::to_string(getpid()) + ".npy"))
                  .string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string length_of(std::size_t length, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(length >> (8 * i) & 0xFF);
  return text;
}

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         length_of(header.size(), version == 1 ? 2 : 4) + header + data;
}

std::string header(const std::string& type, const std::string& shape,
                   const std::string& order = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }   \n";
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string text(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(&text[0], values.data(), text.size());
  return text;
}

NpyArray read(const std::string& content) { return read_npy(File(content).path()); }

// What read_npy says about a bad file, less the file's name, which must be there.
std::string complaint(const std::string& content) {
  const File file(content);
  try {
    read_npy(file.path());
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    CHECK(text.rfind(file.path() + " ", 0) == 0);
    CHECK(text.find('\n') == std::string::npos);
    return text.substr(std::min(text.size(), file.path().size() + 1));
  }
  return "read without complaint";
}

using Shape = std::vector<std::size_t>;
using Values = std::vector<double>;

}  // namespace

TEST_CASE("npy: every element type is widened to double") {
  CHECK(read(npy(header("<f4", "(2,)"), bytes_of<float>({1.5f, -0.25f}))).values ==
        Values{1.5, -0.25});
  CHECK(read(npy(header("<f8", "(2,)"), bytes_of<double>({0.1, -1e300}))).values ==
        Values{0.1, -1e300});
  CHECK(read(npy(header("<i4", "(2,)"), bytes_of<std::int32_t>({-7, 2147483647}))).values ==
        Values{-7, 2147483647});
  CHECK(read(npy(header("<i8", "(1,)"), bytes_of<std::int64_t>({-(1ll << 40)}))).values ==
        Values{-1099511627776.0});
  CHECK(read(npy(header("|u1", "(2,)"), bytes_of<std::uint8_t>({0, 255}))).values ==
        Values{0, 255});
}

TEST_CASE("npy: shapes") {
  const std::string six = bytes_of<float>({0, 1, 2, 3, 4, 5});
  const NpyArray matrix = read(npy(header("<f4", "(2, 3)"), six));
  CHECK(matrix.shape == Shape{2, 3});
  CHECK(matrix.values == Values{0, 1, 2, 3, 4, 5});
  CHECK(matrix.size() == 6);
  CHECK(read(npy(header("<f4", "(1, 2, 3)"), six)).shape == Shape{1, 2, 3});
  CHECK(read(npy(header("<f4", "()"), bytes_of<float>({8}))).shape.empty());
  CHECK(read(npy(header("<f4", "()"), bytes_of<float>({8}))).values == Values{8});
  CHECK(read(npy(header("<f4", "(0,)"), "")).size() == 0);
  CHECK(read(npy(header("<f4", "(3, 0)"), "")).shape == Shape{3, 0});
}

TEST_CASE("npy: format versions 1 to 3") {
  for (const int version : {1, 2, 3}) {
    CAPTURE(version);
    CHECK(read(npy(header("<f4", "(1,)"), bytes_of<float>({4}), version)).values == Values{4});
  }
  CHECK(contains_text(complaint(npy(header("<f4", "(1,)"), bytes_of<float>({4}), 4)), "version 4"));
}

TEST_CASE("npy: truncated at every byte") {
  for (const int version : {1, 2}) {
    const std::string whole = npy(header("<f8", "(3,)"), bytes_of<double>({1, 2, 3}), version);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(version, length);
      REQUIRE(contains_text(complaint(whole.substr(0, length)), "truncated"));
    }
    CHECK(read(whole).values == Values{1, 2, 3});
    CHECK(contains_text(complaint(whole + "x"), "left over"));
  }
}

TEST_CASE("npy: what can't be read is named") {
  const std::string four = bytes_of<float>({4});
  CHECK(contains_text(complaint("PK\x03\x04 this is no array"), "not a .npy file"));
  CHECK(contains_text(complaint(npy(header("<f2", "(1,)"), "xx")), "'<f2'"));
  CHECK(contains_text(complaint(npy(header(">f4", "(1,)"), four)), "'>f4'"));
  CHECK(contains_text(complaint(npy(header("|O", "(1,)"), four)), "'|O'"));
  CHECK(contains_text(complaint(npy(header("<\n\x1b[2J", "(1,)"), four)), R"('<\x0a\x1b[2J')"));
  CHECK(contains_text(complaint(npy(header("<f4", "(1, 1)", "True"), four)), "Fortran order"));
  CHECK(contains_text(complaint(npy("{}", four)), "'descr'"));
  CHECK(contains_text(complaint(npy("{'descr': '<f4', 'fortran_order': False}", four)), "'shape'"));
  CHECK(contains_text(complaint(npy("{'descr': '<f4', 'shape': (1,)}", four)), "'fortran_order'"));
  CHECK(contains_text(complaint(npy(header("<f4", "(-1,)"), four)), "shape"));
  CHECK(contains_text(complaint(npy(header("<f4", "(1,"), four)), "shape"));
  CHECK(contains_text(complaint(npy(header("<f4", "7"), four)), "shape"));
}

TEST_CASE("npy: sizes that no file can have") {
  // Neither may be believed and allocated: 4 GiB of header, 2^62 and 2^128 elements.
  CHECK(contains_text(complaint("\x93NUMPY" + std::string("\x02\0", 2) + "\xff\xff\xff\xff" + "{}"),
                      "truncated"));
  CHECK(contains_text(complaint(npy(header("<f4", "(4611686018427387904,)"), "")), "too large"));
  CHECK(
      contains_text(complaint(npy(header("<f4", "(9223372036854775807, 9223372036854775807)"), "")),
                    "too large"));
  CHECK(
      contains_text(complaint(npy(header("<f4", "(99999999999999999999999,)"), "")), "too large"));
  CHECK(contains_text(complaint(npy(header("|u1", "(18446744073709551616, 0)"), "")), "too large"));
  CHECK(contains_text(complaint(npy(header("<f4", "(1000000000000,)"), "")), "truncated"));
}

TEST_CASE("npy: no file, and a folder instead of one") {
  CHECK_THROWS_AS(read_npy("/no/such/file.npy"), std::runtime_error);
  CHECK_THROWS_AS(read_npy(std::filesystem::temp_directory_path().string()), std::runtime_error);
}

TEST_CASE("npy: reference_path says what to do without the references") {
  const char* folder = std::getenv("COURSE_REFERENCES");
  const std::string before = folder == nullptr ? "" : folder;
  unsetenv("COURSE_REFERENCES");
  CHECK_THROWS_AS(reference_path("a.npy"), std::runtime_error);
  setenv("COURSE_REFERENCES", "somewhere", 1);
  CHECK(reference_path("a.npy") == "somewhere/a.npy");
  if (folder == nullptr)
    unsetenv("COURSE_REFERENCES");
  else
    setenv("COURSE_REFERENCES", before.c_str(), 1);
}

TEST_CASE("npy: what NumPy wrote", "[numpy]") {
  const NpyArray a = read_npy(reference_path("vector_add_a.npy"));
  const NpyArray b = read_npy(reference_path("vector_add_b.npy"));
  const NpyArray sum = read_npy(reference_path("vector_add_sum.npy"));
  REQUIRE(a.shape == Shape{1003});
  REQUIRE(b.shape == a.shape);
  REQUIRE(sum.shape == a.shape);
  for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(sum.values[i] == a.values[i] + b.values[i]);
  const NpyArray alpha = read_npy(reference_path("axpy_alpha.npy"));
  CHECK(alpha.shape.empty());
  CHECK(alpha.values == Values{static_cast<double>(-1.7f)});
  CHECK(alpha.floats() == std::vector<float>{-1.7f});
}
