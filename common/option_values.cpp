// The values of options: numbers, sizes, names and files.
#include "common/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>

#include "common/output_file.h"
#include "common/sizes.h"

namespace option_values {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void usage_error(const std::string& text) { throw UsageError(text); }

// ---- Numbers ----------------------------------------------------------------------------------

std::optional<std::uint64_t> parse_number(const std::string& text) {
  if (text.empty()) return {};
  std::uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    const std::uint64_t digit = static_cast<std::uint64_t>(c - '0');
    if (number > (kLargest - digit) / 10) return {};
    number = 10 * number + digit;
  }
  return number;
}

std::size_t parse_count(const char* option, const std::string& text, std::size_t largest) {
  const auto number = parse_number(text);
  if (!number || *number < 1 || *number > largest)
    usage_error(fmt::format("{}: '{}' is not a number from 1 to {}", option, text, largest));
  return *number;
}

double parse_learning_rate(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && stop == end;
  if (!is_number || !(value >= std::numeric_limits<float>::min()) ||
      value > std::numeric_limits<float>::max())
    usage_error(fmt::format(
        "--lr: '{}' is not a learning rate; write a number above 0 such as 0.001 or 1e-3", text));
  return value;
}

// ---- Sizes ------------------------------------------------------------------------------------

namespace {

// One extent: 1000, 64k, 1M, 2G or 2^28.
std::size_t parse_extent(const std::string& text) {
  const auto garbage = [&] {
    usage_error(fmt::format(
        "--size: '{}' is not a size; write 1000, 64k, 1M, 2G or 2^28 (at most 2^64 - 1)", text));
  };
  std::uint64_t base, count = 1, factor;
  if (const std::size_t caret = text.find('^'); caret != std::string::npos) {
    const auto left = parse_number(text.substr(0, caret));
    const auto right = parse_number(text.substr(caret + 1));
    if (!left || !right || (*left > 1 && *right > 63)) garbage();
    base = 1, count = *left > 1 ? *right : std::min<std::uint64_t>(*right, 1), factor = *left;
  } else {
    const char suffix = text.empty() ? '\0' : text.back();
    const std::size_t place = std::string("kKmMgG").find(suffix);
    const bool has_suffix = suffix != '\0' && place != std::string::npos;
    const auto number = parse_number(has_suffix ? text.substr(0, text.size() - 1) : text);
    if (!number) garbage();
    base = *number, count = has_suffix ? place / 2 + 1 : 0, factor = 1024;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (factor != 0 && base > kLargest / factor) garbage();
    base *= factor;
  }
  return base;
}

}  // namespace

std::string size_names(const ProgramInfo& program) {
  std::string names;
  for (const Size& size : program.sizes) names += (names.empty() ? "" : "x") + size.name;
  return names;
}

std::vector<std::size_t> parse_sizes(const std::string& text, const ProgramInfo& program) {
  std::vector<std::size_t> extents;
  for (std::size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find('x', begin), text.size());
    extents.push_back(parse_extent(text.substr(begin, end - begin)));
  }
  if (extents.size() != program.sizes.size())
    usage_error(fmt::format("--size: {} takes {} ({} number{}), '{}' has {}", program.name,
                            size_names(program), program.sizes.size(),
                            program.sizes.size() == 1 ? "" : "s", text, extents.size()));
  sizes::require_product(extents);
  return extents;
}

// ---- Names ------------------------------------------------------------------------------------

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Levenshtein's distance: how many letters must be put in, taken out or changed. A capital is the
// same letter.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      const std::size_t changed = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

void check_name(const char* option, const std::string& name,
                const std::vector<std::string>& names) {
  std::string known, nearest = names.front();
  for (const std::string& candidate : names) {
    if (candidate == name) return;
    known += (known.empty() ? "" : ", ") + candidate;
    if (edit_distance(name, candidate) < edit_distance(name, nearest)) nearest = candidate;
  }
  usage_error(fmt::format("{}: '{}' is unknown, did you mean '{}'? There are {}", option, name,
                          nearest, known));
}

bool is_order(const std::string& text) {
  return text == "forward" || text == "reverse" || text == "waves" ||
         (text.rfind("random:", 0) == 0 && parse_number(text.substr(7)));
}

// ---- Files ------------------------------------------------------------------------------------

void check_output_path(const char* option, const std::string& path) {
  if (path.empty()) usage_error(fmt::format("{}: the file has no name", option));
  if (const std::string obstacle = output_file::obstacle(path); !obstacle.empty())
    usage_error(fmt::format("{}: {} {}", option, path, obstacle));
}

void check_input_path(const char* option, const std::string& path) {
  std::error_code ignored;
  if (path.empty()) usage_error(fmt::format("{}: the file has no name", option));
  if (fs::is_directory(path, ignored)) usage_error(fmt::format("{}: {} is a folder", option, path));
  if (!fs::exists(path, ignored)) usage_error(fmt::format("{}: there is no file {}", option, path));
}

}  // namespace option_values
