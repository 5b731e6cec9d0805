// Runs, checks and times every version of the two-layer network, with ReLU.
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

using activations::Relu;
using device_matrix::DeviceBuffer;
using device_matrix::Matrix;
using mlp_forward::Linear;

namespace {

constexpr size_t kRows = 64;  // samples that are compared where there are more

struct Shape {
  size_t batch, in, hidden, out;

  double weights() const {
    return static_cast<double>(hidden) * (static_cast<double>(in) + static_cast<double>(out));
  }
  double bytes() const {
    const double values = static_cast<double>(in) + static_cast<double>(out);
    const double biases = static_cast<double>(hidden) + static_cast<double>(out);
    return sizeof(float) * (static_cast<double>(batch) * values + weights() + biases);
  }
};

// A layer's parameters in device memory: weights in +-1 / sqrt(in) as when its training begins,
// bias in [-1, 1).
struct DeviceLayer {
  DeviceLayer(size_t in, size_t out, std::uint64_t seed, std::uint32_t stream)
      : d_w(out, in), d_bias(out) {
    random_numbers::launch_fill_uniform(d_w.data(), d_w.size(), seed, stream);
    random_numbers::launch_fill_uniform(d_bias.data(), out, seed, stream + 1);
    const float scale = 1 / std::sqrt(static_cast<float>(std::max(in, size_t{1})));
    axpy::launch_vectorized_scale(d_w.data(), scale, d_w.data(), d_w.size());
  }
  mlp_forward::Layer layer() const { return {d_w.cols(), d_w.rows(), d_w.data(), d_bias.data()}; }

  Matrix<float> d_w;
  DeviceBuffer<float> d_bias;
};

struct Problem {
  Problem(Shape sizes, std::uint64_t seed)
      : shape(sizes),
        first(shape.in, shape.hidden, seed, 1),
        second(shape.hidden, shape.out, seed, 3),
        d_x(shape.batch, shape.in),
        d_h(shape.batch, shape.hidden),
        d_y(shape.batch, shape.out),
        sample(choose_rows(shape.batch, shape.out, kRows, seed)) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    const RowSample of_x{sample.rows, shape.in, ""};
    const std::vector<float> x = of_x.to_host(d_x.data());
    const mlp_forward::Parameters parameters{first.d_w.to_host(), first.d_bias.to_host(),
                                             second.d_w.to_host(), second.d_bias.to_host()};
    HostTimer timer;
    want = mlp_forward::mlp_cpu<Relu>(x, parameters, sample.rows.size());
    reference_ms = timer.ms();
  }
  mlp_forward::Network network() const { return {first.layer(), second.layer()}; }
  Comparison compare() const {
    return sample.compare(d_y.data(), want.value, [&](size_t i) { return want.error[i]; });
  }

  Shape shape;
  DeviceLayer first, second;
  Matrix<float> d_x, d_h, d_y;
  RowSample sample;
  mlp_forward::Values want;
  double reference_ms = 0;
};

// The vendor's product, then step 3.1's bias and activation.
template <class Activation>
void blas_layer(float* y, const float* x, size_t batch, const mlp_forward::Layer& layer) {
  blas::gemm(false, true, batch, layer.out, layer.in, 1, x, layer.in, layer.w, layer.in, 0, y,
             layer.out);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out);
}

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  report.table("batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.in) + " -> " +
                   std::to_string(shape.hidden) + " -> " + std::to_string(shape.out) + " float32",
               p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  const Work work{shape.bytes(), 2 * static_cast<double>(shape.batch) * shape.weights(),
                  Work::Limit::fma};
  const mlp_forward::Network network = p.network();
  const auto add = [&](const char* name, const char* lesson, Needs needs, bool peer,
                       auto&& launch) {
    Row row = measure(name, lesson, needs, work, {{p.d_y.data(), p.d_y.bytes()}}, options.repeat,
                      launch, [&] { return p.compare(); });
    row.shape = {shape.batch, shape.out};
    row.peer = peer;
    if (peer) row.note = "then 3.1's bias and activation, per layer";
    report.add(row);
  };
  if (blas::available() && work.operations > 0)
    add(blas::name(), "", Needs::Any, true, [&] {
      blas_layer<Relu>(p.d_h.data(), p.d_x.data(), shape.batch, network.first);
      blas_layer<Linear>(p.d_y.data(), p.d_h.data(), shape.batch, network.second);
    });
  for (const auto& version : mlp_forward::kVersions<Relu>)
    if (options.wants(version.name))
      add(version.name, version.lesson, version.needs, false, [&] {
        version.launch(p.d_y.data(), p.d_h.data(), p.d_x.data(), shape.batch, network, nullptr);
      });
}

// The tables of a run without --size: a network for XOR, a batch of MNIST's, and a large batch.
std::vector<Shape> usual_shapes(const Shape& usual, bool quick) {
  const Shape exclusive_or{4, 2, 16, 1}, mnist{64, 784, 128, 10};
  return quick ? std::vector{exclusive_or, usual} : std::vector{exclusive_or, mnist, usual};
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "4.2",
      "mlp_forward",
      "a network: y = W2 relu(W1 x + b1) + b2",
      {{"batch", 8192, 128, 33}, {"in", 784, 256, 65}, {"hidden", 128, 64, 31}, {"out", 10, 10, 7}},
      version_infos(mlp_forward::kVersions<Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2], options.sizes[3]};
    require_device_memory(usual.bytes() + sizeof(float) * static_cast<double>(usual.batch) *
                                              static_cast<double>(usual.hidden));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes =
        options.sizes_given ? std::vector<Shape>{usual} : usual_shapes(usual, options.quick);
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
