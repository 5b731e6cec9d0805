// Runs, checks and times every version of the activations, forward and backward.
#include "stage1_vector/04_activations/activations.h"

#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/04_activations/reference.h"

using gpu::DeviceBuffer;

namespace {

constexpr int kRepeat = 10;  // timed launches of each of the many rows, unless --repeat says other

struct Problem {
  // x in [-8, 8), where the functions bend; grad_y in [-1, 1).
  Problem(size_t size, std::uint64_t seed)
      : n(size), d_x(n), d_grad_y(n), d_output(n), sample(choose_sample(n, seed)) {
    random_numbers::launch_fill_uniform(d_x.data(), n, seed, 0);
    axpy::launch_vectorized_scale(d_x.data(), 8.0f, d_x.data(), n);
    random_numbers::launch_fill_uniform(d_grad_y.data(), n, seed, 1);
    x = sample.to_host(d_x.data()), grad_y = sample.to_host(d_grad_y.data());
  }
  size_t n;
  DeviceBuffer<float> d_x, d_grad_y, d_output;
  Sample sample;
  std::vector<float> x, grad_y;  // the sampled elements
};

// One table: a pass by every version that was asked for.
//   launch(version, stream)   queues the pass
//   want, bounds              of the sampled elements
template <class Activation, class Launch>
void measure_pass(Problem& p, const Options& options, Report& report, const Work& work,
                  const std::vector<double>& want, const std::vector<double>& bounds,
                  Launch&& launch) {
  Measurement table(options);
  for (const auto& version : activations::kVersions<Activation>)
    table.version(version, {work,
                            [&](hipStream_t stream) { launch(version.launch, stream); },
                            [&] {
                              return p.sample.compare(p.d_output.data(), want,
                                                      [&](size_t i) { return bounds[i]; });
                            },
                            {{p.d_output.data(), p.d_output.bytes()}}});
  table.run(report);
}

// Two tables: f forward and f backward.
template <class Activation>
void run(Problem& p, Options options, Report& report) {
  if (options.repeat == 0) options.repeat = kRepeat;
  const double n = static_cast<double>(p.n);
  const auto begin_table = [&](const char* pass, double reference_ms) {
    report.table(std::string(Activation::kName) + pass + "   n=" + size_text(p.n) + " float32",
                 p.sample.size == p.n ? reference_ms : 0, p.sample.text);
  };

  std::vector<double> bounds(p.x.size());
  HostTimer forward_timer;
  const std::vector<double> y = activations::forward_cpu<Activation>(p.x);
  begin_table(" forward", forward_timer.ms());
  for (size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = Activation::bound(static_cast<double>(p.x[i]));
  measure_pass<Activation>(p, options, report, {2 * sizeof(float) * n, 0, Work::Limit::copy}, y,
                           bounds, [&](const activations::Launch& version, hipStream_t stream) {
                             version.forward(p.d_output.data(), p.d_x.data(), p.n, stream);
                           });

  HostTimer backward_timer;
  const std::vector<double> grad_x = activations::backward_cpu<Activation>(p.x, p.grad_y);
  begin_table(" backward", backward_timer.ms());
  for (size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = activations::backward_bound<Activation>(static_cast<double>(p.x[i]),
                                                        static_cast<double>(p.grad_y[i]));
  measure_pass<Activation>(
      p, options, report, {3 * sizeof(float) * n, 0, Work::Limit::copy}, grad_x, bounds,
      [&](const activations::Launch& version, hipStream_t stream) {
        version.backward(p.d_output.data(), p.d_grad_y.data(), p.d_x.data(), p.n, stream);
      });
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"1.4",
                            "activations",
                            "functions between layers, and their slopes",
                            {{"n", size_t{1} << 28, size_t{1} << 18, 20011}},
                            version_infos(activations::kVersions<activations::Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t n = options.sizes[0];
    require_device_memory(3.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));
    Problem problem(n, options.seed);
    activations::for_each_activation(
        [&](auto activation) { run<decltype(activation)>(problem, options, report); });
  });
}
