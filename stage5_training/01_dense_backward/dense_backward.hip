// Runs, checks and times every version of the dense layer's backward pass.
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

using dense_backward::Shape;
using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr double kWhole = 1 << 25;  // multiplications up to which all rows are compared
constexpr size_t kRows = 8;         // rows of a gradient that are compared where there are more

double multiplications(const Shape& shape) {
  return static_cast<double>(shape.batch) * static_cast<double>(shape.in) *
         static_cast<double>(shape.out);
}

// x, w and grad_y are read; grad_w, grad_bias and grad_x are written.
double bytes(const Shape& shape) {
  const double in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  return sizeof(float) * (static_cast<double>(shape.batch) * (2 * in + out) + 2 * in * out + out);
}

// Of all of these, and of what the launches need beside them.
double device_bytes(const Shape& s) {
  const double slices = static_cast<double>(dense_backward::count_slices(s.batch, s.in, s.out));
  const double weights = static_cast<double>(s.in) * static_cast<double>(s.out);
  return bytes(s) +
         sizeof(float) * (slices * weights + static_cast<double>(2 * gemv::kMaxPartials + s.batch));
}

// The rows that are compared of one of the gradients, and what is expected there.
struct Check {
  RowSample sample;
  dense_backward::Expected expected;

  Comparison compare(const float* gradient) const {
    return sample.compare(gradient, expected.value, [&](size_t i) { return expected.bound[i]; });
  }
};

struct Problem {
  Problem(Shape sizes, std::uint64_t seed)
      : shape(sizes),
        d_x(shape.batch, shape.in),
        d_w(shape.out, shape.in),
        d_grad_y(shape.batch, shape.out),
        d_grad_w(shape.out, shape.in),
        d_grad_x(shape.batch, shape.in),
        d_grad_bias(shape.out),
        workspace(shape.batch, shape.in, shape.out) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    random_numbers::launch_fill_uniform(d_w.data(), d_w.size(), seed, 1);
    random_numbers::launch_fill_uniform(d_grad_y.data(), d_grad_y.size(), seed, 2);
    const std::vector<float> x = d_x.to_host(), w = d_w.to_host(), grad_y = d_grad_y.to_host();
    const bool whole = multiplications(shape) <= kWhole;
    of_w.sample = choose_rows(shape.out, shape.in, whole ? shape.out + 2 : kRows, seed);
    of_x.sample = choose_rows(shape.batch, shape.in, whole ? shape.batch + 2 : kRows, seed);
    of_bias.sample = choose_rows(1, shape.out, 2, seed);
    if (!whole) text = of_w.sample.text + " of grad_w and as many of grad_x";
    HostTimer timer;
    of_w.expected = dense_backward::expect_w(shape, grad_y, x, 0, {}, of_w.sample.rows);
    of_x.expected = dense_backward::expect_x(shape, grad_y, w, 0, {}, of_x.sample.rows);
    of_bias.expected = dense_backward::expect_bias(shape, grad_y, 0, {});
    reference_ms = timer.ms();
  }
  dense_backward::Layer layer() const { return {shape.in, shape.out, d_w.data(), nullptr}; }
  dense_backward::Gradients gradients() {
    return {d_grad_w.data(), d_grad_bias.data(), d_grad_x.data()};
  }
  Comparison compare() const {
    return together({of_w.compare(d_grad_w.data()), of_bias.compare(d_grad_bias.data()),
                     of_x.compare(d_grad_x.data())});
  }

  Shape shape;
  Matrix<float> d_x, d_w, d_grad_y, d_grad_w, d_grad_x;
  DeviceBuffer<float> d_grad_bias;
  dense_backward::Workspace workspace;
  Check of_w, of_bias, of_x;
  std::string text;
  double reference_ms = 0;
};

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  report.table("grad_W, grad_b, grad_X   batch " + std::to_string(shape.batch) + ", " +
                   std::to_string(shape.in) + " -> " + std::to_string(shape.out) + " float32",
               p.text.empty() ? p.reference_ms : 0, p.text);
  const Work work{bytes(shape), 4 * multiplications(shape), Work::Limit::fma};
  const std::vector<std::pair<void*, size_t>> outputs = {
      {p.d_grad_w.data(), p.d_grad_w.bytes()},
      {p.d_grad_bias.data(), p.d_grad_bias.bytes()},
      {p.d_grad_x.data(), p.d_grad_x.bytes()}};
  if (blas::available() && work.operations > 0) {
    Row row = measure(
        blas::name(), "", Needs::Any, work, outputs, options.repeat,
        [&] {
          blas::gemm(true, false, shape.out, shape.in, shape.batch, 1, p.d_grad_y.data(), shape.out,
                     p.d_x.data(), shape.in, 0, p.d_grad_w.data(), shape.in);
          blas::gemv(true, shape.batch, shape.out, 1, p.d_grad_y.data(), shape.out,
                     p.workspace.ones.data(), 0, p.d_grad_bias.data());
          blas::gemm(false, false, shape.batch, shape.in, shape.out, 1, p.d_grad_y.data(),
                     shape.out, p.d_w.data(), shape.in, 0, p.d_grad_x.data(), shape.in);
        },
        [&] { return p.compare(); });
    row.peer = true;
    report.add(row);
  }
  for (const auto& version : dense_backward::kVersions)
    if (options.wants(version.name))
      report.add(measure(
          version.name, version.lesson, version.needs, work, outputs, options.repeat,
          [&] {
            version.launch(p.gradients(), p.d_grad_y.data(), p.d_x.data(), shape.batch, p.layer(),
                           0, p.workspace, nullptr);
          },
          [&] { return p.compare(); }));
}

// The tables of a run without --size: MNIST's layers, one with a long batch, and one that is large
// both ways.
std::vector<Shape> usual_shapes(const Shape& usual, bool quick) {
  if (quick) return {usual};
  if (gpu::kBackend == std::string("cpu")) return {{64, 784, 128}, usual};
  return {{64, 128, 10}, {64, 784, 128}, {65536, 784, 128}, usual};
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "5.1",
      "dense_backward",
      "gradients of a layer: W, b and x",
      {{"batch", 4096, 128, 33}, {"in", 4096, 256, 129}, {"out", 4096, 128, 65}},
      version_infos(dense_backward::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2]};
    require_device_memory(device_bytes(usual));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes =
        options.sizes_given ? std::vector<Shape>{usual} : usual_shapes(usual, options.quick);
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
