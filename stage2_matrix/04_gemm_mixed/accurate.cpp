#include "stage2_matrix/04_gemm_mixed/accurate.h"

#include <algorithm>

#include "common/program.h"

namespace gemm_mixed {

namespace {

bool has_sm90() {
  static const bool has = missing(kNeedsOfSm90).empty();
  return has;
}

// With all multiprocessors busy it is more than twice as fast as float units, so half of them are
// enough. Its blocks have 256 x 128 tiles, in pairs.
bool suits_three_products(const gemm::Product& p, const void* workspace) {
  return has_sm90() && three_products_take(p, workspace) &&
         2 * gpu::ceil_div(p.M, size_t{256}) * gpu::ceil_div(p.N, size_t{256}) >=
             gpu::multiprocessors() / 2;
}

// Its blocks have 256 x 128 tiles, one per multiprocessor at a time: fewer leave some without work.
// Short sums are done before four stages are under way. Where blocks share the tiles of the last
// round, the parts are added, too: on an H100 512 terms were too few for that, and 1024 enough.
bool suits_ring(const gemm::Product& p, const void* workspace) {
  constexpr size_t kManyTerms = 512, kManyShared = 1024;
  const size_t tiles = gpu::ceil_div(p.M, size_t{256}) * gpu::ceil_div(p.N, size_t{128});
  const size_t at_a_time = gpu::multiprocessors();
  const bool shares = tiles > at_a_time && tiles % at_a_time > 0;
  return has_sm90() && p.K >= (shares ? kManyShared : kManyTerms) &&
         float_ring_takes(p, workspace) && 10 * tiles >= 9 * at_a_time;
}

}  // namespace

size_t workspace_bytes(const gemm::Product& p) {
  return std::max(three_products_bytes(p), float_ring_bytes(p));
}

void launch_float_units(const gemm::Product& p, void* /*workspace*/, hipStream_t stream) {
  gemm::best(p, stream);
}

void float_best(const gemm::Product& p, void* workspace, hipStream_t stream) {
  gemm::check(p);
  suits_ring(p, workspace) ? launch_float_ring(p, workspace, stream) : gemm::best(p, stream);
}

void accurate(const gemm::Product& p, void* workspace, hipStream_t stream) {
  gemm::check(p);
  if (!suits_three_products(p, workspace)) return float_best(p, workspace, stream);
  launch_three_products(p, workspace, stream);
}

}  // namespace gemm_mixed
