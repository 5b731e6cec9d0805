// Runs, checks and times every version of the convolution, with ReLU, and of its gradients.
#include <memory>
#include <string>
#include <vector>

#include "common/dnn.h"
#include "common/sample.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage6_cnn/01_conv2d/conv2d.h"

using activations::Relu;
using conv2d::Problem;
using device_matrix::DeviceBuffer;

namespace {

constexpr double kWhole = 1 << 26;  // multiplications up to which everything is compared
constexpr size_t kPlanes = 8;       // planes of an array that are compared where there are more

double size(size_t n) { return static_cast<double>(n); }

double multiplications(const Problem& p) { return size(size_of_y(p)) * size(window_of(p)); }

// The planes that are compared of one array, and what is expected there.
struct Check {
  RowSample sample;
  dense::Values expected;

  Comparison compare(const float* values) const {
    return sample.compare(values, expected.value, [&](size_t i) { return expected.error[i]; });
  }
};

struct Arrays {
  // x, bias and grad_y in [-1, 1), w in +-1 / sqrt(C R S) as a layer's are when training begins.
  Arrays(const Problem& problem, std::uint64_t seed)
      : p(problem),
        d_x(size_of_x(p)),
        d_w(size_of_w(p)),
        d_bias(p.K),
        d_y(size_of_y(p)),
        d_grad_y(size_of_y(p)),
        d_grad_w(size_of_w(p)),
        d_grad_bias(p.K),
        d_grad_x(size_of_x(p)),
        workspace(conv2d::Workspace::for_all_versions(p)) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    random_numbers::launch_fill_uniform(d_w.data(), d_w.size(), seed, 1);
    random_numbers::launch_fill_uniform(d_bias.data(), d_bias.size(), seed, 2);
    random_numbers::launch_fill_uniform(d_grad_y.data(), d_grad_y.size(), seed, 3);
    const float scale = 1 / std::sqrt(static_cast<float>(window_of(p)));
    axpy::launch_vectorized_scale(d_w.data(), scale, d_w.data(), d_w.size());
    if (dnn::available())
      peer = std::make_unique<dnn::Convolution>(
          dnn::Shape{p.N, p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w});
    expect(seed);
  }

  void expect(std::uint64_t seed) {
    const conv2d::Extent out = output_of(p);
    const size_t at_most = multiplications(p) <= kWhole ? ~size_t{0} : kPlanes;
    of_y.sample = choose_rows(p.N * p.K, out.height * out.width, at_most, seed);
    of_x.sample = choose_rows(p.N * p.C, p.H * p.W, at_most, seed);
    of_w.sample = choose_rows(p.K * p.C, p.R * p.S, at_most, seed);
    of_bias.sample = choose_rows(1, p.K, 2, seed);
    of_peer.sample = of_y.sample;
    const std::vector<float> x = d_x.to_host(), w = d_w.to_host(), grad_y = d_grad_y.to_host();
    const dense::Values exact_x = dense::exactly(x);
    HostTimer timer;
    of_y.expected = conv2d::conv2d_cpu<Relu>(exact_x, w, d_bias.to_host(), p, of_y.sample.rows);
    forward_ms = timer.ms();
    if (peer)
      of_peer.expected = conv2d::conv2d_cpu<dense::Linear>(exact_x, w, {}, p, of_y.sample.rows);
    of_x.expected = conv2d::grad_x_cpu(grad_y, w, p, of_x.sample.rows);
    of_w.expected = conv2d::grad_w_cpu(grad_y, x, p, 0, {}, of_w.sample.rows);
    of_bias.expected = conv2d::grad_bias_cpu(grad_y, p, 0, {});
    of_transformed_y = of_y, of_transformed_x = of_x;
    if (!fits_winograd(p)) return;
    conv2d::add_winograd_error_of_y(of_transformed_y.expected, x, w, p, of_y.sample.rows);
    if (peer)  // its algorithm may be that one, too
      conv2d::add_winograd_error_of_y(of_peer.expected, x, w, p, of_y.sample.rows);
    conv2d::add_winograd_error_of_x(of_transformed_x.expected, grad_y, w, p, of_x.sample.rows);
  }

  Problem p;
  DeviceBuffer<float> d_x, d_w, d_bias, d_y, d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  conv2d::Workspace workspace;
  std::unique_ptr<dnn::Convolution> peer;
  Check of_y, of_peer, of_x, of_w, of_bias;
  Check of_transformed_y, of_transformed_x;  // for versions that go through transformed tiles
  double forward_ms = 0;
};

