// Runs, checks and times every version of the gradients of a convolution.
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/dnn.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage6_cnn/01_conv2d/device_layer.h"
#include "stage6_cnn/01_conv2d/problem.h"
#include "stage6_cnn/02_conv2d_backward/reference.h"

using conv2d_backward::Gradients;
using conv2d_backward::Problem;
using conv2d_backward::Values;
using gpu::DeviceBuffer;

namespace {

// A layer on the device with its gradients, and what is expected of them: of x also where it goes
// through transformed tiles, and of the peer, which may take any algorithm.
struct Layer : conv2d::DeviceLayer {
  Layer(const Problem& problem, std::uint64_t random_seed)
      : DeviceLayer(problem, random_seed),
        d_grad_y(size_of_y(p)),
        d_grad_w(size_of_w(p)),
        d_grad_bias(p.K),
        d_grad_x(size_of_x(p)),
        workspace(conv2d_backward::Workspace::for_all_versions(p)),
        planes_of_x(conv2d::choose_planes(p, p.N * p.C, p.H * p.W, seed)),
        planes_of_w(conv2d::choose_planes(p, p.K * p.C, p.R * p.S, seed)),
        biases(choose_rows(1, p.K, 2, seed)) {}

  void fill_integers() { fill(true, d_grad_y, 3), expect(); }
  void fill_uniform() { fill(false, d_grad_y, 3), expect(); }

  // The gradients that `to` asks for, that of x held against `of_x`.
  Comparison compare(const Gradients& to, const Values& of_x, const Values& of_w,
                     const Values& of_bias) const {
    const auto check = [&](const RowSample& sample, const float* gradient, const Values& values) {
      return sample.compare(gradient, values.value,
                            [&](size_t i) { return is_exact ? 0 : values.error[i]; });
    };
    std::vector<Comparison> parts;
    if (to.w != nullptr) parts.push_back(check(planes_of_w, to.w, of_w));
    if (to.bias != nullptr) parts.push_back(check(biases, to.bias, of_bias));
    if (to.x != nullptr) parts.push_back(check(planes_of_x, to.x, of_x));
    return together(parts);
  }

  struct Expected {
    Values x, x_in_tiles, w, bias;
  };
  DeviceBuffer<float> d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  conv2d_backward::Workspace workspace;
  RowSample planes_of_x, planes_of_w, biases;
  Expected want, of_peer;
  double reference_ms = 0;

