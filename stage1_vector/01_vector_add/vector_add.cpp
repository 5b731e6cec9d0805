// Runs, checks and times every version of c = a + b and c = a * b.
#include "stage1_vector/01_vector_add/vector_add.h"

#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/01_vector_add/reference.h"

namespace {

// a and b, filled on the device, the place for c, and what part of c is compared.
struct Problem {
  Problem(size_t size, std::uint64_t seed)
      : n(size), d_a(n), d_b(n), d_c(n), sample(choose_sample(n, seed)) {
    random_numbers::launch_fill_uniform(d_a.data(), n, seed, 0);
    random_numbers::launch_fill_uniform(d_b.data(), n, seed, 1);
  }
  size_t n;
  gpu::DeviceBuffer<float> d_a, d_b, d_c;
  Sample sample;
};

// One table: one formula by every version that was asked for.
struct Formula {
  const char* text;
  vector_add::Launch::Function vector_add::Launch::*function;
  std::vector<double> (*reference)(const std::vector<float>& a, const std::vector<float>& b);
};

constexpr Formula kFormulas[] = {
    {"c = a + b", &vector_add::Launch::add, vector_add::add_cpu},
    {"c = a * b", &vector_add::Launch::multiply, vector_add::multiply_cpu},
};

void run(const Formula& formula, Problem& p, const Options& options, Report& report) {
  const std::vector<float> a = p.sample.to_host(p.d_a.data()), b = p.sample.to_host(p.d_b.data());
  HostTimer timer;
  const std::vector<double> want = formula.reference(a, b);
  const double reference_ms = p.sample.size == p.n ? timer.ms() : 0;
  report.table(std::string(formula.text) + "   n=" + size_text(p.n) + " float32", reference_ms,
               p.sample.text);

  const double n = static_cast<double>(p.n);
  const Work work{3 * sizeof(float) * n, n, Work::Limit::copy};
  Measurement table(options);
  for (const auto& version : vector_add::kVersions) {
    const auto launch = version.launch.*formula.function;
    table.version(version, {work,
                            [&p, launch](hipStream_t stream) {
                              launch(p.d_c.data(), p.d_a.data(), p.d_b.data(), p.n, stream);
                            },
                            [&] {
                              return p.sample.compare(p.d_c.data(), want, [&](size_t i) {
                                return vector_add::bound(want[i]);
                              });
                            },
                            {{p.d_c.data(), p.d_c.bytes()}}});
  }
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"1.1",
                            "vector_add",
                            "sums and products, element by element",
                            {{"n", size_t{1} << 28, size_t{1} << 22, 100003}},
                            version_infos(vector_add::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t n = options.sizes[0];
    require_device_memory(3.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));

    Problem problem(n, options.seed);
    for (const Formula& formula : kFormulas) run(formula, problem, options, report);
  });
}
