#include "common/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace input_file {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes, where a size is not known

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + " " + what);
}

}  // namespace

std::string wrong_kind(const std::string& path) {
  std::error_code ignored;  // what can't be looked at can't be opened, which says why
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) return "is a folder";
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return "is not a regular file";
  return "";
}

Pointer open(const std::string& path) {
  if (const std::string kind = wrong_kind(path); !kind.empty()) fail(path, kind);
  Pointer file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) fail(path, std::string("cannot be opened: ") + std::strerror(errno));
  return file;
}

std::string read(const std::string& path, std::size_t most) {
  const Pointer file = open(path);
  // One byte more than is there, so that one piece finds the end; the file may grow meanwhile.
  std::error_code unknown;
  const std::uintmax_t there = std::filesystem::file_size(path, unknown);
  const auto too_long = [&] { fail(path, "has more than " + std::to_string(most) + " bytes"); };
  if (!unknown && there > most) too_long();
  std::size_t piece = unknown ? kPiece : static_cast<std::size_t>(there) + 1;
  std::string text;
  for (bool ended = false; !ended;) {
    const std::size_t size = text.size();
    text.resize(size + piece);
    const std::size_t got = std::fread(&text[size], 1, piece, file.get());
    if (std::ferror(file.get()) != 0)
      fail(path, std::string("cannot be read: ") + std::strerror(errno));
    ended = got < piece;
    text.resize(size + got);
    if (text.size() > most) too_long();
    piece = std::max(kPiece, text.size() / 2);
  }
  return text;
}

}  // namespace input_file
