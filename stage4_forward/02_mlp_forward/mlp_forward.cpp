// Runs, checks and times every version of the two-layer network, with ReLU.
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

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
#include "stage4_forward/02_mlp_forward/problem.h"
#include "stage4_forward/02_mlp_forward/reference.h"

using activations::Relu;
using gpu::DeviceBuffer;
using mlp_forward::Linear;
using mlp_forward::Shape;

namespace {

enum class Numbers { integers, uniform };  // [-3, 3], or [-1, 1) and weights as a training's begin

// A layer's parameters in device memory.
struct DeviceLayer {
  DeviceLayer(size_t inputs, size_t outputs)
      : in(inputs), out(outputs), d_w(out * in), d_bias(out) {}

  void fill(Numbers numbers, std::uint64_t seed, std::uint32_t stream) {
    const auto launch_fill = numbers == Numbers::integers ? random_numbers::launch_fill_integers
                                                          : random_numbers::launch_fill_uniform;
    launch_fill(d_w.data(), d_w.size(), seed, stream, nullptr);
    launch_fill(d_bias.data(), out, seed, stream + 1, nullptr);
    if (numbers == Numbers::uniform)
      axpy::launch_vectorized_scale(d_w.data(), dense::weight_scale({0, in, out}), d_w.data(),
                                    d_w.size());
  }
  mlp_forward::Layer layer() const { return {in, out, d_w.data(), d_bias.data()}; }

  size_t in, out;
  DeviceBuffer<float> d_w, d_bias;
};

// A network on the device, a batch for it, and what is expected.
struct Problem {
  Problem(const Shape& sizes, std::uint64_t random_seed)
      : shape(sizes),
        seed(random_seed),
        first(shape.in, shape.hidden),
        second(shape.hidden, shape.out),
        d_x(shape.batch * shape.in),
        d_h(shape.batch * shape.hidden),
        d_y(shape.batch * shape.out),
        sample(mlp_forward::rows_of(shape, seed)) {}

  // Integers' sums are exact in float, in every order. Computes the reference.
  void fill(Numbers numbers) {
    const auto launch_fill = numbers == Numbers::integers ? random_numbers::launch_fill_integers
                                                          : random_numbers::launch_fill_uniform;
    launch_fill(d_x.data(), d_x.size(), seed, 0, nullptr);
    first.fill(numbers, seed, 1), second.fill(numbers, seed, 3);
    is_exact = numbers == Numbers::integers;
    const RowSample of_x{sample.rows, shape.in, ""};
    const std::vector<float> x = of_x.to_host(d_x.data());
    const mlp_forward::Parameters parameters{first.d_w.to_host(), first.d_bias.to_host(),
                                             second.d_w.to_host(), second.d_bias.to_host()};
    HostTimer timer;
    want = mlp_forward::mlp_cpu<Relu>(x, parameters, sample.rows.size(), dense::Terms::mean_zero);
    reference_ms = timer.ms();
  }
  mlp_forward::Network network() const { return {first.layer(), second.layer()}; }
  Comparison compare() const {
    return sample.compare(d_y.data(), want.value,
                          [&](size_t i) { return is_exact ? 0 : want.error[i]; });
  }

  Shape shape;
  std::uint64_t seed;
  DeviceLayer first, second;
  DeviceBuffer<float> d_x, d_h, d_y;
  RowSample sample;
  mlp_forward::Values want;
  bool is_exact = false;
  double reference_ms = 0;
};

// The vendor's product, then step 3.1's bias and activation.
template <class Activation>
void blas_layer(float* y, const float* x, size_t batch, const mlp_forward::Layer& layer,
                hipStream_t stream) {
  blas::gemm(false, true, batch, layer.out, layer.in, 1, x, layer.in, layer.w, layer.in, 0, y,
             layer.out, stream);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out,
                                                            stream);
}

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  const Work work{mlp_forward::bytes(shape), mlp_forward::operations(shape), Work::Limit::fma};
  const mlp_forward::Network network = p.network();
  const auto measured = [&](auto launch) {
    Measured result{work, launch, [&] { return p.compare(); }, {{p.d_y.data(), p.d_y.bytes()}}};
    result.shape = {shape.batch, shape.out};
    return result;
  };
  Measurement table(options);
  if (blas::available() && work.operations > 0) {
    Measured peer = measured([&](hipStream_t stream) {
      blas_layer<Relu>(p.d_h.data(), p.d_x.data(), shape.batch, network.first, stream);
      blas_layer<Linear>(p.d_y.data(), p.d_h.data(), shape.batch, network.second, stream);
    });
    peer.note = "then 3.1's bias and activation, per layer";
    table.peer(blas::name(), std::move(peer));
  }
  for (const auto& version : mlp_forward::kVersions<Relu>)
    table.version(version, measured([&](hipStream_t stream) {
                    version.launch(p.d_y.data(), p.d_h.data(), p.d_x.data(), shape.batch, network,
                                   stream);
                  }));

  // Rounding must not hide a term that is missed or added twice: exact sums come first.
  p.fill(Numbers::integers);
  table.check_exactly();
  p.fill(Numbers::uniform);
  report.table(mlp_forward::name(shape), p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"4.2", "mlp_forward", "a network: y = W2 relu(W1 x + b1) + b2",
                            mlp_forward::sizes(), version_infos(mlp_forward::kVersions<Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2], options.sizes[3]};
    require_device_memory(mlp_forward::bytes(usual) + sizeof(float) *
                                                          static_cast<double>(usual.batch) *
                                                          static_cast<double>(usual.hidden));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes =
        mlp_forward::printed(usual, options.sizes_given, options.quick);
    report.headline(mlp_forward::name(shapes.front()));
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