std::string text_of(const Problem& p) {
  const auto by = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  return "(" + std::to_string(p.N) + "," + std::to_string(p.C) + "," + std::to_string(p.H) + "," +
         std::to_string(p.W) + ") -> " + std::to_string(p.K) + " filters " + by(p.R, p.S) +
         ", stride " + by(p.stride_h, p.stride_w) + ", padding " + by(p.pad_h, p.pad_w) +
         " float32";
}

std::string sampled(const Check& check, const char* plane) {
  if (check.sample.text.empty()) return "";
  return check.sample.text + ", a row being " + plane;
}

void run_forward(Arrays& a, const Options& options, Report& report) {
  const Problem& p = a.p;
  report.table("relu(X * W + b)   " + text_of(p), a.of_y.sample.text.empty() ? a.forward_ms : 0,
               sampled(a.of_y, "an image's plane of y"));
  const double bytes = size(size_of_x(p) + size_of_w(p) + p.K + size_of_y(p)) * sizeof(float);
  const Work work{bytes, 2 * multiplications(p), Work::Limit::fma};
  const std::vector<std::pair<void*, size_t>> outputs = {{a.d_y.data(), a.d_y.bytes()}};
  const conv2d::Extent out = output_of(p);
  if (a.peer) {
    Row row = measure(
        dnn::name(), "", Needs::Any, work, outputs, options.repeat,
        [&] { a.peer->forward(a.d_y.data(), a.d_x.data(), a.d_w.data()); },
        [&] { return a.of_peer.compare(a.d_y.data()); });
    row.peer = true, row.shape = {p.N, p.K, out.height, out.width};
    row.note = a.peer->forward_algorithm() + "; without bias and ReLU";
    report.add(row);
  }
  for (const auto& version : conv2d::kVersions<Relu>) {
    if (!options.wants(version.name)) continue;
    Row row = measure(
        version.name, version.lesson, version.needs, work, outputs, options.repeat,
        [&] {
          version.launch.run(a.d_y.data(), a.d_x.data(), a.d_w.data(), a.d_bias.data(), p,
                             a.workspace, nullptr);
        },
        [&] {
          return (version.launch.transforms(p) ? a.of_transformed_y : a.of_y).compare(a.d_y.data());
        });
    row.shape = {p.N, p.K, out.height, out.width};
    report.add(row);
  }
}

// One gradient, or all of them: `to` says which, `peer` makes the same with the library.
template <class Peer, class Verify>
void run_backward(Arrays& a, const std::string& what, const std::string& note,
                  const conv2d::Gradients& to, double passes, const std::string& sample,
                  const Options& options, Report& report, Peer&& peer, Verify&& verify) {
  const Problem& p = a.p;
  report.table(what + "   " + text_of(p), 0, sample);
  const double arrays = size(size_of_x(p) + size_of_w(p)) * (to.w != nullptr && to.x ? 2 : 1);
  const Work work{(arrays + size(size_of_y(p))) * sizeof(float), 2 * passes * multiplications(p),
                  Work::Limit::fma};
  std::vector<std::pair<void*, size_t>> outputs;
  if (to.w != nullptr) outputs.push_back({a.d_grad_w.data(), a.d_grad_w.bytes()});
  if (to.bias != nullptr) outputs.push_back({a.d_grad_bias.data(), a.d_grad_bias.bytes()});
  if (to.x != nullptr) outputs.push_back({a.d_grad_x.data(), a.d_grad_x.bytes()});
  if (a.peer) {
    Row row = measure(dnn::name(), "", Needs::Any, work, outputs, options.repeat, peer,
                      [&] { return verify(a.of_transformed_x); });
    row.peer = true;
    row.note = note == "x"   ? a.peer->data_algorithm()
               : note == "w" ? a.peer->filter_algorithm()
                             : "";
    report.add(row);
  }
  for (const auto& version : conv2d::kBackwardVersions)
    if (options.wants(version.name))
      report.add(measure(
          version.name, version.lesson, version.needs, work, outputs, options.repeat,
          [&] {
            version.launch.run(to, a.d_grad_y.data(), a.d_x.data(), a.d_w.data(), p, 0, a.workspace,
                               nullptr);
          },
          [&] { return verify(version.launch.transforms(p) ? a.of_transformed_x : a.of_x); }));
}

