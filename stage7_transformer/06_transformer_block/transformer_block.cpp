// Runs a transformer block forwards and backwards by every version: checks both against the
// reference, times them, and says how much memory each keeps for the backward pass.
#include "stage7_transformer/06_transformer_block/transformer_block.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/measure.h"
#include "common/random.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
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

void run(const Shape& shape, const Options& options, Report& report) {
  const size_t n = shape.rows() * shape.C, of_sequence = shape.T * shape.C;
  const std::vector<std::vector<float>> host = make_parameters(shape.C, options.seed);
  std::vector<DeviceBuffer<float>> values, gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const std::vector<float>& parameter : host) {
    values.emplace_back(parameter), gradients.emplace_back(parameter.size());
    from.push_back(values.back().data()), to.push_back(gradients.back().data());
  }
  const Parameters parameters = tensors_of<const float*>(from);
  const Gradients gradient = tensors_of<float*>(to);

  // What is checked is one sequence, the last: sequences do not see one another, and where grad_y
  // is 0 everywhere else, the parameters' gradients are those of this one. Timed is the whole
  // batch.
  const std::vector<float> x = random_rows(n, options.seed, 1);
  const std::vector<float> grad_y = random_rows(n, options.seed, 2);
  const auto last = [&](const std::vector<float>& rows) {
    return std::vector<float>(rows.end() - static_cast<std::ptrdiff_t>(of_sequence), rows.end());
  };
  std::vector<float> only_last(n);
  std::copy(grad_y.end() - static_cast<std::ptrdiff_t>(of_sequence), grad_y.end(),
            only_last.end() - static_cast<std::ptrdiff_t>(of_sequence));
  const HostTimer timer;
  const Reference want = block_cpu(last(x), last(grad_y), host, {1, shape.T, shape.C, shape.H});
  const double reference_ms = timer.ms();
  const std::string sampled =
      shape.B == 1 ? "" : "checked on 1 of " + std::to_string(shape.B) + " sequences";

  const DeviceBuffer<float> d_x(x), d_grad_y(grad_y), d_only_last(only_last);
  DeviceBuffer<float> y(n), grad_x(n);
  const std::string problem = "B=" + std::to_string(shape.B) + " T=" + std::to_string(shape.T) +
                              " C=" + std::to_string(shape.C) + " H=" + std::to_string(shape.H) +
                              " float32";
  const Work work{0, operations(shape), Work::Limit::fma};
  std::vector<std::unique_ptr<SavedActivations>> kept;
  for (const auto& version : kVersions)
    kept.push_back(std::make_unique<SavedActivations>(shape, version.launch));
  Workspace workspace(shape);

  report.table("forward   " + problem, reference_ms, sampled);
  Measurement forwards(options);
  for (size_t i = 0; i < std::size(kVersions); ++i) {
    char note[64];
    std::snprintf(note, sizeof note, "keeps %.3g MB", static_cast<double>(kept[i]->bytes()) / 1e6);
    Measured measured{work,
                      [&, i](hipStream_t stream) {
                        forward(y.data(), d_x.data(), parameters, shape, *kept[i],
                                kVersions[i].launch, stream);
                      },
                      [&] { return compare_part(y, want.y, n - of_sequence); },
                      {{y.data(), y.bytes()}}};
    measured.note = note, measured.shape = {shape.T, shape.C};
    forwards.version(kVersions[i], std::move(measured));
  }
  forwards.run(report);

  report.table("backward   " + problem, 0, sampled);
  Measurement backwards(options);
  const dense_backward::Branches branches;
  const float* from_y = d_grad_y.data();
  std::vector<std::pair<void*, size_t>> outputs{{grad_x.data(), grad_x.bytes()}};
  for (DeviceBuffer<float>& buffer : gradients) outputs.push_back({buffer.data(), buffer.bytes()});
  for (size_t i = 0; i < std::size(kVersions); ++i) {
    if (!options.wants(kVersions[i].name)) continue;
    forward(y.data(), d_x.data(), parameters, shape, *kept[i], kVersions[i].launch);
    Measured measured{
        {0, 2 * work.operations, Work::Limit::fma},
        [&, i](hipStream_t stream) {
          backward(gradient, grad_x.data(), from_y, d_x.data(), parameters, shape, *kept[i],
                   workspace, kVersions[i].launch, {stream, &branches});
        },
        [&] {
          from_y = d_grad_y.data();
          std::vector<Comparison> parts{compare_part(grad_x, want.grad_x, n - of_sequence)};
          for (size_t k = 0; k < kTensors; ++k)
            parts.push_back(compare_part(gradients[k], want.gradients[k], 0));
          return together(parts);
        },
        outputs,
        [&] { from_y = d_only_last.data(); }};
    backwards.version(kVersions[i], std::move(measured));
  }
  backwards.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.6",
      "transformer_block",
      "attention and a feed-forward network, with residuals",
      {{"B", 64, 4, 2}, {"T", 256, 64, 17}, {"C", 384, 64, 24}, {"H", 6, 4, 3}},
      version_infos(kVersions)};
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
    run(shape, options, report);
    // The other model of step 7.7: its products are so small that launches count.
    const bool usual = !options.sizes_given && !options.quick;
    if (usual && std::string(gpu::kBackend) != "cpu") run({32, 128, 64, 4}, options, report);
  });
}
