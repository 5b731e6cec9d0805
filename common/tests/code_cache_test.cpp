// Compiled code on the disk: what is kept is found, and what is spoilt, foreign or too much is not.
#include "common/code_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/input_file.h"
#include "common/testing.h"
#include "common/tests/environment.h"

namespace {

namespace fs = std::filesystem;

// A cache of its own, in a folder that is gone afterwards.
struct OwnCache {
  fs::path folder = fs::temp_directory_path() / ("code_cache_test." + std::to_string(getpid()));
  KeptVariable own{"COURSE_CACHE_DIR"}, caches{"XDG_CACHE_HOME"}, home{"HOME"};

  OwnCache() {
    fs::remove_all(folder);
    fs::create_directory(folder);
    own.set((folder / "cache").string());
  }
  ~OwnCache() { fs::remove_all(folder); }
};

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

const std::string kKey = "compiler 1.0 -O3\nvoid f() {}", kCode(
                                                              "\x7f"
                                                              "ELF\0code\n",
                                                              10);

}  // namespace

TEST_CASE("what was kept is found under its key and no other") {
  const OwnCache cache;
  CHECK(!code_cache::find(kKey));
  REQUIRE(code_cache::keep(kKey, kCode) == "");
  CHECK(code_cache::find(kKey) == kCode);
  CHECK(!code_cache::find(kKey + " "));
  REQUIRE(code_cache::keep(kKey, "other") == "");
  CHECK(code_cache::find(kKey) == "other");
  CHECK(files_in(cache.folder / "cache") == 1);
  REQUIRE(code_cache::keep("empty", "") == "");
  CHECK(code_cache::find("empty") == "");
}

TEST_CASE("a file that is spoilt counts as absent and is replaced") {
  const OwnCache cache;
  REQUIRE(code_cache::keep(kKey, kCode) == "");
  const std::string path = code_cache::file_of(kKey), whole = input_file::read(path);
  const auto is_refused_as = [&](const std::string& bytes) {
    write(path, bytes);
    const bool is_refused = !code_cache::find(kKey);
    return is_refused && code_cache::keep(kKey, kCode).empty() && code_cache::find(kKey) == kCode;
  };
  CHECK(is_refused_as(""));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    CHECK(is_refused_as(whole.substr(0, bytes)));
  CHECK(is_refused_as(whole + "x"));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    CAPTURE(at);
    CHECK(is_refused_as(flipped));
  }
}

TEST_CASE("a file that was kept under another key is not taken") {
  const OwnCache cache;  // two keys may have one name
  const std::string other(kKey.size(), 'k');
  REQUIRE(code_cache::keep(kKey, kCode) == "");
  fs::copy_file(code_cache::file_of(kKey), code_cache::file_of(other));
  CHECK(!code_cache::find(other));
  CHECK(code_cache::find(kKey) == kCode);
}

TEST_CASE("what stands in the place of a file is left alone") {
  const OwnCache cache;
  REQUIRE(code_cache::keep(kKey, kCode) == "");
  const std::string path = code_cache::file_of(kKey), elsewhere = (cache.folder / "other").string();
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  CHECK(!code_cache::find(kKey));  // no link is followed, whoever has made it
  fs::remove(path);
  fs::create_directory(path);
  CHECK(!code_cache::find(kKey));
  CHECK(contains_text(code_cache::keep(kKey, kCode), "is a folder"));
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(!code_cache::find(kKey));  // and does not wait for a writer
}

TEST_CASE("files and folders that others may write are not used") {
  const OwnCache cache;
  REQUIRE(code_cache::keep(kKey, kCode) == "");
  const std::string path = code_cache::file_of(kKey), folder = fs::path(path).parent_path();
  struct stat status {};
  REQUIRE(stat(folder.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  CHECK(!code_cache::find(kKey));
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  CHECK(code_cache::find(kKey) == kCode);
  REQUIRE(chmod(folder.c_str(), 0777) == 0);
  CHECK(!code_cache::find(kKey));
  CHECK(contains_text(code_cache::keep(kKey, kCode), "can be written by other users"));
  REQUIRE(chmod(folder.c_str(), 0700) == 0);
  if (geteuid() != 0) return;
  REQUIRE(chown(path.c_str(), 12345, 12345) == 0);
  CHECK(!code_cache::find(kKey));
  REQUIRE(chown(folder.c_str(), 12345, 12345) == 0);
  CHECK(contains_text(code_cache::keep(kKey, kCode), "can be written by other users"));
}

TEST_CASE("where the cache is, and that there is none is said") {
  OwnCache cache;
  const std::string folder = cache.folder.string();
  const auto file = [] { return code_cache::file_of(kKey); };
  const auto begins = [](const std::string& text, const std::string& begin) {
    return text.rfind(begin, 0) == 0;
  };
  CHECK(begins(file(), folder + "/cache/"));
  cache.caches.set(folder + "/xdg");
  unsetenv("COURSE_CACHE_DIR");
  CHECK(begins(file(), folder + "/xdg/gpu-course/"));
  cache.caches.set("relative");
  cache.home.set(folder);
  CHECK(begins(file(), folder + "/.cache/gpu-course/"));
  unsetenv("HOME");
  CHECK(file() == "");
  CHECK(code_cache::keep(kKey, kCode) == "neither COURSE_CACHE_DIR nor HOME is set");
  cache.home.set("/proc/nobody");
  CHECK(contains_text(code_cache::keep(kKey, kCode), "cannot be made: "));
  write(folder + "/file", "");
  cache.own.set(folder + "/file");
  CHECK(code_cache::keep(kKey, kCode) == folder + "/file is not a folder");
  CHECK(!code_cache::find(kKey));
}

TEST_CASE("the files that were not used for the longest time are deleted first") {
  const OwnCache cache;
  const auto now = fs::file_time_type::clock::now();
  std::string files[6], folder;
  for (int i = 0; i < 6; ++i) {
    const std::string key = "key " + std::to_string(i);
    REQUIRE(code_cache::keep(key, std::string(1000, 'x')) == "");
    files[i] = code_cache::file_of(key), folder = fs::path(files[i]).parent_path();
    fs::last_write_time(files[i], now - std::chrono::minutes(60 - i));
  }
  CHECK(code_cache::find("key 0"));  // used just now
  write(folder + "/notes.txt", std::string(100000, 'x'));
  write(folder + "/a.code.7.partial", "");
  fs::last_write_time(folder + "/a.code.7.partial", now - std::chrono::hours(2));
  code_cache::trim(folder, 1 << 20, 5);
  CHECK(!fs::exists(files[1]));
  CHECK(!fs::exists(folder + "/a.code.7.partial"));
  CHECK(fs::exists(folder + "/notes.txt"));
  code_cache::trim(folder, 3200, 100);
  CHECK(!fs::exists(files[2]));
  CHECK(!fs::exists(files[3]));
  for (const int left : {0, 4, 5}) CHECK(fs::exists(files[left]));
}
