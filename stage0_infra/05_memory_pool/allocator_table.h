// The rows of a table of allocators: each is checked, and all are timed in interleaved rounds.
#pragma once

#include <functional>
#include <vector>

#include "common/options.h"
#include "common/report.h"
#include "stage0_infra/05_memory_pool/memory_pool.h"
#include "stage0_infra/05_memory_pool/trace.h"

namespace memory_pool {

// Tries every allocator that the user wants with `checked`, block by block, then times it on
// `trace`, and adds its row to the report's last table. finish(row, allocator) is called with what
// has passed and was timed, before its row is added. Returns the rows.
std::vector<Row> measure_allocators(
    const std::vector<Version<Launch>>& versions, const Trace& trace, const Trace& checked,
    const Options& options, Report& report,
    const std::function<void(Row&, Allocator&)>& finish = [](Row&, Allocator&) {});

}  // namespace memory_pool
