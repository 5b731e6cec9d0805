// A report as it is printed: the table, its cells and lines.
#include "common/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "common/output_file.h"
#include "common/printable.h"
#include "common/report_rows.h"

using report_rows::of_peer;
using report_rows::peers_of;
using report_rows::Rate;
using report_rows::rate_of;
using report_rows::status;
using report_rows::was_compared;

namespace {

// ---- Figures ----------------------------------------------------------------------------------

// Three significant digits, never an exponent.
std::string significant(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

// "19.9 ms": us below one millisecond, s from one second.
std::string time_text(double ms) {
  if (!(ms > 0)) return "-";
  if (ms < 1) return significant(ms * 1e3) + " us";
  if (ms < 1e3) return significant(ms) + " ms";
  return significant(ms / 1e3) + " s";
}

// "6.90 TFLOP/s" or "4.20 TB/s"; unit is "B/s" or "FLOP/s".
std::string rate_text(double rate, const std::string& unit) {
  if (!(rate > 0)) return "-";
  if (rate < 1e9) return significant(rate / 1e6) + " M" + unit;
  if (rate < 1e12) return significant(rate / 1e9) + " G" + unit;
  return significant(rate / 1e12) + " T" + unit;
}

std::string percent_text(double share) {
  if (!(share > 0)) return "-";
  if (share < 0.001) return "<0.1%";
  return fmt::format("{:.{}f}%", 100 * share, share < 0.0995 ? 1 : 0);
}

// ---- Cells ------------------------------------------------------------------------------------

// How many characters a UTF-8 text shows: all bytes but the continuations.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// "[12,7]": the flat index as coordinates of the shape; "[1234]" without one.
std::string index_text(std::size_t index, const std::vector<std::size_t>& shape) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 1;) {
    text = fmt::format(",{}", index % shape[d]) + text;
    index /= shape[d];
  }
  return fmt::format("[{}{}]", index, text);
}

// The largest error of all elements.
std::string error_text(const Row& row) {
  if (!was_compared(row)) return "-";
  return row.check.exact() ? "0" : fmt::format("{:.1e}", row.check.max_error);
}

// The largest share of its bound that an element's error is, and which element that is.
std::string share_text(const Row& row) {
  if (!was_compared(row)) return "-";
  if (row.check.exact()) return "0";
  const double share = row.check.of_bound;
  return fmt::format("{} @{}", share < 100 ? percent_text(share) : fmt::format("{:.0e}", share),
                     index_text(row.check.index, row.shape));
}

std::string verdict_text(const Row& row) {
  const Comparison& check = row.check;
  if (!row.skipped.empty()) return row.skipped;
  if (check.ok && !row.missed.empty()) return fmt::format("FAIL ({})", row.missed);
  if (check.ok && check.compared == 0) return "not compared";
  if (check.ok) return fmt::format("ok (bound {:.1e})", check.bound);
  std::string text = fmt::format("FAIL (bound {:.1e}, got {:g}, want {:g}, {} of {} wrong",
                                 check.bound, check.got, check.want, check.failed, check.compared);
  if (check.unwritten > 0) text += fmt::format(", {} never written", check.unwritten);
  return text + ")";
}

constexpr std::size_t kTimeWidth = 8, kRateWidth = 13, kShareWidth = 9, kErrorWidth = 9,
                      kBoundWidth = 16;

