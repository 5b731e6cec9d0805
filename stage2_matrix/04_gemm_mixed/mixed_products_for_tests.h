// What the tests of step 2.4 share: products in guarded memory, and what each element must be.
#pragma once

#include <cstddef>
#include <vector>

#include "common/graph.h"
#include "common/guarded.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/round.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"

// Each such case runs once for fp16, once for bf16 and once for tf32.
#define FOR_EACH_TYPE(name, tags) TEMPLATE_TEST_CASE(name, tags, gpu::half, gpu::bfloat16, float)

namespace gemm_mixed_test {

using gemm_mixed::kVersions;
using gemm_mixed::round_to;
using testing::random_floats;
using testing::random_integers;

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(round_to<T>(value));
  return result;
}

struct Shape {
  size_t M, N, K;
};
// How many elements behind a 16-byte boundary a, b and c begin.
struct Offsets {
  size_t a = 0, b = 0, c = 0;
};

// The device memory of one product, guarded.
template <class T>
struct Problem {
  Problem(Shape size, const std::vector<T>& a, const std::vector<T>& b, Offsets offsets = {})
      : shape(size),
        d_a(a, offsets.a),
        d_b(b, offsets.b),
        d_c(shape.M * shape.N, offsets.c),
        want(gemm_mixed::gemm_mixed_cpu(a, b, shape.M, shape.N, shape.K)) {}

  std::vector<float> run(gemm_mixed::Launch<T> launch) {
    if (d_c.size() > 0) gpu::poison(d_c.data(), d_c.size() * sizeof(float));
    launch(d_c.data(), d_a.data(), d_b.data(), shape.M, shape.N, shape.K, nullptr);
    return d_c.to_host();
  }
  Comparison compare(const std::vector<float>& got, bool exactly) {
    const double K = static_cast<double>(shape.K);
    Comparison result = ::compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
        [&](size_t i) { return exactly ? 0.0 : gemm_mixed::mean_zero_bound(K, want.squares[i]); });
    result.ok = result.ok && d_a.intact() && d_b.intact() && d_c.intact();
    return result;
  }
  Comparison check(gemm_mixed::Launch<T> launch, bool exactly) {
    return compare(run(launch), exactly);
  }

  Shape shape;
  Guarded<T> d_a, d_b;
  Guarded<float> d_c;
  rounding::Sums want;
};

template <class T>
Problem<T> integer_problem(Shape shape, Offsets offsets = {}) {
  return Problem<T>(shape, rounded<T>(random_integers(shape.M * shape.K, 0)),
                    rounded<T>(random_integers(shape.K * shape.N, 1)), offsets);
}
template <class T>
Problem<T> random_problem(Shape shape) {
  return Problem<T>(shape, rounded<T>(random_floats(shape.M * shape.K, 0)),
                    rounded<T>(random_floats(shape.K * shape.N, 1)));
}

// Calls check(version) with each version that this device can run.
template <class T, class Check>
void for_each_version(Check&& check) {
  for (const auto& version : testing::chosen(kVersions<T>)) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    check(version.launch);
  }
}

// Captures the launch and runs the graph: the integers of `problem` must come out equal.
template <class AnyProblem, class Launch>
void require_right_in_graph(AnyProblem& problem, Launch launch) {
  gpu::Stream stream;
  const gpu::Graph graph(stream, [&] {
    launch(problem.d_c.data(), problem.d_a.data(), problem.d_b.data(), problem.shape.M,
           problem.shape.N, problem.shape.K, stream);
  });
  gpu::poison(problem.d_c.data(), problem.d_c.size() * sizeof(float));
  HIP_CHECK(hipDeviceSynchronize());
  graph.launch(stream);
  stream.wait();
  REQUIRE_OK(problem.compare(problem.d_c.to_host(), true));
}

}  // namespace gemm_mixed_test
