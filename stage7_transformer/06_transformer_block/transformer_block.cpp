// Runs a transformer block forwards and backwards by every version: checks both against the
// reference, times them, and says how much memory each keeps for the backward pass.
#include "stage7_transformer/06_transformer_block/transformer_block.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/measure.h"
#include "common/random.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage7_transformer/06_transformer_block/bf16.h"
#include "stage7_transformer/06_transformer_block/reference.h"

using namespace transformer_block;

namespace {

// A block's parameters: gains around 1, biases around 0, weights that keep the size of values.
std::vector<std::vector<float>> make_parameters(size_t C, std::uint64_t seed) {
  std::vector<std::vector<float>> parameters;
  for (const ParameterShape& parameter : parameter_shapes(C)) {
    const std::uint32_t stream = static_cast<std::uint32_t>(parameters.size()) + 10;
    const bool is_matrix = parameter.shape.size() == 2;
    const bool is_gain = parameters.size() == 0 || parameters.size() == 6;
    const float scale =
        is_matrix ? std::sqrt(3.0f / static_cast<float>(parameter.shape[1])) : 0.25f;
    std::vector<float> values(parameter.shape[0] * (is_matrix ? parameter.shape[1] : 1));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scale * random_numbers::uniform(seed, stream, i) + (is_gain ? 1.0f : 0.0f);
    parameters.push_back(std::move(values));
  }
  return parameters;
}

std::vector<float> random_rows(size_t n, std::uint64_t seed, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = 1.5f * random_numbers::uniform(seed, stream, i) + 0.25f;
  return values;
}

// The operations of the products: 2 per weight and row, and those of attention, half of which the
// mask spares.
double operations(const Shape& shape) {
  const double rows = static_cast<double>(shape.rows()), C = static_cast<double>(shape.C);
  return rows * C * (24 * C + 2 * static_cast<double>(shape.T));
}

// Holds got, the part of sequence `b` of a device array, against the reference.
Comparison compare_part(const DeviceBuffer<float>& got, const Values& want, size_t begin) {
  std::vector<float> values(want.value.size());
  HIP_CHECK(hipMemcpy(values.data(), got.data() + begin, values.size() * sizeof(float),
                      hipMemcpyDeviceToHost));
  return compare(
      values.size(), [&](size_t i) { return values[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
}

// A block's arrays, and what is expected of them. Checked is one sequence, the last: sequences do
// not see one another, and where grad_y is 0 everywhere else, the parameters' gradients are those
// of this one. Timed is the whole batch.
struct BlockArrays {
  BlockArrays(const Shape& of, const Options& options)
      : shape(of),
        n(shape.rows() * shape.C),
        of_sequence(shape.T * shape.C),
        host(make_parameters(shape.C, options.seed)),
        x(random_rows(n, options.seed, 1)),
        grad_y(random_rows(n, options.seed, 2)),
        d_x(x),
        d_grad_y(grad_y),
        d_only_last(only_last()),
        y(n),
        grad_x(n),
        from_y(d_grad_y.data()) {
    for (const std::vector<float>& parameter : host) {
      values.emplace_back(parameter), gradients.emplace_back(parameter.size());
      from.push_back(values.back().data()), to.push_back(gradients.back().data());
      outputs.push_back({to.back(), gradients.back().bytes()});
    }
    outputs.push_back({grad_x.data(), grad_x.bytes()});
    parameters = tensors_of<const float*>(from), gradient = tensors_of<float*>(to);
  }
  // Returns how long the reference took.
  double expect(Precision precision) {
    const HostTimer timer;
    want = block_cpu(last(x), last(grad_y), host, {1, shape.T, shape.C, shape.H}, precision);
    return timer.ms();
  }
  std::string problem(const char* way, const char* type) const {
    return std::string(way) + "   B=" + std::to_string(shape.B) + " T=" + std::to_string(shape.T) +
           " C=" + std::to_string(shape.C) + " H=" + std::to_string(shape.H) + " " + type;
  }
  std::string sampled() const {
    return shape.B == 1 ? "" : "checked on 1 of " + std::to_string(shape.B) + " sequences";
  }
  Measured forward_pass(double bytes, Work::Limit limit, std::function<void(hipStream_t)> launch) {
    char note[64];
    std::snprintf(note, sizeof note, "keeps %.3g MB", bytes / 1e6);
    Measured measured{{0, operations(shape), limit},
                      std::move(launch),
                      [&] { return compare_part(y, want.y, n - of_sequence); },
                      {{y.data(), y.bytes()}}};
    measured.note = note, measured.shape = {shape.T, shape.C};
    return measured;
  }
  // `check` is called before the launch that is checked, which reads from_y.
  Measured backward_pass(
      Work::Limit limit, std::function<void(hipStream_t)> launch,
      std::function<void()> check = [] {}) {
    return {{0, 2 * operations(shape), limit},
            std::move(launch),
            [this, check] {
              from_y = d_grad_y.data();
              std::vector<Comparison> parts{compare_part(grad_x, want.grad_x, n - of_sequence)};
              for (size_t k = 0; k < kTensors; ++k)
                parts.push_back(compare_part(gradients[k], want.gradients[k], 0));
              check();
              return together(parts);
            },
            outputs,
            [this, check] {
              from_y = d_only_last.data();
              check();
            }};
  }

  Shape shape;
  size_t n, of_sequence;
  std::vector<std::vector<float>> host;
  std::vector<float> x, grad_y;
  std::vector<DeviceBuffer<float>> values, gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  Parameters parameters;
  Gradients gradient;
  DeviceBuffer<float> d_x, d_grad_y, d_only_last, y, grad_x;
  const float* from_y;
  std::vector<std::pair<void*, size_t>> outputs;  // of the backward pass
  Reference want;

 private:
  std::vector<float> last(const std::vector<float>& rows) const {
    return std::vector<float>(rows.end() - static_cast<std::ptrdiff_t>(of_sequence), rows.end());
  }
  std::vector<float> only_last() const {
    std::vector<float> rows(n);
    std::copy(grad_y.end() - static_cast<std::ptrdiff_t>(of_sequence), grad_y.end(),
              rows.end() - static_cast<std::ptrdiff_t>(of_sequence));
    return rows;
  }
};

void run(BlockArrays& a, const Options& options, Report& report) {
  const double reference_ms = a.expect(Precision::fp32);
  std::vector<std::unique_ptr<SavedActivations>> kept;
  for (const auto& version : kVersions)
    kept.push_back(std::make_unique<SavedActivations>(a.shape, version.launch));
  Workspace workspace(a.shape);

  report.table(a.problem("forward", "float32"), reference_ms, a.sampled());
  Measurement forwards(options);
  for (size_t i = 0; i < std::size(kVersions); ++i)
    forwards.version(kVersions[i], a.forward_pass(static_cast<double>(kept[i]->bytes()),
                                                  Work::Limit::fma, [&, i](hipStream_t stream) {
                                                    forward(a.y.data(), a.d_x.data(), a.parameters,
                                                            a.shape, *kept[i], kVersions[i].launch,
                                                            stream);
                                                  }));
  forwards.run(report);

  report.table(a.problem("backward", "float32"), 0, a.sampled());
  Measurement backwards(options);
  const dense_backward::Branches branches;
  for (size_t i = 0; i < std::size(kVersions); ++i) {
    if (!options.wants(kVersions[i].name)) continue;
    forward(a.y.data(), a.d_x.data(), a.parameters, a.shape, *kept[i], kVersions[i].launch);
    backwards.version(kVersions[i], a.backward_pass(Work::Limit::fma, [&, i](hipStream_t stream) {
      backward(a.gradient, a.grad_x.data(), a.from_y, a.d_x.data(), a.parameters, a.shape, *kept[i],
               workspace, kVersions[i].launch, {stream, &branches});
    }));
  }
  backwards.run(report);
}

// The weights' copies, and grad_y's, are made before the clock runs: by the optimizer, and by the
// block above (step 7.7).
void run_bf16(BlockArrays& a, const Options& options, Report& report) {
  const auto& version = kBf16Versions[0];
  const bool can_run = missing(version.needs).empty();
  const double reference_ms = can_run ? a.expect(Precision::bf16) : 0;
  SavedBf16 kept(a.shape);
  WorkspaceBf16 workspace(a.shape);
  std::vector<DeviceBuffer<bfloat16>> copies;
  std::vector<const bfloat16*> from;
  for (const DeviceBuffer<float>& values : a.values) {
    from.push_back(copies.emplace_back(values.size()).data());
    gemm_mixed::launch_round(copies.back().data(), values.data(), values.size());
  }
  const RoundedParameters rounded = tensors_of<const bfloat16*>(from);
  DeviceBuffer<bfloat16> rounded_y(a.n), rounded_x(a.n);
  const auto round_y = [&] { gemm_mixed::launch_round(rounded_y.data(), a.from_y, a.n); };
  round_y();
  const auto run_forward = [&](hipStream_t stream) {
    forward_bf16(a.y.data(), a.d_x.data(), a.parameters, rounded, a.shape, kept, stream);
  };

  report.table(a.problem("forward", "bf16"), reference_ms, a.sampled());
  Measurement forwards(options), backwards(options);
  forwards.version(
      version, a.forward_pass(static_cast<double>(kept.bytes()), Work::Limit::none, run_forward));
  forwards.run(report);

  report.table(a.problem("backward", "bf16"), 0, a.sampled());
  const dense_backward::Branches branches;
  if (can_run) run_forward(nullptr);
  backwards.version(version, a.backward_pass(
                                 Work::Limit::none,
                                 [&](hipStream_t stream) {
                                   chain_backward_bf16(
                                       a.gradient, {a.grad_x.data(), rounded_x.data()},
                                       {a.from_y, rounded_y.data()}, a.d_x.data(), a.parameters,
                                       rounded, a.shape, kept, workspace, stream);
                                   weights_backward_bf16(a.gradient, rounded_y.data(), a.shape,
                                                         kept, workspace, stream);
                                 },
                                 round_y));
  backwards.run(report);
}

// Of every precision that is asked for.
void run_all(const Shape& shape, const Options& options, Report& report) {
  BlockArrays arrays(shape, options);
  if (wants_any(options, kVersions)) run(arrays, options, report);
  if (wants_any(options, kBf16Versions)) run_bf16(arrays, options, report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.6",
      "transformer_block",
      "attention and a feed-forward network, with residuals",
      {{"B", 64, 4, 2}, {"T", 256, 64, 17}, {"C", 384, 64, 24}, {"H", 6, 4, 3}},
      version_infos(kVersions, kBf16Versions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape shape{options.sizes[0], options.sizes[1], options.sizes[2], options.sizes[3]};
    try {
      check(shape);
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
    const double rows = static_cast<double>(shape.rows()), width = static_cast<double>(shape.C);
    const double length = static_cast<double>(shape.T), heads = static_cast<double>(shape.H);
    const double weights = 12 * width * width;
    require_device_memory(sizeof(float) *
                          (rows * (100 * width + 2 * heads * length) + 2 * weights));
    // The reference keeps one sequence's activations and scores, and the weights and their
    // gradients, in double; inputs and results are float.
    sizes::require_host_memory(sizeof(double) *
                                   (length * (40 * width + 4 * heads * length) + 2 * weights) +
                               sizeof(float) * (6 * rows * width + 2 * weights));
    report.limits(timing::measure_limits(options));
    run_all(shape, options, report);
    // The other model of step 7.7: its products are so small that launches count.
    const bool usual = !options.sizes_given && !options.quick;
    if (usual && std::string(gpu::kBackend) != "cpu") run_all({32, 128, 64, 4}, options, report);
  });
}
