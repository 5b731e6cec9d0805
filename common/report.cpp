#include "common/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "common/output_file.h"
#include "common/printable.h"

namespace {

using Json = nlohmann::ordered_json;  // keeps the order in which keys are added

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

// How fast a row was, by the measure of the limit that it is held against.
struct Rate {
  double value = 0;  // per second; 0: not timed, or no work stated
  bool is_bytes = true;
  const char* limit_name = "none";
  double of_limit = 0;  // 0: the limit is unknown
};

Rate rate_of(const Row& row, const Limits& limits) {
  Rate rate;
  double limit = 0;
  switch (row.work.limit) {
    case Work::Limit::copy:
      rate.limit_name = "copy", limit = limits.copy;
      break;
    case Work::Limit::read:
      rate.limit_name = "read", limit = limits.read;
      break;
    case Work::Limit::fma:
      rate.limit_name = "fma", limit = limits.fma, rate.is_bytes = false;
      break;
    case Work::Limit::none:
      rate.is_bytes = row.work.bytes > 0;
      break;
  }
  const double work = rate.is_bytes ? row.work.bytes : row.work.operations;
  if (row.ms > 0) rate.value = work / (row.ms / 1e3);
  if (limit > 0) rate.of_limit = rate.value / limit;
  return rate;
}

// The peers that the versions of a table are held against: the timed ones at its top.
std::vector<const Row*> peers_of(const std::vector<Row>& rows) {
  std::vector<const Row*> peers;
  for (const Row& row : rows) {
    if (!row.peer) break;
    if (row.ms > 0) peers.push_back(&row);
  }
  return peers;
}

// The peer's time over the row's: above 1, the row is faster. 0: the row was not timed.
double of_peer(const Row& row, const Row& peer) { return row.ms > 0 ? peer.ms / row.ms : 0; }

const char* status(const Row& row) {
  if (!row.skipped.empty()) return "skipped";
  return row.check.ok && row.missed.empty() ? "ok" : "FAIL";
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

bool was_compared(const Row& row) { return row.skipped.empty() && row.check.compared > 0; }

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

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc;
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// A figure that was not taken is null; so is, in nlohmann-json, NaN or infinity.
Json figure(double value) { return value == 0 ? Json() : Json(value); }

// A name that is not UTF-8 is repaired instead of refused: a device's name is the driver's.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json row_json(const Row& row, const std::vector<const Row*>& peers, const Limits& limits) {
  const Rate rate = rate_of(row, limits);
  const Comparison& check = row.check;
  const bool compared = was_compared(row);
  Json shares = Json::object();
  for (const Row* peer : peers)
    if (!row.peer && row.ms > 0) shares[peer->name] = of_peer(row, *peer);
  return {{"name", row.name},
          {"lesson", row.lesson},
          {"peer", row.peer},
          {"status", status(row)},
          {"skipped", row.skipped},
          {"ms", figure(row.ms)},
          {"ms_p10", figure(row.ms_p10)},
          {"ms_p90", figure(row.ms_p90)},
          {"rate", figure(rate.value)},
          {"rate_unit", rate.is_bytes ? "B/s" : "operations/s"},
          {"of_limit", figure(rate.of_limit)},
          {"limit", rate.limit_name},
          {"of_peer", shares},
          {"max_error", compared ? Json(check.max_error) : Json()},
          {"of_bound", compared ? Json(check.of_bound) : Json()},
          {"bound", compared ? Json(check.bound) : Json()},
          {"index", check.index},
          {"first", check.first},
          {"compared", check.compared},
          {"failed", check.failed},
          {"unwritten", check.unwritten},
          {"note", row.note}};
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

std::string Report::json() const {
  Json tables = Json::array(), facts = Json::array();
  std::string headline = tables_.empty() ? "" : tables_.front().problem;
  for (const Table& table : tables_)
    if (table.problem == headline_) headline = headline_;
  for (const Table& table : tables_) {
    Json rows = Json::array();
    for (const Row& row : table.rows) rows.push_back(row_json(row, peers_of(table.rows), limits_));
    tables.push_back({{"problem", table.problem},
                      {"sampled", table.sampled},
                      {"reference_ms", figure(table.reference_ms)},
                      {"rows", rows}});
  }
  for (const Fact& fact : facts_)
    facts.push_back({{"name", fact.name}, {"value", fact.value}, {"unit", fact.unit}});
  Json dimensions = Json::array();
  for (const Size& size : program_.sizes) dimensions.push_back(size.name);
  const Json report = {{"schema", 1},
                       {"step", program_.step},
                       {"program", program_.name},
                       {"summary", program_.summary},
                       {"date", date_now()},
                       {"commit", build_commit()},
                       {"headline", headline},
                       {"quick", options_.quick},
                       {"dimensions", dimensions},
                       {"seed", options_.seed},
                       {"device",
                        {{"name", device_.name},
                         {"backend", device_.backend},
                         {"toolkit", device_.toolkit},
                         {"wave_size", device_.wave_size},
                         {"multiprocessors", device_.multiprocessors}}},
                       {"limits",
                        {{"copy_bytes_per_s", figure(limits_.copy)},
                         {"read_bytes_per_s", figure(limits_.read)},
                         {"fma_operations_per_s", figure(limits_.fma)}}},
                       {"tables", tables},
                       {"facts", facts}};
  // The series by hand, one line for each row: a picture has thousands of them.
  std::string text = dump(report, 1);
  text.erase(text.rfind("\n}"));
  text += ",\n \"series\": {";
  for (const Series& series : series_) {
    text += fmt::format("{}\n  {}: {{\n   \"columns\": {},\n   \"rows\": [",
                        &series == &series_.front() ? "" : ",", dump(series.name),
                        dump(series.columns));
    for (const std::vector<double>& row : series.rows)
      text += fmt::format("{}\n    {}", &row == &series.rows.front() ? "" : ",", dump(row));
    text += series.rows.empty() ? "]\n  }" : "\n   ]\n  }";
  }
  text += series_.empty() ? "}\n}\n" : "\n }\n}\n";
  return text;
}
