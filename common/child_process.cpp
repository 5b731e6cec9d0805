#include "common/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace child_process {

namespace {

// What posix_spawn is told: streams, a process group of its own, and no signal that is held back.
class Settings {
 public:
  explicit Settings(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Settings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's, but for the folder of temporary files and the language.
std::vector<std::string> environment_with(const std::string& folder) {
  std::vector<std::string> variables{"TMPDIR=" + folder, "LC_ALL=C"};
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "TMPDIR=", 7) != 0 && std::strncmp(*variable, "LC_ALL=", 7) != 0)
      variables.push_back(*variable);
  return variables;
}

// The exit code; where SIGCHLD is ignored the system does not say it, and 0 is assumed.
int wait_for(pid_t child, double seconds, bool* is_too_slow) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, *is_too_slow ? 0 : WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (ended < 0 && errno != EINTR) return 0;
    if (!*is_too_slow && std::chrono::steady_clock::now() > end) {
      *is_too_slow = true;
      kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Ended run(const std::vector<std::string>& command, double seconds, const std::string& folder) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::tmpfile(), std::fclose);
  if (output == nullptr)
    throw std::runtime_error(std::string("no temporary file can be made: ") + std::strerror(errno));
  std::vector<std::string> words = command, variables = environment_with(folder);
  const Settings settings(fileno(output.get()));
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, words[0].c_str(), &settings.actions_, &settings.attributes_,
                   pointers_to(words).data(), pointers_to(variables).data());
  if (error == ENOENT) throw std::runtime_error(command[0] + " is not found");
  if (error != 0)
    throw std::runtime_error(command[0] + " cannot be started: " + std::strerror(error));
  Ended result;
  result.exit_code = wait_for(child, seconds, &result.is_too_slow);
  std::rewind(output.get());
  constexpr size_t kMost = 65536;
  result.output.resize(kMost);
  result.output.resize(std::fread(result.output.data(), 1, kMost, output.get()));
  return result;
}

}  // namespace child_process
