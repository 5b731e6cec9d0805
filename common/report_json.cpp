// A report as JSON, schema 1.
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/report.h"
#include "common/report_rows.h"

using report_rows::of_peer;
using report_rows::peers_of;
using report_rows::Rate;
using report_rows::rate_of;
using report_rows::status;
using report_rows::was_compared;

namespace {

using Json = nlohmann::ordered_json;  // keeps the order in which keys are added

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
