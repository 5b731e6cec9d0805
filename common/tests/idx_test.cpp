// The reader of IDX files: what it reads, packed and plain, and that nothing damaged gets through.
#include "common/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"

namespace {

// A file of a folder of its own, gone at the end.
class File {
 public:
  explicit File(const std::string& bytes) { std::ofstream(path(), std::ios::binary) << bytes; }
  ~File() { std::filesystem::remove(path()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path() const {
    return (std::filesystem::temp_directory_path() /
            ("idx_test_" + std::to_string(getpid()) + ".bin"))
        .string();
  }
};

std::string number(unsigned value) {
  std::string bytes;
  for (const unsigned shift : {24u, 16u, 8u, 0u}) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string content(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * 37 % 251);
  return bytes;
}

std::string images(unsigned count, unsigned rows, unsigned cols, const std::string& pixels) {
  return number(0x00000803) + number(count) + number(rows) + number(cols) + pixels;
}
std::string labels(const std::string& values) {
  return number(0x00000801) + number(static_cast<unsigned>(values.size())) + values;
}

std::string pack(const std::string& bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

IdxImages read_images(const std::string& bytes) { return read_idx_images(File(bytes).path()); }
std::vector<std::uint8_t> read_labels(const std::string& bytes) {
  return read_idx_labels(File(bytes).path(), 10);
}

// What the reader says of a file; one line that names it.
template <class Read>
std::string complaint(Read read, const std::string& bytes) {
  const File file(bytes);
  try {
    read(file.path());
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    CHECK(contains_text(text, file.path()));
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "";
}
std::string complaint_of_images(const std::string& bytes) {
  return complaint([](const std::string& path) { read_idx_images(path); }, bytes);
}
std::string complaint_of_labels(const std::string& bytes) {
  return complaint([](const std::string& path) { read_idx_labels(path, 10); }, bytes);
}

}  // namespace

TEST_CASE("idx: images and labels, packed and plain") {
  const std::string pixels = content(3 * 4 * 5), file = images(3, 4, 5, pixels);
  for (const std::string& bytes : {file, pack(file)}) {
    const IdxImages got = read_images(bytes);
    CHECK(got.count == 3);
    CHECK(got.rows == 4);
    CHECK(got.cols == 5);
    CHECK(got.pixels_per_image() == 20);
    CHECK(std::string(got.pixels.begin(), got.pixels.end()) == pixels);
  }
  const std::string values("\0\1\5\11", 4);
  for (const std::string& bytes : {labels(values), pack(labels(values))})
    CHECK(read_labels(bytes) == std::vector<std::uint8_t>{0, 1, 5, 9});
}

TEST_CASE("idx: more than one piece of a file") {
  const std::string pixels = content(300 * 28 * 28), file = images(300, 28, 28, pixels);
  for (const std::string& bytes : {file, pack(file)}) {
    const IdxImages got = read_images(bytes);
    CHECK(std::string(got.pixels.begin(), got.pixels.end()) == pixels);
  }
  CHECK(contains_text(complaint_of_images(file.substr(0, file.size() - 1)), "truncated"));
  CHECK(contains_text(complaint_of_images(file + "x"), "left over"));
}

TEST_CASE("idx: truncated at every byte") {
  const std::string plain_images = images(3, 4, 5, content(60)), plain_labels = labels("\1\2\3");
  for (const std::string& whole : {plain_images, pack(plain_images)})
    for (size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(length, whole.size());
      REQUIRE(contains_text(complaint_of_images(whole.substr(0, length)), "truncated"));
    }
  for (const std::string& whole : {plain_labels, pack(plain_labels)})
    for (size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(length, whole.size());
      REQUIRE(contains_text(complaint_of_labels(whole.substr(0, length)), "truncated"));
    }
}

TEST_CASE("idx: every flipped bit is refused, or changes nothing but a pixel") {
  const std::string pixels = content(60), plain = images(3, 4, 5, pixels);
  constexpr size_t kHeader = 16;
  for (const bool packed : {false, true}) {
    const std::string whole = packed ? pack(plain) : plain;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      CAPTURE(packed, bit);
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      const File file(damaged);
      try {
        const IdxImages got = read_idx_images(file.path());
        const std::string read(got.pixels.begin(), got.pixels.end());
        REQUIRE(got.count * got.rows * got.cols == 60);
        // gzip has a checksum for all but the fields of its header that say when and where.
        REQUIRE((packed || bit / 8 < kHeader ? read == pixels : read != pixels));
        REQUIRE((packed || bit / 8 >= kHeader));
      } catch (const std::runtime_error& error) {
        REQUIRE(contains_text(error.what(), file.path()));
        REQUIRE((packed || bit / 8 < kHeader));
      }
    }
  }
}

TEST_CASE("idx: what can't be read is named") {
  CHECK(contains_text(complaint_of_images(labels("\1")), "holds no images"));
  CHECK(contains_text(complaint_of_labels(images(1, 1, 1, "x")), "holds no labels"));
  CHECK(contains_text(complaint_of_images("<html>not found</html>"), "holds no images"));
  CHECK(contains_text(complaint_of_images(images(0, 28, 28, "")), "impossible sizes"));
  CHECK(contains_text(complaint_of_images(images(1, 0, 28, "")), "impossible sizes"));
  CHECK(contains_text(complaint_of_images(images(1, 28, 5000, "")), "impossible sizes"));
  CHECK(contains_text(complaint_of_images(images(~0u, ~0u, ~0u, "")), "impossible sizes"));
  CHECK(contains_text(complaint_of_labels(labels("")), "impossible sizes"));
  CHECK(contains_text(complaint_of_labels(labels("\1\12\3")), "label 10 for image 1"));
  CHECK_THROWS_AS(read_idx_images("/no/such/file.gz"), std::runtime_error);
  CHECK_THROWS_AS(read_idx_images(std::filesystem::temp_directory_path().string()),
                  std::runtime_error);
}

TEST_CASE("idx: a header's promise is not believed") {
  // A gigabyte is promised; 60 bytes are there.
  const std::string greedy = images(1 << 20, 32, 32, content(60));
  CHECK(contains_text(complaint_of_images(greedy), "truncated"));
  CHECK(contains_text(complaint_of_images(pack(greedy)), "truncated"));
  // A few bytes that unpack to 64 MB, of which the header wants 60.
  const std::string bomb = pack(images(3, 4, 5, std::string(size_t{1} << 26, '\0')));
  CHECK(bomb.size() < (1 << 17));
  CHECK(contains_text(complaint_of_images(bomb), "left over"));
}

TEST_CASE("idx: bytes behind the end") {
  const std::string file = images(3, 4, 5, content(60));
  CHECK(contains_text(complaint_of_images(file + "x"), "left over behind its last element"));
  CHECK(contains_text(complaint_of_images(pack(file + "x")), "left over behind its last element"));
  CHECK(contains_text(complaint_of_images(pack(file) + "x"), "left over behind its gzip trailer"));
  CHECK(contains_text(complaint_of_images(pack(file) + std::string(70000, 'x')), "left over"));
}
