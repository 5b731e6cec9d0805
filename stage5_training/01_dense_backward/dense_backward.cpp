// Runs, checks and times every version of the dense layer's backward pass.
#include "stage5_training/01_dense_backward/dense_backward.h"

#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/01_dense_backward/problem.h"
#include "stage5_training/01_dense_backward/reference.h"

using dense_backward::Expected;
using dense_backward::Shape;
using gpu::DeviceBuffer;

namespace {

// A layer on the device with its gradients, and what is expected of them.
struct Problem {
  Problem(const Shape& sizes, std::uint64_t random_seed)
      : shape(sizes),
        seed(random_seed),
        d_x(shape.batch * shape.in),
        d_w(shape.out * shape.in),
        d_grad_y(shape.batch * shape.out),
        d_grad_w(shape.out * shape.in),
        d_grad_bias(shape.out),
        d_grad_x(shape.batch * shape.in),
        workspace(shape.batch, shape.in, shape.out),
        samples(dense_backward::samples_of(shape, seed)) {}

  // Fills x, w and grad_y with integers in [-3, 3], whose sums float adds exactly in every order,
  // or with numbers in [-1, 1). Computes the reference.
  void fill_integers() { fill(random_numbers::launch_fill_integers), is_exact = true; }
  void fill_uniform() { fill(random_numbers::launch_fill_uniform), is_exact = false; }

  dense_backward::Layer layer() const { return {shape.in, shape.out, d_w.data(), nullptr}; }
  dense_backward::Gradients gradients() {
    return {d_grad_w.data(), d_grad_bias.data(), d_grad_x.data()};
  }
  Comparison compare() const {
    const auto check = [&](const RowSample& sample, const float* gradient, const Expected& want) {
      return sample.compare(gradient, want.value,
                            [&](size_t i) { return is_exact ? 0 : want.mean_zero_bound[i]; });
    };
    return together({check(samples.w, d_grad_w.data(), expected.w),
                     check(samples.bias, d_grad_bias.data(), expected.bias),
                     check(samples.x, d_grad_x.data(), expected.x)});
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_w, d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  dense_backward::Workspace workspace;
  dense_backward::Samples samples;
  dense_backward::ExpectedGradients expected;
  bool is_exact = false;
  double reference_ms = 0;

 private:
  template <class Fill>
  void fill(Fill&& launch_fill) {
    launch_fill(d_x.data(), d_x.size(), seed, 0, nullptr);
    launch_fill(d_w.data(), d_w.size(), seed, 1, nullptr);
    launch_fill(d_grad_y.data(), d_grad_y.size(), seed, 2, nullptr);
    const std::vector<float> x = d_x.to_host(), w = d_w.to_host(), grad_y = d_grad_y.to_host();
    HostTimer timer;
    expected = dense_backward::expect(shape, samples, x, w, grad_y);
    reference_ms = timer.ms();
  }
};

void run(const Shape& shape, const dense_backward::Branches& branches, const Options& options,
         Report& report) {
  Problem p(shape, options.seed);
  const Work work{dense_backward::bytes(shape), 4 * dense_backward::multiplications(shape),
                  Work::Limit::fma};
  const auto measured = [&](auto launch) {
    return Measured{work,
                    launch,
                    [&] { return p.compare(); },
                    {{p.d_grad_w.data(), p.d_grad_w.bytes()},
                     {p.d_grad_bias.data(), p.d_grad_bias.bytes()},
                     {p.d_grad_x.data(), p.d_grad_x.bytes()}}};
  };
  Measurement table(options);
  if (blas::available() && work.operations > 0)
    table.peer(
        blas::name(), measured([&](hipStream_t stream) {
          blas::gemm(true, false, shape.out, shape.in, shape.batch, 1, p.d_grad_y.data(), shape.out,
                     p.d_x.data(), shape.in, 0, p.d_grad_w.data(), shape.in, stream);
          blas::gemv(true, shape.batch, shape.out, 1, p.d_grad_y.data(), shape.out,
                     p.workspace.ones.data(), 0, p.d_grad_bias.data(), stream);
          blas::gemm(false, false, shape.batch, shape.in, shape.out, 1, p.d_grad_y.data(),
                     shape.out, p.d_w.data(), shape.in, 0, p.d_grad_x.data(), shape.in, stream);
        }));
  for (const auto& version : dense_backward::kVersions)
    table.version(version, measured([&](hipStream_t stream) {
                    version.launch(p.gradients(), p.d_grad_y.data(), p.d_x.data(), shape.batch,
                                   p.layer(), 0, p.workspace, {stream, &branches});
                  }));

  // Rounding must not hide a term that is missed or added twice: exact sums come first.
  p.fill_integers();
  table.check_exactly();
  p.fill_uniform();
  report.table(dense_backward::name(shape), p.samples.text.empty() ? p.reference_ms : 0,
               p.samples.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.1", "dense_backward", "gradients of a layer: W, b and x",
                            dense_backward::sizes(), version_infos(dense_backward::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2]};
    require_device_memory(dense_backward::device_bytes(usual));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes =
        dense_backward::printed(usual, options.sizes_given || options.quick);
    report.headline(dense_backward::name(usual));
    const dense_backward::Branches branches;
    for (const Shape& shape : shapes) run(shape, branches, options, report);
  });
}
