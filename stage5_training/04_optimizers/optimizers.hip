// Runs, checks and times every version of the optimizers on a large and on a small model.
#include <algorithm>
#include <string>
#include <vector>

#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage5_training/04_optimizers/optimizers.h"

using device_matrix::DeviceBuffer;
using optimizers::Element;
using optimizers::Kind;
using optimizers::ParameterArena;
using optimizers::Schedule;
using optimizers::TensorList;

namespace {

constexpr size_t kMaxTensors = size_t{1} << 20;  // as many as anybody would wait for
constexpr std::uint64_t kStep = 9;               // the step that is checked

// Cuts the arena at random places: tensors as uneven as weights and biases are.
std::vector<ParameterArena> cut(const ParameterArena& arena, size_t tensors, std::uint64_t seed) {
  constexpr std::uint32_t kStream = 4;
  std::vector<size_t> cuts{0, arena.n};
  for (size_t i = 1; i < tensors; ++i) {
    const std::uint64_t high = random_numbers::word(seed, kStream, 2 * i);
    const std::uint64_t word = high << 32 | random_numbers::word(seed, kStream, 2 * i + 1);
    cuts.push_back(word % (arena.n + 1));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<ParameterArena> parts;
  for (size_t i = 0; i < tensors; ++i) parts.push_back(arena.part(cuts[i], cuts[i + 1] - cuts[i]));
  return parts;
}

struct Problem {
  Problem(size_t size, size_t tensors, std::uint64_t random_seed)
      : n(size),
        seed(random_seed),
        d_w(n),
        d_grad_w(n),
        d_m(n),
        d_v(n),
        list(cut({d_w.data(), d_grad_w.data(), d_m.data(), d_v.data(), n}, tensors, seed)),
        text("   n=" + size_text(n) + " tensors=" + std::to_string(tensors) + " float32"),
        sample(choose_sample(n, seed)) {
    reset();
    w = sample.to_host(d_w.data()), grad_w = sample.to_host(d_grad_w.data());
    m = sample.to_host(d_m.data()), v = sample.to_host(d_v.data());
  }

  // A model in the middle of its training: v is m squared.
  void reset() {
    random_numbers::launch_fill_uniform(d_w.data(), n, seed, 0);
    random_numbers::launch_fill_uniform(d_grad_w.data(), n, seed, 1);
    random_numbers::launch_fill_uniform(d_m.data(), n, seed, 2);
    vector_add::launch_vectorized_multiply(d_v.data(), d_m.data(), d_m.data(), n);
    schedule = optimizers::make_schedule({}, kStep - 1);
  }

  // w, m and v of the sampled parameters after one step from reset().
  std::vector<Element> step_cpu(Kind kind) const {
    std::vector<Element> elements(sample.size);
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i].w = static_cast<double>(w[i]);
      elements[i].m = static_cast<double>(m[i]);
      elements[i].v = static_cast<double>(v[i]);
    }
    optimizers::step_cpu(kind, {}, kStep, grad_w, elements);
    return elements;
  }

  // The first of w, m and v that is out of bound, else w.
  Comparison compare(const std::vector<Element>& elements) const {
    const auto check = [&](const DeviceBuffer<float>& got, double Element::*want,
                           double Element::*error) {
      std::vector<double> values(elements.size());
      for (size_t i = 0; i < values.size(); ++i) values[i] = elements[i].*want;
      return sample.compare(got.data(), values, [&](size_t i) { return elements[i].*error; });
    };
    const Comparison of_m = check(d_m, &Element::m, &Element::m_error);
    const Comparison of_v = check(d_v, &Element::v, &Element::v_error);
    if (!of_m.ok) return of_m;
    if (!of_v.ok) return of_v;
    return check(d_w, &Element::w, &Element::w_error);
  }

  size_t n;
  std::uint64_t seed;
  DeviceBuffer<float> d_w, d_grad_w, d_m, d_v;
  TensorList list;
  DeviceBuffer<Schedule> schedule;
  std::string text;
  Sample sample;
  std::vector<float> w, grad_w, m, v;  // the sampled elements, as reset() leaves them
};

// A table: whole steps by this optimizer, by every version that was asked for.
void run(Kind kind, Problem& p, const Options& options, Report& report) {
  HostTimer timer;
  const std::vector<Element> elements = p.step_cpu(kind);
  report.table(optimizers::name(kind) + p.text, p.sample.size == p.n ? timer.ms() : 0,
               p.sample.text);
  const size_t bytes = optimizers::bytes_per_parameter(kind) * p.n;
  const Work work{static_cast<double>(bytes), 0, Work::Limit::copy};
  for (const auto& version : optimizers::kVersions) {
    if (!options.wants(version.name)) continue;
    p.reset();  // the step works in place: there is no output to poison
    report.add(measure(
        version.name, version.lesson, version.needs, work, {}, options.repeat,
        [&] {
          optimizers::launch_begin_step(p.schedule.data());
          version.launch(kind, p.list, p.schedule.data(), nullptr);
        },
        [&] { return p.compare(elements); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.4",
                            "optimizers",
                            "SGD, momentum, Adam and AdamW, a whole model at once",
                            {{"n", 100000000, size_t{1} << 19, 20011}, {"tensors", 148, 148, 37}},
                            version_infos(optimizers::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t n = options.sizes[0], tensors = options.sizes[1];
    if (tensors > kMaxTensors)
      throw UsageError("a model has 1 to " + size_text(kMaxTensors) + " tensors, not " +
                       std::to_string(tensors));
    require_device_memory(4.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));
    // A large model takes the memory's time, one of a hundredth of its size takes the launches'.
    std::vector<size_t> sizes{n};
    if (!options.sizes_given) sizes.push_back(n / 100);
    for (const size_t size : sizes) {
      Problem problem(size, tensors, options.seed);
      for (const Kind kind : optimizers::kKinds) run(kind, problem, options, report);
    }
  });
}
