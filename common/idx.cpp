#include "common/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "common/input_file.h"

namespace {

constexpr std::size_t kMaxExtent = 4096, kMaxBytes = std::size_t{1} << 30;
constexpr std::size_t kLeastPiece = std::size_t{1} << 12;  // bytes that a vector begins with

// The content of a file from front to back, unpacked where gzip has packed it.
class Source {
 public:
  Source(const std::string& path, std::string_view bytes)
      : path_(path), left_(bytes), packed_(bytes.substr(0, 2) == "\x1F\x8B") {
    constexpr int kGzip = 16;  // added to the size of the window: gzip's header and trailer
    if (packed_ && inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) fail("cannot be unpacked");
  }
  ~Source() {
    if (packed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(path_ + " " + what);
  }

  // Up to `count` bytes, at most kMaxBytes; fewer only where the content ends.
  std::size_t read(std::uint8_t* to, std::size_t count) {
    if (packed_) return unpack(to, count);
    const std::size_t there = left_.copy(reinterpret_cast<char*>(to), count);
    left_.remove_prefix(there);
    return there;
  }

  // Nothing may be left: no byte of content, none in the file behind gzip's trailer.
  void expect_end() {
    std::uint8_t byte = 0;
    if (read(&byte, 1) != 0) fail("has bytes left over behind its last element");
    if (stream_.avail_in != 0 || !left_.empty())
      fail("has bytes left over behind its gzip trailer");
  }

 private:
  // Hands zlib the next part of the file, whose length is a uInt for it.
  void refill() {
    const std::size_t part = std::min(left_.size(), kMaxBytes);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left_.data()));
    stream_.avail_in = static_cast<uInt>(part);
    left_.remove_prefix(part);
  }

  // At the end inflate() has compared gzip's checksum and length with the content's.
  std::size_t unpack(std::uint8_t* to, std::size_t count) {
    stream_.next_out = to, stream_.avail_out = static_cast<uInt>(count);
    while (!ended_ && stream_.avail_out > 0) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0) fail("is truncated: its gzip stream has no end");
      const int status = inflate(&stream_, Z_NO_FLUSH);
      ended_ = status == Z_STREAM_END;
      if (status != Z_OK && !ended_)
        fail(std::string("is damaged: ") + (stream_.msg != nullptr ? stream_.msg : zError(status)));
    }
    return count - stream_.avail_out;
  }

  const std::string& path_;
  std::string_view left_;  // what nobody has taken yet, neither zlib nor read()
  const bool packed_;
  bool ended_ = false;
  z_stream stream_ = {};
};

std::uint32_t read_number(Source& source) {
  std::uint8_t bytes[4];
  if (source.read(bytes, 4) != 4) source.fail("is truncated inside its header");
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

void expect_type(Source& source, std::uint32_t type, const char* what) {
  const std::uint32_t found = read_number(source);
  if (found == type) return;
  char text[80];
  std::snprintf(text, sizeof text, "holds no %s: it begins with %08x, not with %08x", what,
                static_cast<unsigned>(found), static_cast<unsigned>(type));
  source.fail(text);
}

// The `count` bytes that must be left. The vector grows as they come, to twice its size each time.
std::vector<std::uint8_t> read_rest(Source& source, std::size_t count) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::size_t before = bytes.size();
    const std::size_t due = std::min(count - before, std::max(before, kLeastPiece));
    bytes.resize(before + due);
    const std::size_t came = source.read(bytes.data() + before, due);
    if (came != due)
      source.fail("is truncated: " + std::to_string(before + came) + " of " +
                  std::to_string(count) + " bytes are there");
  }
  source.expect_end();
  return bytes;
}

}  // namespace

IdxImages read_idx_images(const std::string& path) {
  return parse_idx_images(path, input_file::read(path));
}

IdxImages parse_idx_images(const std::string& path, std::string_view bytes) {
  Source source(path, bytes);
  expect_type(source, 0x00000803, "images");
  IdxImages images;
  images.count = read_number(source);
  images.rows = read_number(source);
  images.cols = read_number(source);
  const bool possible = images.count > 0 && images.rows > 0 && images.cols > 0 &&
                        images.rows <= kMaxExtent && images.cols <= kMaxExtent &&
                        images.count <= kMaxBytes / images.pixels_per_image();
  if (!possible)
    source.fail("has impossible sizes: " + std::to_string(images.count) + " images of " +
                std::to_string(images.rows) + " x " + std::to_string(images.cols));
  images.pixels = read_rest(source, images.count * images.pixels_per_image());
  return images;
}

std::vector<std::uint8_t> read_idx_labels(const std::string& path, unsigned classes) {
  return parse_idx_labels(path, input_file::read(path), classes);
}

std::vector<std::uint8_t> parse_idx_labels(const std::string& path, std::string_view bytes,
                                           unsigned classes) {
  Source source(path, bytes);
  expect_type(source, 0x00000801, "labels");
  const std::size_t count = read_number(source);
  if (count == 0 || count > kMaxBytes)
    source.fail("has impossible sizes: " + std::to_string(count) + " labels");
  std::vector<std::uint8_t> labels = read_rest(source, count);
  for (std::size_t i = 0; i < count; ++i)
    if (labels[i] >= classes)
      source.fail("has label " + std::to_string(labels[i]) + " for image " + std::to_string(i) +
                  "; the largest is " + std::to_string(classes - 1));
  return labels;
}
