// Runs, checks and times every version of the convolution, with ReLU.
#include "stage6_cnn/01_conv2d/conv2d.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/dnn.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/device_layer.h"
#include "stage6_cnn/01_conv2d/problem.h"
#include "stage6_cnn/01_conv2d/reference.h"

using activations::Relu;
using conv2d::Problem;
using gpu::DeviceBuffer;

namespace {

// A layer on the device, a batch for it, and what is expected: of every version, of one that goes
// through transformed tiles, and of the peer, which adds no bias and may go through them, too.
struct Layer : conv2d::DeviceLayer {
  Layer(const Problem& problem, std::uint64_t random_seed)
      : DeviceLayer(problem, random_seed),
        out(output_of(p)),
        d_bias(p.K),
        d_y(size_of_y(p)),
        workspace(conv2d::Workspace::for_all_versions(p)),
        sample(choose_planes(p, p.N * p.K, out.height * out.width, seed)) {}

  void fill_integers() { fill(true, d_bias, 2), expect(); }
  void fill_uniform() { fill(false, d_bias, 2), expect(); }

  Comparison compare(const conv2d::Values& want) const {
    return sample.compare(d_y.data(), want.value,
                          [&](size_t i) { return is_exact ? 0 : want.error[i]; });
  }

  conv2d::Extent out;
  DeviceBuffer<float> d_bias, d_y;
  conv2d::Workspace workspace;
  RowSample sample;
  conv2d::Values of_sums, of_tiles, of_peer;
  double reference_ms = 0;

 private:
  void expect() {
    const std::vector<float> x = d_x.to_host(), w = d_w.to_host();
    HostTimer timer;
    of_sums =
        conv2d::conv2d_cpu<Relu>(x, w, d_bias.to_host(), p, sample.rows, conv2d::Terms::mean_zero);
    reference_ms = timer.ms();
    of_tiles = of_sums;
    if (fits_winograd(p))
      add_winograd_error_of_y(of_tiles, x, w, p, sample.rows, conv2d::Terms::mean_zero);
    if (!peer) return;
    of_peer = conv2d::conv2d_cpu<dense::Linear>(x, w, {}, p, sample.rows);
    if (fits_winograd(p)) add_winograd_error_of_y(of_peer, x, w, p, sample.rows);
  }
};

void run(const Problem& p, const Options& options, Report& report) {
  Layer layer(p, options.seed);
  const double elements = static_cast<double>(size_of_x(p) + size_of_w(p) + p.K + size_of_y(p));
  const Work work{sizeof(float) * elements, 2 * multiplications(p), Work::Limit::fma};
  const auto measured = [&](auto launch, const conv2d::Values& want) {
    Measured result{
        work, launch, [&] { return layer.compare(want); }, {{layer.d_y.data(), layer.d_y.bytes()}}};
    result.shape = {p.N, p.K, layer.out.height, layer.out.width};
    return result;
  };
  Measurement table(options);
  if (layer.peer) {
    Measured peer = measured(
        [&](hipStream_t stream) {
          layer.peer->forward(layer.d_y.data(), layer.d_x.data(), layer.d_w.data(), stream);
        },
        layer.of_peer);
    peer.verify_exactly = [] { return Comparison(); };  // some of its algorithms are not
    peer.finish = [&](Row& row) {
      row.note = layer.peer->forward_algorithm() + "; without bias and ReLU";
    };
    table.peer(dnn::name(), std::move(peer));
  }
  for (const auto& version : conv2d::kVersions<Relu>) {
    const bool in_tiles = version.launch.transforms != nullptr && version.launch.transforms(p);
    Measured row = measured(
        [&](hipStream_t stream) {
          version.launch.run(layer.d_y.data(), layer.d_x.data(), layer.d_w.data(),
                             layer.d_bias.data(), p, layer.workspace, stream);
        },
        in_tiles ? layer.of_tiles : layer.of_sums);
    if (in_tiles && p.C > conv2d::kExactChannels) row.verify_exactly = [] { return Comparison(); };
    table.version(version, std::move(row));
  }
  layer.fill_integers();
  table.check_exactly();
  layer.fill_uniform();
  report.table("relu(X * W + b)   " + name(p), layer.sample.text.empty() ? layer.reference_ms : 0,
               conv2d::text_of(layer.sample, "an image's plane of y"));
  table.run(report);
}

// Of x, y, the filters and the bias, and what the launches need beside them.
double device_bytes(const Problem& p) {
  const auto size = [](size_t n) { return static_cast<double>(n); };
  const size_t per_image = conv2d::columns_per_image(p);
  const double columns = size(conv2d::images_at_a_time(p.N, per_image)) * size(per_image);
  const double tiles = fits_winograd(p) ? size(conv2d::winograd_elements(p, output_of(p))) : 0;
  return sizeof(float) * (size(size_of_x(p)) + size(size_of_y(p)) + size(size_of_w(p)) + size(p.K) +
                          columns + tiles);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"6.1", "conv2d", "a convolution, y = relu(x * w + b)", conv2d::sizes(),
                            version_infos(conv2d::kVersions<Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const Problem usual = conv2d::problem_of(options.sizes);
    require_device_memory(device_bytes(usual));
    // The host makes and compares the same arrays; on the CPU backend beside the device's.
    sizes::require_host_memory(device_bytes(usual));
    report.limits(timing::measure_limits(options));
    const std::vector<Problem> problems =
        conv2d::printed(usual, options.sizes_given, options.quick);
    report.headline("relu(X * W + b)   " + name(problems.front()));
    for (const Problem& problem : problems) run(problem, options, report);
  });
}
