// output_file::obstacle() and replace(): what can't be written is refused before it is due, and
// what a killed writer left is removed, but never what belongs to somebody who lives.
#include "common/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/emulator.h"
#include "common/tests/programs.h"

namespace {

namespace fs = std::filesystem;
using tests::Folder;

bool put_text(std::FILE* file) { return std::fputs("new", file) >= 0; }

void leave(const std::string& path) { std::ofstream(path) << "half"; }

// The number of a process that has just ended.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  return child;
}

// Another program that lives until the object goes.
class Sleeper {
 public:
  Sleeper() : process(fork()) {
    if (process == 0) {
      execlp("sleep", "sleep", "60", nullptr);
      _exit(1);
    }
    // Until exec it still runs this program.
    const fs::path own = fs::read_symlink("/proc/self/exe");
    std::error_code ignored;
    while (fs::read_symlink("/proc/" + std::to_string(process) + "/exe", ignored) == own)
      usleep(1000);
  }
  ~Sleeper() {
    kill(process, SIGKILL);
    int status = 0;
    waitpid(process, &status, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  const pid_t process;
};

}  // namespace

TEST_CASE("output files: what can't be written is said before anything is") {
  const Folder folder;
  const std::string path = folder / "model";
  CHECK(output_file::obstacle(path).empty());
  CHECK_FALSE(fs::exists(path));
  CHECK(fs::is_empty(fs::path(path).parent_path()));
  leave(path);
  CHECK(output_file::obstacle(path).empty());
  CHECK(tests::read_file(path) == "half");

  CHECK(output_file::obstacle("") == "has no name");
  CHECK(output_file::obstacle(fs::path(path).parent_path()) == "is a folder");
  CHECK(output_file::obstacle("/dev/null") == "is not a regular file");
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(output_file::obstacle(pipe) == "is not a regular file");
  CHECK(output_file::obstacle(folder / "none/model") ==
        "cannot be written: there is no folder " + (folder / "none"));
  CHECK(output_file::obstacle(path + "/model") == "cannot be written: there is no folder " + path);
  // The name itself would fit; that of the temporary file does not.
  CHECK(output_file::obstacle(folder / std::string(250, 'x')) ==
        "cannot be written: File name too long");
  CHECK(output_file::obstacle(folder / std::string(300, 'x')) ==
        "cannot be written: File name too long");
  CHECK(output_file::obstacle("/proc/model").rfind("cannot be written: ", 0) == 0);
}

// Root may write everything: a process that has given its rights up asks.
TEST_CASE("output files: what is protected from writing is no file to write") {
  const Folder folder;
  for (const char* in : {"open", "locked"}) fs::create_directory(folder / in);
  leave(folder / "open/model");
  REQUIRE(chmod((folder / "open/model").c_str(), 0444) == 0);
  REQUIRE(chmod((folder / "open").c_str(), 0777) == 0);
  REQUIRE(chmod((folder / "locked").c_str(), 0555) == 0);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (chdir(folder.name().c_str()) != 0 || (geteuid() == 0 && setuid(kNobody) != 0)) _exit(9);
    const auto is_refused = [](const std::string& path) {
      return output_file::obstacle(path) == "cannot be written: Permission denied";
    };
    _exit((is_refused("open/model") ? 0 : 1) + (is_refused("locked/model") ? 0 : 2) +
          (output_file::obstacle("open/other").empty() ? 0 : 4));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(tests::read_file(folder / "open/model") == "half");
}

TEST_CASE("output files: what killed writers left is removed, and nothing else") {
  const Folder folder;
  const Sleeper other;
  const std::string path = folder / "model", dead = std::to_string(dead_process());
  const std::string of_other = path + "." + std::to_string(other.process) + ".partial";
  const std::string gone = path + "." + dead + ".partial";
  const std::set<std::string> stay = {path + ".1x.partial",
                                      path + "..partial",
                                      path + ".99999999999999999999.partial",
                                      path + "." + dead,
                                      folder / ("model2." + dead + ".partial"),
                                      folder / ("." + dead + ".partial"),
                                      path + ".0.partial"};
  for (const std::string& name : stay) leave(name);
  fs::create_directory(path + "." + std::to_string(dead_process()) + ".partial");
  const size_t others = stay.size() + 1;
  const auto files = [&] {
    const fs::path in = fs::path(path).parent_path();
    return static_cast<size_t>(std::distance(fs::directory_iterator(in), {}));
  };

  leave(gone), leave(of_other);  // the number of the second one now belongs to another program
  output_file::replace(path, put_text);
  CHECK(tests::read_file(path) == "new");
  CHECK_FALSE(fs::exists(gone));
  CHECK_FALSE(fs::exists(of_other));
  for (const std::string& name : stay) CHECK(fs::exists(name));
  CHECK(files() == others + 1);

  // Whoever writes holds a lock, wherever that process is.
  leave(gone);
  const int writer = open(gone.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(flock(writer, LOCK_EX | LOCK_NB) == 0);
  output_file::replace(path, put_text);
  CHECK(fs::exists(gone));
  close(writer);
  output_file::replace(path, put_text);
  CHECK_FALSE(fs::exists(gone));

  if (emulator::leaves_out(emulator::kLivingWriter)) return;
  // A process that runs this program may be about to rename its file.
  const pid_t twin = fork();
  if (twin == 0) {
    pause();
    _exit(0);
  }
  const std::string live = path + "." + std::to_string(twin) + ".partial";
  leave(live);
  output_file::replace(path, put_text);
  CHECK(fs::exists(live));
  kill(twin, SIGKILL);
  int status = 0;
  waitpid(twin, &status, 0);
  output_file::replace(path, put_text);
  CHECK_FALSE(fs::exists(live));
}

TEST_CASE("output files: whose temporary file it is, by its name") {
  CHECK(output_file::writer_of("F.12.partial", "F") == 12);
  CHECK(output_file::writer_of("F.G.7.partial", "F.G") == 7);
  for (const char* other : {"F", "F.partial", "F..partial", "F.1.partia", "F.1.partial.",
                            "F.1x.partial", "F.-1.partial", "F.+1.partial", "F. 1.partial",
                            "G.1.partial", "F.0.partial", "F.99999999999.partial", ""})
    CHECK(output_file::writer_of(other, "F") == 0);
}

TEST_CASE("output files: a file that can't be written leaves the old one") {
  const Folder folder;
  const std::string path = folder / "model";
  output_file::replace(path, put_text);
  CHECK_THROWS_AS(output_file::replace(path,
                                       [](std::FILE*) {
                                         errno = ENOSPC;
                                         return false;
                                       }),
                  std::runtime_error);
  CHECK(tests::read_file(path) == "new");
  CHECK(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}) == 1);
}
