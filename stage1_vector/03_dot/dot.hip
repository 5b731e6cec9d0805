// Runs, checks and times every version of the dot product.
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/03_dot/dot.h"

using device_matrix::DeviceBuffer;

namespace {

constexpr int kRuns = 100;  // of each version, to see whether the bits are always the same

// values[i] = the integer nearest to 3 values[i].
static __global__ void round_to_integers(float* values, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    values[i] = rintf(3.0f * values[i]);
}

struct Problem {
  Problem(size_t size, std::uint64_t random_seed)
      : n(size),
        seed(random_seed),
        d_x(n),
        d_y(n),
        d_result(1),
        d_partials(dot::kMaxBlocks),
        d_finished(std::vector<unsigned>{0}) {}

  // Fills x and y with numbers in [-1, 1), or with integers in [-3, 3], and computes the reference.
  // The integers' sums stay far below 2^24, so that float adds them exactly in every order.
  void fill(bool integers) {
    random_numbers::launch_fill_uniform(d_x.data(), n, seed, 0);
    random_numbers::launch_fill_uniform(d_y.data(), n, seed, 1);
    if (integers && n > 0)
      for (float* values : {d_x.data(), d_y.data()})
        LAUNCH(round_to_integers, dot::dot_blocks(n), dot::kBlock, 0, values, n);
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
  void launch(const dot::Launch& version) {
    version.run(d_result.data(), d_x.data(), d_y.data(), n, {d_partials.data(), d_finished.data()});
  }
  Comparison compare(double bound) const {
    const float got = d_result.to_host()[0];
    return ::compare(
        1, [&](size_t) { return got; }, [&](size_t) { return want.dot; },
        [&](size_t) { return bound; });
  }

  size_t n;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_y, d_result, d_partials;
  DeviceBuffer<unsigned> d_finished;
  dot::Sums want;
  double reference_ms = 0;
};

// How many different results `runs` launches give.
size_t count_results(Problem& p, const dot::Launch& version, int runs) {
  std::set<std::uint32_t> results;
  for (int run = 0; run < runs; ++run) {
    p.launch(version);
    const float result = p.d_result.to_host()[0];
    std::uint32_t bits = 0;
    std::memcpy(&bits, &result, sizeof bits);
    results.insert(bits);
  }
  return results.size();
}

void run(Problem& p, const Options& options, Report& report) {
  // Rounding must not hide an element that is missed or added twice: first exact sums.
  p.fill(true);
  std::vector<Comparison> exact;
  for (const auto& version : dot::kVersions) {
    if (!options.wants(version.name)) continue;
    p.d_result.poison();
    p.launch(version.launch);
    exact.push_back(p.compare(0));
  }

  p.fill(false);
  report.table("n=" + size_text(p.n) + " float32", p.reference_ms);
  const double n = static_cast<double>(p.n);
  const Work work{2 * sizeof(float) * n, 2 * n, Work::Limit::read};
  if (blas::available()) {
    Row row = measure(
        blas::name(), "", Needs::Any, work, {{p.d_result.data(), p.d_result.bytes()}},
        options.repeat, [&] { blas::dot(p.n, p.d_x.data(), p.d_y.data(), p.d_result.data()); },
        [&] { return p.compare(dot::bound(n, n, p.want.absolute)); });
    row.peer = true;
    report.add(row);
  }
  const dot::Split split = dot::split_vectors(p.n, {p.d_x.data(), p.d_y.data()});
  size_t next = 0;
  for (const auto& version : dot::kVersions) {
    if (!options.wants(version.name)) continue;
    const Comparison& exact_check = exact[next++];
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{p.d_result.data(), p.d_result.bytes()}}, options.repeat,
        [&] { p.launch(version.launch); },
        [&] {
          const double roundings = version.launch.roundings(split);
          const Comparison rounded = p.compare(dot::bound(roundings, n, p.want.absolute));
          return exact_check.ok ? rounded : exact_check;
        });
    if (row.check.ok) {
      // A tenth of a second for the others; the deterministic ones are always run kRuns times.
      const int runs = version.launch.deterministic
                           ? kRuns
                           : static_cast<int>(std::clamp(100 / row.ms, 2.0, double{kRuns}));
      const size_t results = count_results(p, version.launch, runs);
      row.note = results == 1 ? "bit-identical over " + std::to_string(runs) + " runs"
                              : std::to_string(results) + " different results in " +
                                    std::to_string(runs) + " runs";
      if (version.launch.deterministic && results != 1) row.check.ok = false;
    }
    report.add(row);
  }
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