void run(const Problem& p, const Options& options, Report& report) {
  Arrays a(p, options.seed);
  float* const grad_w = a.d_grad_w.data();
  float* const grad_bias = a.d_grad_bias.data();
  float* const grad_x = a.d_grad_x.data();
  const auto wants_any = [&](const auto& versions) {
    for (const auto& version : versions)
      if (options.wants(version.name)) return true;
    return false;
  };
  if (wants_any(conv2d::kVersions<Relu>)) run_forward(a, options, report);
  if (!wants_any(conv2d::kBackwardVersions)) return;
  const auto data = [&] { a.peer->backward_data(grad_x, a.d_grad_y.data(), a.d_w.data()); };
  const auto filter = [&] { a.peer->backward_filter(grad_w, a.d_grad_y.data(), a.d_x.data()); };
  run_backward(a, "grad_X", "x", {nullptr, nullptr, grad_x}, 1,
               sampled(a.of_x, "an image's plane of x"), options, report, data,
               [&](const Check& of_x) { return of_x.compare(grad_x); });
  run_backward(a, "grad_W", "w", {grad_w, nullptr, nullptr}, 1,
               sampled(a.of_w, "a filter's plane of w"), options, report, filter,
               [&](const Check&) { return a.of_w.compare(grad_w); });
  run_backward(
      a, "grad_W, grad_b, grad_X", "", {grad_w, grad_bias, grad_x}, 2,
      sampled(a.of_w, "a filter's plane of w, and as many of x"), options, report,
      [&] {
        filter();
        a.peer->backward_bias(grad_bias, a.d_grad_y.data());
        data();
      },
      [&](const Check& of_x) {
        return together(
            {a.of_w.compare(grad_w), a.of_bias.compare(grad_bias), of_x.compare(grad_x)});
      });
}

// Of x, y and their gradients, the filters and theirs, and what the launches need beside them.
double device_bytes(const Problem& p) {
  const double slices = size(conv2d::count_slices(p));
  const size_t per_image = conv2d::columns_per_image(p);
  const double columns = size(conv2d::fitting(p.N, per_image)) * size(per_image);
  const double tiles = fits_winograd(p) ? size(conv2d::winograd_elements(p)) : 0;
  return sizeof(float) * (2 * size(size_of_x(p)) + 2 * size(size_of_y(p)) + columns + tiles +
                          (2 + slices) * size(size_of_w(p)) + 3 * size(p.K));
}

// The tables of a run without --size. On a GPU: a small layer, whose launches are over before the
// device is busy, and one of the layers that vision networks are made of.
std::vector<Problem> usual_problems(const Problem& usual, bool quick) {
  if (quick) return {usual, {2, 3, 9, 7, 5, 3, 3, 1, 1, 1, 1}};
  if (gpu::kBackend == std::string("cpu")) return {{64, 1, 28, 28, 8, 3, 3, 1, 1, 1, 1}, usual};
  return {{256, 8, 14, 14, 16, 3, 3, 1, 1, 1, 1}, usual};
}

std::vector<VersionInfo> all_versions() {
  std::vector<VersionInfo> infos = version_infos(conv2d::kVersions<Relu>);
  for (const VersionInfo& info : version_infos(conv2d::kBackwardVersions)) infos.push_back(info);
  return infos;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"6.1",
                            "conv2d",
                            "a convolution, y = relu(x * w + b), and its gradients",
                            {{"N", 64, 64, 3},
                             {"C", 64, 8, 5},
                             {"H", 56, 14, 13},
                             {"W", 56, 14, 11},
                             {"K", 64, 16, 9},
                             {"R", 3, 3, 5},
                             {"S", 3, 3, 2},
                             {"stride", 1, 1, 2},
                             {"pad", 1, 1, 1}},
                            all_versions()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const std::vector<size_t>& s = options.sizes;
    for (size_t i = 0; i + 1 < s.size(); ++i)
      if (s[i] == 0) throw UsageError("--size: every dimension but the padding must be at least 1");
    const Problem usual{s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[7], s[8], s[8]};
    try {
      require_device_memory(device_bytes(usual));
      // The host makes and compares the same arrays; on the CPU backend beside the device's.
      sizes::require_host_memory(device_bytes(usual));
    } catch (const std::invalid_argument& error) {
      throw UsageError(std::string("--size: ") + error.what());
    }
    report.limits(timing::measure_limits(options));
    const std::vector<Problem> problems =
        options.sizes_given ? std::vector<Problem>{usual} : usual_problems(usual, options.quick);
    for (const Problem& problem : problems) run(problem, options, report);
  });
}
