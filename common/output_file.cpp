#include "common/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>

#include "common/input_file.h"

namespace output_file {
namespace {

namespace fs = std::filesystem;

using FilePointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

const std::string kSuffix = ".partial";

std::string partial_of(const std::string& path) {
  return path + "." + std::to_string(getpid()) + kSuffix;
}

// Whether a process of this number runs this program. A number is given again to other programs.
// Where the system does not say what the process runs, it may be this one.
bool runs_this_program(pid_t process) {
  if (kill(process, 0) != 0 && errno == ESRCH) return false;
  std::error_code unknown, also_unknown;
  const fs::path other = fs::read_symlink("/proc/" + std::to_string(process) + "/exe", unknown);
  const fs::path own = fs::read_symlink("/proc/self/exe", also_unknown);
  return unknown || also_unknown || other == own;
}

// Removes what dead processes left of `path`. A writer holds a lock on its file, which ends with
// it: a process that can't be seen from here, say in another container, keeps its file.
void remove_abandoned(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const std::string file = fs::path(path).filename().string();
  std::error_code ignored;
  for (fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    const pid_t writer = writer_of(entry->path().filename().string(), file);
    std::error_code unreadable;
    if (writer == 0 || writer == getpid() || runs_this_program(writer) ||
        !fs::is_regular_file(entry->symlink_status(unreadable)))
      continue;
    const int abandoned = open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (abandoned < 0) continue;
    if (flock(abandoned, LOCK_EX | LOCK_NB) == 0) unlink(entry->path().c_str());
    close(abandoned);
  }
}

// Creates the temporary file, with the lock that says that its writer lives. A file system without
// locks does without.
FilePointer create(const std::string& partial) {
  FilePointer file(std::fopen(partial.c_str(), "wb"), std::fclose);
  if (file) static_cast<void>(flock(fileno(file.get()), LOCK_EX | LOCK_NB));
  return file;
}

// The only place that knows how a system brings a file to the disk. errno says what went wrong.
bool flush_to_disk(std::FILE* file) { return std::fflush(file) == 0 && fsync(fileno(file)) == 0; }

// False, with errno, where the disk is full, say.
bool write_all(const std::string& partial, const std::function<bool(std::FILE*)>& put) {
  FilePointer file = create(partial);
  if (!file) return false;
  const bool written = put(file.get()) && flush_to_disk(file.get());
  const int error = errno;
  const bool closed = std::fclose(file.release()) == 0;
  if (!written) errno = error;
  return written && closed;
}

}  // namespace

pid_t writer_of(const std::string& name, const std::string& file) {
  const std::string begin = file + ".";
  if (name.size() <= begin.size() + kSuffix.size() || name.compare(0, begin.size(), begin) != 0 ||
      name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0)
    return 0;
  const std::string digits = name.substr(begin.size(), name.size() - begin.size() - kSuffix.size());
  constexpr std::size_t kMostDigits = std::numeric_limits<pid_t>::digits10;
  if (digits.size() > kMostDigits || digits.find_first_not_of("0123456789") != std::string::npos)
    return 0;
  return static_cast<pid_t>(std::stol(digits));
}

std::string obstacle(const std::string& path) {
  std::error_code unknown;
  const fs::path folder = fs::path(path).parent_path();
  if (path.empty()) return "has no name";
  if (const std::string kind = input_file::wrong_kind(path); !kind.empty()) return kind;
  if (!folder.empty() && !fs::is_directory(folder, unknown))
    return "cannot be written: there is no folder " + folder.string();
  const auto cannot = [] { return std::string("cannot be written: ") + std::strerror(errno); };
  // A rename would replace a file that is protected from writing; whoever protected it meant it.
  if (fs::exists(path, unknown) && access(path.c_str(), W_OK) != 0) return cannot();
  const std::string partial = partial_of(path);
  if (!create(partial)) return cannot();
  std::remove(partial.c_str());
  return "";
}

void replace(const std::string& path, const std::function<bool(std::FILE*)>& put) {
  if (const std::string kind = input_file::wrong_kind(path); !kind.empty())
    throw std::runtime_error(path + " " + kind);
  remove_abandoned(path);
  const std::string partial = partial_of(path);
  if (write_all(partial, put) && std::rename(partial.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(partial.c_str());
  throw std::runtime_error(path + " cannot be written: " + std::strerror(error));
}

}  // namespace output_file
