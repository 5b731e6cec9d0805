#include "common/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace input_file {

namespace {

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
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes; a file may grow while it is read
  std::string text;
  for (std::size_t got = 1; got > 0;) {
    const std::size_t size = text.size();
    text.resize(size + std::max(kPiece, size / 2));
    got = std::fread(&text[size], 1, text.size() - size, file.get());
    if (std::ferror(file.get()) != 0)
      fail(path, std::string("cannot be read: ") + std::strerror(errno));
    text.resize(size + got);
    if (text.size() > most) fail(path, "has more than " + std::to_string(most) + " bytes");
  }
  return text;
}

}  // namespace input_file
