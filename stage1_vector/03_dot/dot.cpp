// Runs, checks and times every version of the dot product.
#include "stage1_vector/03_dot/dot.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/03_dot/reference.h"

using gpu::DeviceBuffer;

namespace {

constexpr int kRuns = 100;  // of each version, to see whether the bits are always the same

struct Problem {
  Problem(size_t size, std::uint64_t random_seed)
      : n(size),
        seed(random_seed),
        d_x(n),
        d_y(n),
        d_result(1),
        d_workspace(std::vector<unsigned char>(dot::workspace_bytes(n))) {}

  // Fills x and y with numbers in [-1, 1).
  void fill_uniform() { fill(random_numbers::launch_fill_uniform); }
  // Fills x and y with small integers. The sums of their products stay below 2^24, so that float
  // adds them exactly in every order.
  void fill_integers() { fill(random_numbers::launch_fill_integers); }

  void launch(const dot::Launch& version, hipStream_t stream) {
    version.run(d_result.data(), d_x.data(), d_y.data(), n, d_workspace.data(), stream);
  }
  double depth(const dot::Launch& version) const {
    return version.depth(d_x.data(), d_y.data(), n);
  }
  Comparison compare(double depth) const {
    const float got = d_result.to_host()[0];
    return ::compare(
        1, [&](size_t) { return got; }, [&](size_t) { return want.value; },
        [&](size_t) { return dot::bound(depth, want); });
  }

  size_t n;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_y, d_result;
  DeviceBuffer<unsigned char> d_workspace;
  rounding::Sum want;
  double reference_ms = 0;

 private:
  // Fills x and y and computes the reference, a piece at a time.
  template <class Fill>
  void fill(Fill&& launch_fill) {
    launch_fill(d_x.data(), n, seed, 0, nullptr);
    launch_fill(d_y.data(), n, seed, 1, nullptr);
    want = {};
    reference_ms = 0;
    constexpr size_t kPiece = size_t{1} << 20;
    for (size_t begin = 0; begin < n; begin += kPiece) {
      const Sample piece{{{begin, std::min(kPiece, n - begin)}}, std::min(kPiece, n - begin), ""};
      const std::vector<float> x = piece.to_host(d_x.data()), y = piece.to_host(d_y.data());
      HostTimer timer;
      want += dot::dot_cpu(x, y);
      reference_ms += timer.ms();
    }
  }
};

// How many different results `runs` launches give.
size_t count_results(Problem& p, const dot::Launch& version, int runs) {
  std::set<std::uint32_t> results;
  for (int run = 0; run < runs; ++run) {
    p.launch(version, nullptr);
    const float result = p.d_result.to_host()[0];
    std::uint32_t bits = 0;
    std::memcpy(&bits, &result, sizeof bits);
    results.insert(bits);
  }
  return results.size();
}

// Says in the row's note whether the bits are always the same; refuses a deterministic version
// whose bits are not.
void check_bits(Problem& p, const dot::Launch& version, Row& row) {
  // A tenth of a second for the others; the deterministic ones are always run kRuns times.
  const int runs = version.deterministic
                       ? kRuns
                       : static_cast<int>(std::clamp(100 / row.ms, 2.0, double{kRuns}));
  const size_t results = count_results(p, version, runs);
  row.note = results == 1 ? "bit-identical over " + std::to_string(runs) + " runs"
                          : std::to_string(results) + " different results in " +
                                std::to_string(runs) + " runs";
  if (version.deterministic && results != 1) row.check.ok = false;
}

void run(Problem& p, const Options& options, Report& report) {
  const double n = static_cast<double>(p.n);
  const Work work{2 * sizeof(float) * n, 2 * n, Work::Limit::read};
  const std::vector<std::pair<void*, size_t>> outputs = {{p.d_result.data(), p.d_result.bytes()}};

  Measurement table(options);
  if (blas::available())
    table.peer(blas::name(), {work,
                              [&](hipStream_t stream) {
                                blas::dot(p.n, p.d_x.data(), p.d_y.data(), p.d_result.data(),
                                          stream);
                              },
                              [&] { return p.compare(dot::depth_of_library(n)); }, outputs});
  for (const auto& version : dot::kVersions) {
    Measured measured{work,
                      [&p, &version](hipStream_t stream) { p.launch(version.launch, stream); },
                      [&p, &version] { return p.compare(p.depth(version.launch)); }, outputs};
    measured.finish = [&p, &version](Row& row) { check_bits(p, version.launch, row); };
    table.version(version, std::move(measured));
  }

  // Rounding must not hide a product that is missed or added twice: exact sums come first.
  p.fill_integers();
  table.check_exactly();
  p.fill_uniform();
  report.table("n=" + size_text(p.n) + " float32", p.reference_ms);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"1.3",
                            "dot",
                            "sum of x[i] * y[i]",
                            {{"n", size_t{1} << 28, size_t{1} << 19, 20011}},
                            version_infos(dot::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t n = options.sizes[0];
    require_device_memory(2.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));
    Problem problem(n, options.seed);
    run(problem, options, report);
  });
}
