// What the tests of the versions of floats share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/products_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"

namespace floats_test {

using gemm_mixed::LaunchOfFloats;
using gemm_test::Extents;
using gemm_test::Numbers;
using Variant = gemm_test::Problem::Options;

// What accurate() and the versions need, poisoned and between guards.
struct Workspace {
  explicit Workspace(const gemm::Product& p, size_t offset = 0)
      : bytes(gemm_mixed::workspace_bytes(p), offset) {}
  bool is_untouched() const {
    const std::vector<unsigned char> content = bytes.to_host();
    return std::all_of(content.begin(), content.end(), [](unsigned char c) { return c == 0xFF; });
  }
  Guarded<unsigned char> bytes;
};

// Launches a version with a workspace `offset` bytes behind a 16-byte boundary.
inline auto with_workspace(LaunchOfFloats launch, size_t offset = 0) {
  return [=](const gemm::Product& p) {
    Workspace workspace(p, offset);
    launch(p, workspace.bytes.data(), nullptr);
    REQUIRE(workspace.bytes.intact());
  };
}

// Is the product right, and has `choose` launched a version that writes to the workspace?
inline void require_choice(gemm_test::Problem& problem, LaunchOfFloats choose, bool uses_it) {
  REQUIRE_OK(problem.check([&](const gemm::Product& p) {
    Workspace workspace(p);
    choose(p, workspace.bytes.data(), nullptr);
    HIP_CHECK(hipDeviceSynchronize());
    REQUIRE(workspace.bytes.intact());
    REQUIRE(workspace.is_untouched() == !uses_it);
  }));
}

// A product of integers of up to 12 bits: a tf32 holds 11. Where one matrix has such, the other one
// has small ones, so that all products and sums are exact.
inline gemm_test::Problem wide_problem(Extents size, const Variant& options = {},
                                       gemm::Layout layout = gemm::Layout::NN) {
  gemm_test::Problem problem(layout, size, options);
  const gemm::Product& p = problem.product;
  const auto widen = [](float& value, size_t i) {
    value = value * 1365 - (value > 0 ? 1 : 0) * static_cast<float>(i % 2);
  };
  for (size_t k = 0; k < p.K; ++k)
    if (k % 2 == 0)
      for (size_t row = 0; row < p.M; ++row)
        widen(layout == gemm::Layout::TN ? problem.a.at(k, row) : problem.a.at(row, k), row + k);
    else
      for (size_t col = 0; col < p.N; ++col)
        widen(layout == gemm::Layout::NT ? problem.b.at(col, k) : problem.b.at(k, col), col + k);
  problem.compute_reference();
  return problem;
}

}  // namespace floats_test