// One line: the name left, figures right, share of the bound and verdict left.
std::string line_of(const std::string& name, std::size_t name_width, const std::string& time,
                    const std::string& rate, const std::string& limit_share,
                    const std::vector<std::pair<std::string, std::size_t>>& peer_shares,
                    const std::string& error, const std::string& of_bound,
                    const std::string& verdict) {
  std::string line = fmt::format("{:<{}} {:>{}} {:>{}} {:>{}}", name, name_width, time, kTimeWidth,
                                 rate, kRateWidth, limit_share, kShareWidth);
  for (const auto& [text, width] : peer_shares) line += fmt::format("  {:>{}}", text, width);
  line += fmt::format("  {:>{}}  {:<{}} {}", error, kErrorWidth, of_bound, kBoundWidth, verdict);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// ---- Files ------------------------------------------------------------------------------------

// Something that is no regular file (/dev/stdout, a pipe) is written to as it is.
void write_file(const std::string& path, const std::string& text) {
  const auto put = [&](std::FILE* file) {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  };
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored))
    return output_file::replace(path, put);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                             std::fclose);
  if (!file || !put(file.get()))
    throw std::runtime_error(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace

Report::Report(ProgramInfo program, Options options, DeviceInfo device, std::FILE* out)
    : program_(std::move(program)),
      options_(std::move(options)),
      device_(std::move(device)),
      out_(out) {}

void Report::limits(const Limits& limits) { limits_ = limits; }
void Report::headline(const std::string& problem) { headline_ = problem; }

void Report::table(const std::string& problem, double reference_ms, const std::string& sampled) {
  print_pending();
  if (header_printed_)
    print(fmt::format("\n{} {}   {}\n", program_.step, program_.name, problem));
  else
    print_header(problem);
  std::string line;
  if (reference_ms > 0) line = "reference on the host: " + time_text(reference_ms);
  if (!sampled.empty()) line += (line.empty() ? "" : "   ") + sampled;
  if (!line.empty()) print(line + "\n");
  tables_.push_back({problem, sampled, reference_ms, {}});
  printed_rows_ = name_width_ = 0;
}

void Report::add(const Row& row) {
  if (tables_.empty()) table("");
  tables_.back().rows.push_back(row);
  if (!row.peer) print_pending();
}

void Report::line(const std::string& text) {
  print_pending();
  if (!header_printed_) print_header("");
  print(text + "\n");
}

void Report::fact(const std::string& name, double value, const std::string& unit) {
  facts_.push_back({name, unit, value});
  line(fmt::format("{:<32} {:>10.4g} {}", name, value, unit));
}

void Report::series(const std::string& name, const std::vector<std::string>& columns,
                    const std::vector<std::vector<double>>& rows) {
  for (const Series& other : series_)
    if (other.name == name) throw std::invalid_argument("two series are named " + name);
  for (const std::vector<double>& row : rows)
    if (row.size() != columns.size())
      throw std::invalid_argument(fmt::format("series {}: a row of {} values for {} columns", name,
                                              row.size(), columns.size()));
  series_.push_back({name, columns, rows});
}

int Report::finish() {
  print_pending();
  if (!header_printed_) print_header("");
  if (!options_.json.empty()) write_file(options_.json, json());
  if (std::fflush(out_) != 0 || std::ferror(out_) != 0)
    throw std::runtime_error("the output cannot be written");
  for (const Table& table : tables_)
    for (const Row& row : table.rows)
      if (std::strcmp(status(row), "FAIL") == 0) return 1;
  return 0;
}

// At once: what is slow shows how far it has come. A file gets what is written letter by letter, a
// terminal nothing that steers it: a model may have learnt any character.
void Report::print(const std::string& text) {
  const std::string shown = isatty(fileno(out_)) != 0 ? printable_lines(text) : text;
  std::fwrite(shown.data(), 1, shown.size(), out_);
  std::fflush(out_);
}

void Report::print_header(const std::string& problem) {
  const bool is_cpu = device_.backend == "cpu";
  std::string text = fmt::format("{} {}   {}", program_.step, program_.name, program_.summary);
  if (!problem.empty()) text += "   " + problem;
  text += fmt::format("   seed {}{}\n", options_.seed, options_.quick ? "   quick" : "");
  text +=
      fmt::format("{} ({} {}{})", device_.name, device_.backend, is_cpu ? "backend, waves of " : "",
                  is_cpu ? std::to_string(device_.wave_size) : device_.toolkit);
  std::string limits;
  const auto add = [&](double value, const char* unit, const char* name) {
    if (value > 0)
      limits += fmt::format("{} {} {}", limits.empty() ? "" : ",", rate_text(value, unit), name);
  };
  add(limits_.copy, "B/s", "copy");
  add(limits_.read, "B/s", "read");
  add(limits_.fma, "FLOP/s", "fp32");
  // The CPU backend's figures are a processor's: they rank versions, they foretell no GPU.
  if (!limits.empty())
    text += fmt::format("   measured limits{}:{}", is_cpu ? " of this processor" : "", limits);
  print(text + "\n");
  header_printed_ = true;
}

// Prints the rows of the last table that are not printed yet, under its heading.
void Report::print_pending() {
  if (tables_.empty() || printed_rows_ == tables_.back().rows.size()) return;
  const std::vector<Row>& rows = tables_.back().rows;
  if (name_width_ == 0) print_columns();
  while (printed_rows_ < rows.size()) print_row(rows[printed_rows_++]);
}

void Report::print_columns() {
  const std::vector<Row>& rows = tables_.back().rows;
  name_width_ = std::strlen("version");
  for (const VersionInfo& version : program_.versions)
    name_width_ = std::max(name_width_, width_of(version.name));
  for (const Row& row : rows) name_width_ = std::max(name_width_, width_of(row.name));
  std::vector<std::pair<std::string, std::size_t>> headings;
  for (const Row* peer : peers_of(rows))
    headings.push_back({"of " + peer->name, 3 + width_of(peer->name)});
  print(line_of("version", name_width_, "time", "rate", "of limit", headings, "max error",
                "of bound", "verdict"));
}

void Report::print_row(const Row& row) {
  const Rate rate = rate_of(row, limits_);
  std::vector<std::pair<std::string, std::size_t>> shares;
  for (const Row* peer : peers_of(tables_.back().rows))
    shares.push_back(
        {row.peer ? "-" : percent_text(of_peer(row, *peer)), 3 + width_of(peer->name)});
  // A name too long for its column stands on a line of its own, so that the figures stay aligned.
  const bool fits = width_of(row.name) <= name_width_;
  if (!fits) print(row.name + "\n");
  const std::string note = row.note.empty() ? "" : "   " + row.note;
  print(line_of(fits ? row.name : "", name_width_, time_text(row.ms),
                rate_text(rate.value, rate.is_bytes ? "B/s" : "FLOP/s"),
                percent_text(rate.of_limit), shares, error_text(row), share_text(row),
                verdict_text(row) + note));
}
