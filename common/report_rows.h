// What a report says of a row, printed (report.cpp) and as JSON (report_json.cpp) alike.
#pragma once

#include <vector>

#include "common/report.h"

namespace report_rows {

// How fast a row was, by the measure of the limit that it is held against.
struct Rate {
  double value = 0;  // per second; 0: not timed, or no work stated
  bool is_bytes = true;
  const char* limit_name = "none";
  double of_limit = 0;  // 0: the limit is unknown
};

Rate rate_of(const Row& row, const Limits& limits);

// The peers that the versions of a table are held against: the timed ones at its top.
std::vector<const Row*> peers_of(const std::vector<Row>& rows);
// The peer's time over the row's: above 1, the row is faster. 0: the row was not timed.
double of_peer(const Row& row, const Row& peer);

// "ok", "FAIL" or "skipped".
const char* status(const Row& row);
bool was_compared(const Row& row);

}  // namespace report_rows
