// Builds models, checks a step of each by every version, times it, and takes a checkpoint there and
// back.
#include "stage5_training/05_sequential/sequential.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/reference.h"

using device_matrix::Matrix;
using sequential::Linear;
using sequential::NamedTensor;
using sequential::ReLU;
using sequential::Sequential;

namespace {

constexpr size_t kChecked = 32;  // samples of the step that is held against the reference

// A network of three layers.
struct Shape {
  size_t batch, in, hidden, out;

  double weights() const {
    const double wide = static_cast<double>(hidden);
    return wide * (static_cast<double>(in) + wide + static_cast<double>(out));
  }
  // Three products per layer: of the outputs, of the weights' gradients, and, but for the first
  // layer, of the inputs' gradients.
  double operations() const {
    const double first = static_cast<double>(in) * static_cast<double>(hidden);
    return 2 * static_cast<double>(batch) * (3 * weights() - first);
  }
  // The weights are read twice, but the first layer's, and their gradients are written.
  double bytes() const {
    const double first = static_cast<double>(in) * static_cast<double>(hidden);
    const double samples = static_cast<double>(in) + 2 * static_cast<double>(out);
    return sizeof(float) * (3 * weights() - first + static_cast<double>(batch) * samples);
  }
  // What a model of each version takes, and a step of each.
  double device_bytes() const {
    const double widest = static_cast<double>(std::max({in, hidden, out}));
    return sizeof(float) * (3 * 4 * weights() + 3 * 9 * static_cast<double>(batch) * widest);
  }
  Sequential model() const {
    return Sequential{Linear(in, hidden), ReLU(), Linear(hidden, hidden), ReLU(),
                      Linear(hidden, out)};
  }
  std::string name() const {
    return "batch " + std::to_string(batch) + ", " + std::to_string(in) + " -> " +
           std::to_string(hidden) + " -> " + std::to_string(hidden) + " -> " + std::to_string(out) +
           " float32";
  }
};

// Results of a step, one behind the other, and what they are held against.
struct Results {
  std::vector<float> got;
  std::vector<double> want, bound;

  void add(const float* values, size_t n) {
    got.resize(got.size() + n);
    HIP_CHECK(
        hipMemcpy(got.data() + got.size() - n, values, n * sizeof(float), hipMemcpyDeviceToHost));
  }
  void expect(const sequential::Values& values) {
    want.insert(want.end(), values.value.begin(), values.value.end());
    bound.insert(bound.end(), values.error.begin(), values.error.end());
  }
  Comparison compare() const {
    return ::compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return bound[i]; });
  }
};

// A step's inputs, alike for all versions, and what the reference makes of them.
struct Problem {
  Problem(const Shape& sizes, std::uint64_t random_seed)
      : shape(sizes),
        checked(std::min(shape.batch, kChecked)),
        seed(random_seed),
        d_x(shape.batch, shape.in),
        d_grad_y(shape.batch, shape.out) {}

  // Random numbers, or small integers, also for the parameters.
  void fill(Sequential& model, bool integers) {
    constexpr std::uint32_t kStream = 1000;  // behind those of the parameters
    const auto fill =
        integers ? random_numbers::launch_fill_integers : random_numbers::launch_fill_uniform;
    model.initialize(seed);
    if (integers)
      for (size_t k = 0; k < model.tensors().size(); ++k)
        fill(model.tensors()[k].w, model.tensors()[k].n, seed, static_cast<std::uint32_t>(k),
             nullptr);
    fill(d_x.data(), d_x.size(), seed, kStream, nullptr);
    fill(d_grad_y.data(), d_grad_y.size(), seed, kStream + 1, nullptr);
  }
  void make_reference(const Sequential& model) {
    std::vector<float> x = d_x.to_host(), grad_y = d_grad_y.to_host();
    x.resize(checked * shape.in), grad_y.resize(checked * shape.out);
    HostTimer timer;
    reference = sequential::step_cpu(model, x, grad_y, checked);
    reference_ms = timer.ms();
    first.clear();
  }

  // Whether integers stay so small that all sums are exact in float, in any order: partial sums of
  // terms of both signs are rarely larger than four times the largest of the sums.
  bool is_exact() const {
    constexpr double kMost = 4194304;  // 2^22
    const auto small = [](const sequential::Values& values) {
      return std::all_of(values.value.begin(), values.value.end(),
                         [](double value) { return std::fabs(value) < kMost; });
    };
    return small(reference.y) &&
           std::all_of(reference.gradients.begin(), reference.gradients.end(), small);
  }

  // One step, as it is timed. (The loss between the two is step 3.3's, the update step 5.4's.)
  const float* step(Sequential& model, size_t batch, hipStream_t stream) const {
    const float* y = model.forward(d_x.data(), batch, stream);
    model.backward(d_grad_y.data(), stream);
    return y;
  }
  // A step of a few samples, y and all gradients, against the reference. Before that, y and the
  // weights' gradients of the whole batch, whose step has just run, against those of the first
  // version: the same bits. (Versions add up the gradients of a bias in different orders.)
  Comparison compare(Sequential& model, const float* y) {
    Results whole;
    whole.add(y, shape.batch * shape.out);
    for (const NamedTensor& tensor : model.tensors())
      if (tensor.shape.size() > 1) whole.add(tensor.grad, tensor.n);
    if (first.empty()) first = whole.got;
    whole.want.assign(first.begin(), first.end());
    whole.bound.assign(first.size(), 0);
    const Comparison same = whole.compare();
    return same.ok ? compare_part(model) : same;
  }
  Comparison compare_part(Sequential& model) const {
    Results part;
    part.add(step(model, checked, nullptr), checked * shape.out);
    part.expect(reference.y);
    for (size_t k = 0; k < model.tensors().size(); ++k) {
      part.add(model.tensors()[k].grad, model.tensors()[k].n);
      part.expect(reference.gradients[k]);
    }
    return part.compare();
  }

