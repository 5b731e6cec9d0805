// Tests that start the program beside them: what it prints and returns, and the files it is given.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/tests/child.h"

namespace tests {

// ---- Files ------------------------------------------------------------------------------------

// A folder of its own, gone at the end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("course_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string name() const { return path_.string(); }
  // The names of what is in it.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Four bytes, the highest first: the numbers of IDX files.
inline std::string big_endian(size_t value) {
  std::string bytes;
  for (const unsigned shift : {24u, 16u, 8u, 0u}) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

// folder/mnist/PART-images-idx3-ubyte and PART-labels-idx1-ubyte, as MNIST's: an image of 28 x 28
// pixels for each label.
inline void write_digits(const std::string& folder, const std::string& part,
                         const std::vector<std::uint8_t>& pixels,
                         const std::vector<std::uint8_t>& labels) {
  write_file(folder + "/mnist/" + part + "-images-idx3-ubyte",
             big_endian(0x803) + big_endian(labels.size()) + big_endian(28) + big_endian(28) +
                 std::string(pixels.begin(), pixels.end()));
  write_file(
      folder + "/mnist/" + part + "-labels-idx1-ubyte",
      big_endian(0x801) + big_endian(labels.size()) + std::string(labels.begin(), labels.end()));
}

// ---- Programs ---------------------------------------------------------------------------------

// Exit code and output of a shell's command, in which $PROGRAM is the program `name` beside this
// test. It finds no data but what it is told of.
inline Outcome run_shell(const std::string& name, const std::string& command) {
  char test[4096];
  const ssize_t length = readlink("/proc/self/exe", test, sizeof test);
  if (length < 0) throw std::runtime_error("/proc/self/exe can't be read");
  const std::string program =
      std::filesystem::path(std::string(test, static_cast<size_t>(length))).parent_path() / name;
  std::FILE* pipe = popen(("COURSE_DATA=/no/such/folder; export COURSE_DATA; PROGRAM='" + program +
                           "'; { " + command + "; } 2>&1")
                              .c_str(),
                          "r");
  if (pipe == nullptr) throw std::runtime_error("no process can be started");
  Outcome outcome{};
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    outcome.text.append(part, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// Whether the program `name` has refused to run, in one line with these words.
inline bool is_refusal(const std::string& name, const Outcome& outcome, const std::string& words) {
  return outcome.exit_code == 2 && outcome.says(words) && outcome.says(name + ": ");
}

}  // namespace tests
