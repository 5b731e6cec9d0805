// Runs, checks and times every version of the dense layer, with ReLU.
#include "stage4_forward/01_dense/dense.h"

#include <utility>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/problem.h"
#include "stage4_forward/01_dense/reference.h"

using activations::Relu;
using dense::Shape;
using gpu::DeviceBuffer;

namespace {

// A layer on the device, a batch for it, and what is expected.
struct Problem {
  Problem(const Shape& sizes, std::uint64_t random_seed)
      : shape(sizes),
        seed(random_seed),
        d_x(shape.batch * shape.in),
        d_w(shape.out * shape.in),
        d_bias(shape.out),
        d_y(shape.batch * shape.out),
        d_partials(gemv::kMaxPartials),
        sample(dense::rows_of(shape, seed)) {}

  // Fills x, w and bias with integers in [-3, 3], whose sums float adds exactly in every order.
  void fill_integers() {
    fill(random_numbers::launch_fill_integers);
    expect(), is_exact = true;
  }
  // x and bias in [-1, 1), w as when a training begins.
  void fill_uniform() {
    fill(random_numbers::launch_fill_uniform);
    axpy::launch_vectorized_scale(d_w.data(), dense::weight_scale(shape), d_w.data(), d_w.size());
    expect(), is_exact = false;
  }
  dense::Layer layer() const { return {shape.in, shape.out, d_w.data(), d_bias.data()}; }
  Comparison compare() const {
    return sample.compare(d_y.data(), want.value,
                          [&](size_t i) { return is_exact ? 0 : want.error[i]; });
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_w, d_bias, d_y, d_partials;
  RowSample sample;
  dense::Values want;
  bool is_exact = false;
  double reference_ms = 0;

 private:
  template <class Fill>
  void fill(Fill&& launch_fill) {
    launch_fill(d_x.data(), d_x.size(), seed, 0, nullptr);
    launch_fill(d_w.data(), d_w.size(), seed, 1, nullptr);
    launch_fill(d_bias.data(), d_bias.size(), seed, 2, nullptr);
  }
  void expect() {
    const RowSample of_x{sample.rows, shape.in, ""};
    const std::vector<float> x = of_x.to_host(d_x.data());
    const std::vector<float> w = d_w.to_host(), bias = d_bias.to_host();
    HostTimer timer;
    want = dense::dense_cpu<Relu>(dense::exactly(x), w, bias, sample.rows.size(),
                                  dense::Terms::mean_zero);
    reference_ms = timer.ms();
  }
};

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  // A single sample uses each weight once: then the time is that of reading the weights.
  const Work work{dense::bytes(shape), dense::operations(shape),
                  shape.batch == 1 ? Work::Limit::read : Work::Limit::fma};
  const auto measured = [&](auto launch) {
    Measured result{work, launch, [&] { return p.compare(); }, {{p.d_y.data(), p.d_y.bytes()}}};
    result.shape = {shape.batch, shape.out};
    return result;
  };
  Measurement table(options);
  if (blas::available() && work.operations > 0) {
    Measured peer = measured([&](hipStream_t stream) {
      blas::gemm(false, true, shape.batch, shape.out, shape.in, 1, p.d_x.data(), shape.in,
                 p.d_w.data(), shape.in, 0, p.d_y.data(), shape.out, stream);
      matrix_activations::launch_forward_vectorized<Relu>(
          p.d_y.data(), p.d_y.data(), p.d_bias.data(), shape.batch, shape.out, stream);
    });
    peer.note = "then 3.1's bias and activation";
    table.peer(blas::name(), std::move(peer));
  }
  for (const auto& version : dense::kVersions<Relu>)
    table.version(version, measured([&](hipStream_t stream) {
                    version.launch(p.d_y.data(), p.d_x.data(), shape.batch, p.layer(),
                                   {p.d_partials.data()}, stream);
                  }));

  // Rounding must not hide a term that is missed or added twice: exact sums come first.
  p.fill_integers();
  table.check_exactly();
  p.fill_uniform();
  report.table(dense::name(shape), p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"4.1", "dense", "a layer: y = relu(x W^T + b)", dense::sizes(),
                            version_infos(dense::kVersions<Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2]};
    require_device_memory(dense::bytes(usual) +
                          sizeof(float) * static_cast<double>(gemv::kMaxPartials));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes = dense::printed(usual, options.sizes_given, options.quick);
    report.headline(dense::name(shapes.front()));
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
