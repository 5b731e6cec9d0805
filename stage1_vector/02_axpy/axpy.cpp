// Runs, checks and times every version of y = alpha * x and y = alpha * x + y.
#include "stage1_vector/02_axpy/axpy.h"

#include <string>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/reference.h"

using gpu::DeviceBuffer;

namespace {

// Near 1, so that the timed launches, which update y again and again, keep its size.
constexpr float kAlpha = -0.9990234375f;

struct Problem {
  Problem(size_t size, std::uint64_t seed)
      : n(size), d_x(n), d_y(n), d_first_y(n), sample(choose_sample(n, seed)) {
    random_numbers::launch_fill_uniform(d_x.data(), n, seed, 0);
    random_numbers::launch_fill_uniform(d_first_y.data(), n, seed, 1);
    x = sample.to_host(d_x.data()), y = sample.to_host(d_first_y.data());
  }

  Work work(double arrays, double operations) const {
    const double elements = static_cast<double>(n);
    return {arrays * sizeof(float) * elements, operations * elements, Work::Limit::copy};
  }
  // d_y = the array `from`: each checked launch begins with the same numbers.
  void reset(const DeviceBuffer<float>& from) {
    if (n > 0) HIP_CHECK(hipMemcpy(d_y.data(), from.data(), from.bytes(), hipMemcpyDeviceToDevice));
  }
  std::string title(const std::string& formula) const {
    return formula + "   n=" + size_text(n) + " float32";
  }
  void begin_table(Report& report, const std::string& formula, double reference_ms) const {
    report.table(title(formula), sample.size == n ? reference_ms : 0, sample.text);
  }

  size_t n;
  DeviceBuffer<float> d_x, d_y, d_first_y;
  Sample sample;
  std::vector<float> x, y;  // the sampled elements of d_x and d_first_y
};

// y = alpha * x. The versions write y beside x; the library's scal works in place, on a copy of x:
// both read and write n floats.
void run_scale(Problem& p, const Options& options, Report& report) {
  HostTimer timer;
  const std::vector<double> want = axpy::scale_cpu(kAlpha, p.x);
  p.begin_table(report, "y = alpha * x", timer.ms());
  const Work work = p.work(2, 1);
  const auto verify = [&] {
    return p.sample.compare(p.d_y.data(), want, [&](size_t i) { return axpy::bound(0, want[i]); });
  };
  Measurement table(options);
  if (blas::available()) {
    Measured library{
        work, [&](hipStream_t stream) { blas::scal(p.n, kAlpha, p.d_y.data(), stream); }, verify};
    library.prepare = [&] { p.reset(p.d_x); };
    table.peer(blas::name(), std::move(library));
  }
  for (const auto& version : axpy::kVersions)
    table.version(version, {work,
                            [&](hipStream_t stream) {
                              version.launch.scale(p.d_y.data(), kAlpha, p.d_x.data(), p.n, stream);
                            },
                            verify,
                            {{p.d_y.data(), p.d_y.bytes()}}});
  table.run(report);
}

// y = alpha * x + y reads what it overwrites, so y begins with its first numbers instead of poison:
// an element that a version forgets still holds them, and they are not the result.
void run_axpy(Problem& p, const Options& options, Report& report) {
  HostTimer timer;
  const std::vector<double> want = axpy::axpy_cpu(kAlpha, p.x, p.y);
  p.begin_table(report, "y = alpha * x + y", timer.ms());
  const Work work = p.work(3, 2);
  const auto verify = [&] {
    return p.sample.compare(p.d_y.data(), want, [&](size_t i) {
      return axpy::bound(static_cast<double>(kAlpha) * static_cast<double>(p.x[i]), want[i]);
    });
  };
  Measurement table(options);
  const auto make_row = [&](auto&& launch) {
    Measured row{work, launch, verify};
    row.prepare = [&] { p.reset(p.d_first_y); };
    return row;
  };
  if (blas::available())
    table.peer(blas::name(), make_row([&](hipStream_t stream) {
                 blas::axpy(p.n, kAlpha, p.d_x.data(), p.d_y.data(), stream);
               }));
  for (const auto& version : axpy::kVersions)
    table.version(version, make_row([&](hipStream_t stream) {
                    version.launch.axpy(p.d_y.data(), kAlpha, p.d_x.data(), p.n, stream);
                  }));
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"1.2",
                            "axpy",
                            "scaling, and adding what was scaled",
                            {{"n", size_t{1} << 28, size_t{1} << 22, 100003}},
                            version_infos(axpy::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t n = options.sizes[0];
    require_device_memory(3.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));
    Problem problem(n, options.seed);
    report.headline(problem.title("y = alpha * x + y"));
    run_scale(problem, options, report);
    run_axpy(problem, options, report);
  });
}
