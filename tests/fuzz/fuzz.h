// What the fuzz targets share. A target is a program of libFuzzer's: LLVMFuzzerTestOneInput() gives
// the bytes to a reader, and a crash, a sanitizer's report, an exception that the reader does not
// document, or an expect() that does not hold is a finding.
//
// Ten million inputs are tried: a reader is given the bytes themselves. To the byte behind them
// AddressSanitizer lets nobody. A file takes ten times as long, so only some inputs become one.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/printable.h"

namespace fuzz {

// Ends the program where the property does not hold; libFuzzer then keeps the input.
inline void expect(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: does not hold: %s\n", property);
  std::abort();
}

inline std::string_view bytes_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Whether this input, one of 64, goes to the file system too. Its bytes decide, so that a finding
// can be shown again. (The sum is FNV-1a.)
inline bool is_chosen(std::string_view bytes) {
  std::uint32_t sum = 0x811C9DC5u;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return (sum >> 16) % 64 == 0;
}

// The name of what is no file: messages begin with it.
inline const std::string kName = "input";

// A file that is nowhere on a disk; its path opens it anew. Linux only.
class MemoryFile {
 public:
  MemoryFile()
      : file_(memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(file_)) {}
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void fill(std::string_view content) {
    const bool filled =
        ftruncate(file_, 0) == 0 &&
        pwrite(file_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size());
    expect(filled, "the target can write to its file in memory");
  }

 private:
  int file_;
  std::string path_;
};

// An empty folder in $TMPDIR, gone at the end; scripts/fuzz.py puts $TMPDIR into memory.
class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "fuzz.XXXXXX").string();
    expect(mkdtemp(path_.data()) != nullptr, "the target can make a folder");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a reader says of a file is one line that begins with the file's name, and is not long.
inline void expect_line(const std::string& message, const std::string& begin) {
  expect(message.rfind(begin, 0) == 0, "a message names what it is about first");
  expect(printable(message) == message, "a message is one printable line");
  expect(message.size() < begin.size() + 400, "a message is not long");
}

// What read() returns, or nothing where it throws std::runtime_error about the file `name`. Other
// exceptions are findings.
template <class Read>
auto read_or_refused(const std::string& name, Read read, std::string* complaint = nullptr)
    -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    expect_line(message, name);
    if (complaint != nullptr) *complaint = message.substr(name.size());
    return {};
  }
}

// What parse(kName, bytes) returns, or nothing where it refuses them. A file of an input that is
// chosen must be read to the same by read(path), or be refused in the same words; to_bytes() tells
// what is the same.
template <class Parse, class Read, class ToBytes>
auto parsed(std::string_view bytes, Parse parse, Read read, ToBytes to_bytes,
            std::string* complaint = nullptr) {
  std::string said, said_of_file;
  const auto got = read_or_refused(
      kName, [&] { return parse(kName, bytes); }, &said);
  if (is_chosen(bytes)) {
    static MemoryFile file;
    file.fill(bytes);
    const auto same = read_or_refused(
        file.path(), [&] { return read(file.path()); }, &said_of_file);
    expect(said_of_file == said, "a file is refused as its bytes are");
    if (got) expect(to_bytes(*same) == to_bytes(*got), "a file holds what its bytes do");
  }
  if (complaint != nullptr) *complaint = said;
  return got;
}

}  // namespace fuzz
