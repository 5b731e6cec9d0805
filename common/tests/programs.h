// Tests that start the program beside them: what it prints and returns, and the files it is given.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/testing.h"
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

// The program of this name beside this test.
class Program {
 public:
  explicit Program(const std::string& name) : name_(name) {}

  // Exit code and output of a shell's command, in which $PROGRAM is the program. It finds no data
  // but what it is told of.
  Outcome shell(const std::string& command) const {
    const std::string path = std::filesystem::path(own_path()).parent_path() / name_;
    return outcome_of("COURSE_DATA=/no/such/folder; export COURSE_DATA; PROGRAM='" + path +
                      "'; { " + command + "; } 2>&1");
  }
  Outcome operator()(const std::string& arguments) const {
    return shell("\"$PROGRAM\" " + arguments);
  }
  // Ctrl-C comes as soon as this file is there.
  Outcome interrupted(const std::string& arguments, const std::string& file) const {
    return shell("\"$PROGRAM\" " + arguments +
                 " & training=$!; while kill -0 $training && [ ! -e " + file +
                 " ]; do sleep 0.05; done; kill -INT $training; wait $training");
  }
  // With these arguments it refuses to run, in a line with these words.
  void require_refusal(const std::string& arguments, const std::string& words) const {
    const Outcome outcome = (*this)(arguments);
    CAPTURE(arguments, words, outcome.text);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(outcome.says(words));
    REQUIRE(outcome.says(name_ + ": "));
  }

 private:
  std::string name_;
};

}  // namespace tests
