// Runs, checks and times every version of the dense layer, with ReLU.
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage4_forward/01_dense/dense.h"

using activations::Relu;
using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr double kWhole = 1 << 26;  // multiplications up to which all rows are compared
constexpr size_t kRows = 8;         // rows that are compared where there are more

struct Shape {
  size_t batch, in, out;
};

struct Problem {
  // x and bias in [-1, 1), w in +-1 / sqrt(in) as a layer's are when its training begins.
  Problem(Shape sizes, std::uint64_t seed)
      : shape(sizes),
        d_x(shape.batch, shape.in),
        d_w(shape.out, shape.in),
        d_y(shape.batch, shape.out),
        d_bias(shape.out),
        d_partials(gemv::kMaxPartials),
        sample(choose_rows(shape.batch, shape.out,
                           operations() / 2 <= kWhole ? shape.batch + 2 : kRows, seed)) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    random_numbers::launch_fill_uniform(d_w.data(), d_w.size(), seed, 1);
    random_numbers::launch_fill_uniform(d_bias.data(), shape.out, seed, 2);
    const float scale = 1 / std::sqrt(static_cast<float>(std::max(shape.in, size_t{1})));
    axpy::launch_vectorized_scale(d_w.data(), scale, d_w.data(), d_w.size());
    const RowSample of_x{sample.rows, shape.in, ""};
    const std::vector<float> x = of_x.to_host(d_x.data());
    const std::vector<float> w = d_w.to_host(), bias = d_bias.to_host();
    HostTimer timer;
    want = dense::dense_cpu<Relu>(dense::exactly(x), w, bias, sample.rows.size());
    reference_ms = timer.ms();
  }
  double operations() const {
    return 2.0 * static_cast<double>(shape.batch) * static_cast<double>(shape.in) *
           static_cast<double>(shape.out);
  }
  dense::Layer layer() const { return {shape.in, shape.out, d_w.data(), d_bias.data()}; }
  Comparison compare() const {
    return sample.compare(d_y.data(), want.value, [&](size_t i) { return want.error[i]; });
  }

  Shape shape;
  Matrix<float> d_x, d_w, d_y;
  DeviceBuffer<float> d_bias, d_partials;
  RowSample sample;
  dense::Values want;
  double reference_ms = 0;
};

double bytes_of(const Shape& shape) {
  const double batch = static_cast<double>(shape.batch), in = static_cast<double>(shape.in);
  const double out = static_cast<double>(shape.out);
  return sizeof(float) * (batch * in + out * in + batch * out + out);
}

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  report.table("relu(X W^T + b)   batch " + std::to_string(shape.batch) + ", " +
                   std::to_string(shape.in) + " -> " + std::to_string(shape.out) + " float32",
               p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  // A single sample uses each weight once: then the time is that of reading the weights.
  const Work work{bytes_of(shape), p.operations(),
                  shape.batch == 1 ? Work::Limit::read : Work::Limit::fma};
  const auto add = [&](const char* name, const char* lesson, Needs needs, bool peer,
                       auto&& launch) {
    Row row = measure(name, lesson, needs, work, {{p.d_y.data(), p.d_y.bytes()}}, options.repeat,
                      launch, [&] { return p.compare(); });
    row.shape = {shape.batch, shape.out};
    row.peer = peer;
    if (peer) row.note = "then 3.1's bias and activation";
    report.add(row);
  };
  if (blas::available() && work.operations > 0)
    add(blas::name(), "", Needs::Any, true, [&] {
      blas::gemm(false, true, shape.batch, shape.out, shape.in, 1, p.d_x.data(), shape.in,
                 p.d_w.data(), shape.in, 0, p.d_y.data(), shape.out);
      matrix_activations::launch_forward_vectorized<Relu>(p.d_y.data(), p.d_y.data(),
                                                          p.d_bias.data(), shape.batch, shape.out);
    });
  for (const auto& version : dense::kVersions<Relu>)
    if (options.wants(version.name))
      add(version.name, version.lesson, version.needs, false, [&] {
        version.launch(p.d_y.data(), p.d_x.data(), shape.batch, p.layer(), {p.d_partials.data()},
                       nullptr);
      });
}

// The tables of a run without --size: MNIST's first layer, one that keeps the device busy, and a
// single sample.
std::vector<Shape> usual_shapes(const Shape& usual, bool quick) {
  if (quick) return {usual, {1, 255, 129}};
  return {{64, 784, 128}, usual, {1, usual.in, usual.out}};
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "4.1",
      "dense",
      "a layer: y = relu(x W^T + b)",
      {{"batch", 4096, 32, 33}, {"in", 4096, 256, 129}, {"out", 4096, 128, 65}},
      version_infos(dense::kVersions<Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2]};
    require_device_memory(bytes_of(usual) +
                          sizeof(float) * static_cast<double>(gemv::kMaxPartials));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes =
        options.sizes_given ? std::vector<Shape>{usual} : usual_shapes(usual, options.quick);
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