  Shape shape;
  size_t checked;
  std::uint64_t seed;
  Matrix<float> d_x, d_grad_y;
  sequential::Reference reference;
  double reference_ms = 0;
  std::vector<float> first;  // the results of the first version that ran
};

std::string megabytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g MB", static_cast<double>(bytes) / 1e6);
  return text;
}

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  const bool whole = p.checked == shape.batch;
  Measurement table(options);
  std::deque<Sequential> models;  // one of each version: a mode is not changed between two steps
  std::deque<const float*> outputs;
  for (const auto& version : sequential::kVersions) {
    if (!options.wants(version.name)) continue;
    Sequential& model = models.emplace_back(shape.model());
    const float*& y = outputs.emplace_back(nullptr);
    model.set_mode(version.launch);
    Measured measured{{shape.bytes(), shape.operations(), Work::Limit::fma},
                      [&](hipStream_t stream) { y = p.step(model, shape.batch, stream); },
                      [&] { return p.compare(model, y); }};
    measured.verify_exactly = [&] { return p.compare_part(model); };
    for (const NamedTensor& tensor : model.tensors())
      measured.outputs.emplace_back(tensor.grad, tensor.n * sizeof(float));
    measured.finish = [&](Row& row) {
      row.note = "a step keeps " + megabytes(model.step_bytes()) +
                 (row.note.empty() ? "" : "   " + row.note);
    };
    table.version(version, measured);
  }
  const auto fill = [&](bool integers) {
    for (Sequential& model : models) p.fill(model, integers);
    if (!models.empty()) p.make_reference(models.front());
  };
  fill(true);
  if (p.is_exact()) table.check_exactly();
  fill(false);
  report.table(shape.name(), whole ? p.reference_ms : 0,
               whole ? "" : "checked on a batch of " + std::to_string(p.checked));
  table.run(report);
}

// What the model is made of, a line per layer.
void print_layers(const Sequential& model, Report& report) {
  size_t k = 0;
  for (size_t i = 0; i < model.layers(); ++i) {
    char line[160];
    std::snprintf(line, sizeof line, "%zu  %-20s  %7zu values", i,
                  model.layer(i).description().c_str(), model.width(i));
    std::string text = line;
    for (size_t left = model.layer(i).parameters().size(); left > 0; --left, ++k)
      text +=
          "  " + model.tensors()[k].name + " " + safetensors::shape_text(model.tensors()[k].shape);
    report.line(text);
  }
  report.line(std::to_string(model.parameter_count()) + " parameters, " +
              megabytes(model.parameter_bytes()) + " with gradients, m and v");
}

// Saves a model with the state of an optimizer, loads it into another one, and compares the bits.
void check_checkpoint(const Shape& shape, std::uint64_t seed, Report& report) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("sequential." + std::to_string(getpid()) + ".safetensors"))
                               .string();
  Sequential saved = shape.model(), loaded = shape.model();
  saved.initialize(seed);
  const optimizers::ParameterArena &from = saved.arena(), &to = loaded.arena();
  for (const NamedTensor& tensor : saved.tensors())
    random_numbers::launch_fill_uniform(tensor.v, tensor.n, seed, 2000);
  const auto same = [&](const float* a, const float* b) {
    std::vector<float> host_a(from.n), host_b(from.n);
    const size_t bytes = from.n * sizeof(float);
    HIP_CHECK(hipMemcpy(host_a.data(), a, bytes, hipMemcpyDeviceToHost));
    HIP_CHECK(hipMemcpy(host_b.data(), b, bytes, hipMemcpyDeviceToHost));
    return std::memcmp(host_a.data(), host_b.data(), bytes) == 0;
  };
  const sequential::TrainingState state{1000, 10, seed, "adam", {}};
  HostTimer timer;
  sequential::save(path, saved, &state);
  const double save_ms = timer.ms();
  const size_t bytes = std::filesystem::file_size(path);
  timer = HostTimer();
  const sequential::TrainingState found = sequential::load(path, loaded);
  const double load_ms = timer.ms();
  std::filesystem::remove(path);
  if (!same(from.w, to.w) || !same(from.v, to.v) || found.steps != state.steps)
    throw std::runtime_error("the checkpoint did not bring back what was saved");
  report.fact("checkpoint", static_cast<double>(bytes) / 1e6, "MB");
  report.fact("checkpoint saved", save_ms, "ms");
  report.fact("checkpoint loaded", load_ms, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "5.5",
      "sequential",
      "a step of a network of three layers: forward and backward",
      {{"batch", 8192, 64, 5}, {"in", 784, 128, 7}, {"hidden", 1024, 128, 13}, {"out", 10, 10, 3}},
      version_infos(sequential::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1], options.sizes[2], options.sizes[3]};
    require_device_memory(usual.device_bytes());
    report.limits(timing::measure_limits(options));
    report.headline(usual.name());
    // A network for XOR, one for MNIST, and a large one.
    std::vector<Shape> shapes{usual};
    if (!options.sizes_given) {
      if (!options.quick) shapes.insert(shapes.begin(), {64, 784, 128, 10});
      shapes.insert(shapes.begin(), {4, 2, 16, 1});
    }
    for (const Shape& shape : shapes) run(shape, options, report);
    print_layers(usual.model(), report);
    check_checkpoint(usual, options.seed, report);
  });
}