 private:
  void expect() {
    HostTimer timer;
    want = expect(conv2d::Terms::mean_zero);
    reference_ms = timer.ms();
    if (peer) of_peer = expect(conv2d::Terms::any);
  }
  Expected expect(conv2d::Terms terms) const {
    const std::vector<float> x = d_x.to_host(), w = d_w.to_host(), grad_y = d_grad_y.to_host();
    Expected expected;
    expected.x = conv2d_backward::grad_x_cpu(grad_y, w, p, planes_of_x.rows, terms);
    expected.w = conv2d_backward::grad_w_cpu(grad_y, x, p, 0, {}, planes_of_w.rows, terms);
    expected.bias = conv2d_backward::grad_bias_cpu(grad_y, p, 0, {}, terms);
    expected.x_in_tiles = expected.x;
    if (fits_winograd(p))
      conv2d_backward::add_winograd_error_of_x(expected.x_in_tiles, grad_y, w, p, planes_of_x.rows,
                                               terms);
    return expected;
  }
};

// One gradient, or all of them.
struct Table {
  std::string name;
  Gradients to;
  std::string sample;                            // what is compared
  std::function<void(hipStream_t)> launch_peer;  // the same with the library
  std::function<std::string()> peers_algorithm;
};

std::vector<Table> tables_of(Layer& layer) {
  float *const w = layer.d_grad_w.data(), *const x = layer.d_grad_x.data();
  float* const bias = layer.d_grad_bias.data();
  const auto of_x = [&layer, x](hipStream_t stream) {
    layer.peer->backward_data(x, layer.d_grad_y.data(), layer.d_w.data(), stream);
  };
  const auto of_w = [&layer, w](hipStream_t stream) {
    layer.peer->backward_filter(w, layer.d_grad_y.data(), layer.d_x.data(), stream);
  };
  const auto of_all = [&layer, bias, of_x, of_w](hipStream_t stream) {
    of_w(stream);
    layer.peer->backward_bias(bias, layer.d_grad_y.data(), stream);
    of_x(stream);
  };
  using conv2d::text_of;
  return {{"grad_X",
           {nullptr, nullptr, x},
           text_of(layer.planes_of_x, "an image's plane of x"),
           of_x,
           [&layer] { return layer.peer->data_algorithm(); }},
          {"grad_W",
           {w, nullptr, nullptr},
           text_of(layer.planes_of_w, "a filter's plane of w"),
           of_w,
           [&layer] { return layer.peer->filter_algorithm(); }},
          {"grad_W, grad_b, grad_X",
           {w, bias, x},
           text_of(layer.planes_of_w, "a filter's plane of w, and as many of x"),
           of_all,
           [] { return std::string(); }}};
}

Work work_of(const Problem& p, const Gradients& to) {
  const bool all = to.w != nullptr && to.x != nullptr;
  const double arrays = static_cast<double>(size_of_x(p) + size_of_w(p)) * (all ? 2 : 1);
  return {(arrays + static_cast<double>(size_of_y(p))) * sizeof(float),
          (all ? 4 : 2) * multiplications(p), Work::Limit::fma};
}

void run(Layer& layer, const Table& shown, const Options& options, Report& report) {
  const Problem& p = layer.p;
  const Gradients& to = shown.to;
  std::vector<std::pair<void*, size_t>> outputs;
  if (to.w != nullptr) outputs.push_back({to.w, layer.d_grad_w.bytes()});
  if (to.bias != nullptr) outputs.push_back({to.bias, layer.d_grad_bias.bytes()});
  if (to.x != nullptr) outputs.push_back({to.x, layer.d_grad_x.bytes()});
  Measurement table(options);
  if (layer.peer) {
    Measured peer{work_of(p, to), shown.launch_peer,
                  [&] {
                    const Layer::Expected& want = layer.of_peer;
                    return layer.compare(to, want.x_in_tiles, want.w, want.bias);
                  },
                  outputs};
    peer.verify_exactly = [] { return Comparison(); };  // some of its algorithms are not
    peer.finish = [&](Row& row) { row.note = shown.peers_algorithm(); };
    table.peer(dnn::name(), std::move(peer));
  }
  for (const auto& version : conv2d_backward::kVersions) {
    const bool in_tiles = version.launch.transforms != nullptr && version.launch.transforms(p);
    Measured row{work_of(p, to),
                 [&](hipStream_t stream) {
                   version.launch.run(to, layer.d_grad_y.data(), layer.d_x.data(), layer.d_w.data(),
                                      p, 0, layer.workspace, stream);
                 },
                 [&layer, &to, in_tiles] {
                   const Layer::Expected& want = layer.want;
                   return layer.compare(to, in_tiles ? want.x_in_tiles : want.x, want.w, want.bias);
                 },
                 outputs};
    if (in_tiles && p.K > conv2d::kExactChannels) row.verify_exactly = [] { return Comparison(); };
    table.version(version, std::move(row));
  }
  layer.fill_integers();
  table.check_exactly();
  layer.fill_uniform();
  report.table(shown.name + "   " + name(p), shown.sample.empty() ? layer.reference_ms : 0,
               shown.sample);
  table.run(report);
}

// Of x, y and their gradients, the filters and theirs, and what the launches need beside them.
double device_bytes(const Problem& p) {
  const auto size = [](size_t n) { return static_cast<double>(n); };
  const double slices = size(conv2d_backward::count_slices(p));
  const double tiles = fits_winograd(p) ? size(conv2d::winograd_elements(p, {p.H, p.W})) : 0;
  return sizeof(float) * (2 * size(size_of_x(p)) + size(size_of_y(p)) + tiles +
                          (2 + slices) * size(size_of_w(p)) + 2 * size(p.K));
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"6.2", "conv2d_backward", "the gradients of a convolution: x, w and b",
                            conv2d::sizes(), version_infos(conv2d_backward::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const Problem usual = conv2d::problem_of(options.sizes);
    require_device_memory(device_bytes(usual));
    // The host makes and compares the same arrays; on the CPU backend beside the device's.
    sizes::require_host_memory(device_bytes(usual));
    report.limits(timing::measure_limits(options));
    const std::vector<Problem> problems =
        conv2d::printed(usual, options.sizes_given, options.quick);
    report.headline("grad_W, grad_b, grad_X   " + name(problems.front()));
    for (const Problem& problem : problems) {
      Layer layer(problem, options.seed);
      for (const Table& table : tables_of(layer)) run(layer, table, options, report);
    }
  });
}
