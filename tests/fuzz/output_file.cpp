// output_file::writer_of() and replace() beside a file of any name: only what a writer of the same
// file has left, FILE.PROCESS.partial, may go.
#include "common/output_file.h"

#include <algorithm>
#include <fstream>

#include "common/input_file.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Whether the name is `file`.DIGITS.partial.
bool is_partial(const std::string& name, const std::string& file) {
  const std::string begin = file + ".", end = ".partial";
  if (name.size() <= begin.size() + end.size()) return false;
  const auto first = name.begin() + static_cast<std::ptrdiff_t>(begin.size());
  const auto last = name.end() - static_cast<std::ptrdiff_t>(end.size());
  return name.rfind(begin, 0) == 0 && std::equal(end.begin(), end.end(), last) &&
         std::all_of(first, last, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  constexpr std::size_t kMostOfName = 255;  // of Linux
  const std::string file = "F", content = "new";
  const std::string name(fuzz::bytes_of(data, size));
  const bool is_name = !name.empty() && name.size() <= kMostOfName && name != "." && name != ".." &&
                       name != file &&
                       name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  if (!is_name) return 0;
  const bool has_writer = output_file::writer_of(name, file) != 0;
  fuzz::expect(!has_writer || is_partial(name, file), "a writer has a number");
  // A file that has no writer is passed over, whatever it is called: a few will do.
  if (!has_writer && !fuzz::is_chosen(name)) return 0;

  const std::string beside = folder.file(name);
  { std::ofstream(beside) << "beside"; }
  output_file::replace(folder.file(file), [&](std::FILE* out) {
    return std::fwrite(content.data(), 1, content.size(), out) == content.size();
  });
  fuzz::expect(input_file::read(folder.file(file)) == content, "the file holds what was written");
  const bool stays = std::filesystem::exists(beside);
  if (!is_partial(name, file)) fuzz::expect(stays, "a file of another name stays");
  if (stays) fuzz::expect(input_file::read(beside) == "beside", "and holds what it did");
  std::filesystem::remove(beside);
  return 0;
}
