// What a report says of a row: its rate, its peers, its status.
#include "common/report_rows.h"

namespace report_rows {

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

std::vector<const Row*> peers_of(const std::vector<Row>& rows) {
  std::vector<const Row*> peers;
  for (const Row& row : rows) {
    if (!row.peer) break;
    if (row.ms > 0) peers.push_back(&row);
  }
  return peers;
}

double of_peer(const Row& row, const Row& peer) { return row.ms > 0 ? peer.ms / row.ms : 0; }

const char* status(const Row& row) {
  if (!row.skipped.empty()) return "skipped";
  return row.check.ok && row.missed.empty() ? "ok" : "FAIL";
}

bool was_compared(const Row& row) { return row.skipped.empty() && row.check.compared > 0; }

}  // namespace report_rows
