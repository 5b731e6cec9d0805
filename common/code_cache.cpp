#include "common/code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "common/output_file.h"

namespace code_cache {

namespace {

namespace fs = std::filesystem;

const std::string kSuffix = ".code";
constexpr char kMagic[8] = {'c', 'o', 'u', 'r', 's', 'e', '1', '\n'};

struct Header {
  char magic[8];
  std::uint64_t key_bytes, code_bytes;
  std::uint64_t crc;  // of all that follows
};

std::uint64_t crc_of(const std::string& text) {
  uLong crc = crc32(0, nullptr, 0);
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
  for (std::size_t at = 0; at < text.size(); at += kPiece)
    crc = crc32(crc, reinterpret_cast<const Bytef*>(text.data()) + at,
                static_cast<uInt>(std::min(kPiece, text.size() - at)));
  return crc;
}

// Whether only this user can have written it.
bool is_of_this_user(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string wanted_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("COURSE_CACHE_DIR"); !own.empty()) return own;
  // Its specification wants a relative path to be ignored.
  if (const std::string caches = variable("XDG_CACHE_HOME"); caches[0] == '/')
    return caches + "/gpu-course";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/gpu-course";
}

// Empty, with the reason, where there is none that can be trusted.
std::string folder(std::string* why) {
  const std::string path = wanted_folder();
  const auto refuse = [&](const std::string& reason) {
    *why = reason;
    return std::string();
  };
  if (path.empty()) return refuse("neither COURSE_CACHE_DIR nor HOME is set");
  std::error_code ignored;  // mkdir says what is wrong
  fs::create_directories(fs::path(path).parent_path(), ignored);
  struct stat status {};
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return refuse(path + " cannot be made: " + std::strerror(errno));
  if (stat(path.c_str(), &status) != 0) return refuse(path + ": " + std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return refuse(path + " is not a folder");
  if (!is_of_this_user(status)) return refuse(path + " can be written by other users");
  return path;
}

std::string name_of(const std::string& key) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a; the file holds the key itself
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  char name[24];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash));
  return name + kSuffix;
}

// All bytes of a file of this user; nothing where there is none. No link is followed.
std::optional<std::string> bytes_of(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct stat status {};
  std::string bytes;
  bool is_whole = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && is_of_this_user(status) &&
                  static_cast<std::uint64_t>(status.st_size) <= kMostBytes;
  if (is_whole) {
    bytes.resize(static_cast<std::size_t>(status.st_size));
    std::size_t at = 0;
    for (ssize_t got = 1; at < bytes.size() && got > 0; at += static_cast<std::size_t>(got))
      if ((got = read(file, &bytes[at], bytes.size() - at)) < 0) break;
    is_whole = at == bytes.size();
    // The time of its last use. Where it can't be written, it is the time when it was made.
    static_cast<void>(futimens(file, nullptr));
  }
  close(file);
  return is_whole ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::string file_of(const std::string& key) {
  std::string why;
  const std::string path = folder(&why);
  return path.empty() ? "" : path + "/" + name_of(key);
}

std::optional<std::string> find(const std::string& key) {
  const std::string path = file_of(key);
  if (path.empty()) return std::nullopt;
  const std::optional<std::string> bytes = bytes_of(path);
  Header header{};
  if (!bytes || bytes->size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes->data(), sizeof header);
  const std::string content = bytes->substr(sizeof header);
  const bool is_ours = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                       header.key_bytes == key.size() && content.size() >= key.size() &&
                       header.code_bytes == content.size() - key.size() &&
                       header.crc == crc_of(content) && content.compare(0, key.size(), key) == 0;
  return is_ours ? std::optional(content.substr(key.size())) : std::nullopt;
}

std::string keep(const std::string& key, const std::string& code) {
  std::string why;
  const std::string path = folder(&why);
  if (path.empty()) return why;
  const std::string content = key + code;
  Header header{{}, key.size(), code.size(), crc_of(content)};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  try {
    output_file::replace(path + "/" + name_of(key), [&](std::FILE* file) {
      return fchmod(fileno(file), S_IRUSR | S_IWUSR) == 0 &&
             std::fwrite(&header, sizeof header, 1, file) == 1 &&
             std::fwrite(content.data(), 1, content.size(), file) == content.size();
    });
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  trim(path, kMostBytes, kMostFiles);
  return "";
}

void trim(const std::string& folder, std::uint64_t most_bytes, std::size_t most_files) {
  struct File {
    fs::file_time_type used;
    std::uintmax_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  std::uintmax_t bytes = 0;
  std::error_code error;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // another process trims, too
    const fs::path& path = entry->path();
    if (!fs::is_regular_file(entry->symlink_status(gone))) continue;
    const fs::file_time_type used = fs::last_write_time(path, gone);
    const std::uintmax_t size = fs::file_size(path, gone);
    if (gone) continue;
    const bool is_abandoned = path.extension() == ".partial" && used < long_ago;
    if (is_abandoned) fs::remove(path, gone);
    if (path.extension() != kSuffix) continue;
    files.push_back({used, size, path});
    bytes += size;
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  std::size_t left = files.size();
  for (const File& file : files) {
    if (bytes <= most_bytes && left <= most_files) break;
    fs::remove(file.path, error);
    bytes -= file.bytes, --left;
  }
}

}  // namespace code_cache
