// Files that are read: what is no file is named, and what is one comes whole.
#include "common/input_file.h"

#include <sys/stat.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/programs.h"

using tests::Folder;

namespace {

std::string complaint_about(const std::string& path, std::size_t most = 1 << 20) {
  try {
    input_file::read(path, most);
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    REQUIRE(text.rfind(path + " ", 0) == 0);
    return text.substr(path.size() + 1);
  }
  return "";
}

}  // namespace

TEST_CASE("input files: what is no file is refused and not waited for") {
  const Folder folder;
  CHECK(complaint_about(folder / "none") == "cannot be opened: No such file or directory");
  CHECK(complaint_about(folder / "") == "is a folder");
  CHECK(complaint_about("/dev/zero") == "is not a regular file");
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(complaint_about(pipe) == "is not a regular file");
}

TEST_CASE("input files: every byte is read, and no more than is allowed") {
  const Folder folder;
  const std::string path = folder / "file";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) - 1,
                                 std::size_t{1} << 20, (std::size_t{5} << 20) + 7}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
    std::ofstream(path, std::ios::binary) << text;
    CHECK((input_file::read(path) == text));
    CHECK((input_file::read(path, size) == text));
    if (size > 0)
      CHECK(complaint_about(path, size - 1) ==
            "has more than " + std::to_string(size - 1) + " bytes");
  }
}
