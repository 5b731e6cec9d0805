// Runs, checks and times every version of the optimizers on a large and on a small model.
#include "stage5_training/04_optimizers/optimizers.h"

#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage5_training/04_optimizers/problem.h"
#include "stage5_training/04_optimizers/reference.h"

using gpu::DeviceBuffer;
using optimizers::Element;
using optimizers::Kind;

namespace {

constexpr size_t kMaxTensors = size_t{1} << 20;  // as many as anybody would wait for

struct Problem {
  Problem(size_t size, size_t tensors, std::uint64_t random_seed)
      : n(size),
        seed(random_seed),
        d_w(n),
        d_grad_w(n),
        d_m(n),
        d_v(n),
        schedule(optimizers::make_schedule({})),
        list(optimizers::cut({d_w.data(), d_grad_w.data(), d_m.data(), d_v.data(), n}, tensors,
                             seed)),
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
    optimizers::Schedule begun;
    begun.step = optimizers::kCheckedStep - 1;
    schedule.to_device(&begun, 1);
  }

  // The sampled parameters after one step from reset().
  std::vector<Element> step_cpu(Kind kind) const {
    std::vector<Element> elements = optimizers::elements_of(w, m, v);
    optimizers::step_cpu(kind, {}, optimizers::kCheckedStep, grad_w, elements);
    return elements;
  }

  Comparison compare(const std::vector<Element>& elements) const {
    std::vector<Comparison> parts;
    const DeviceBuffer<float>* const arrays[] = {&d_w, &d_m, &d_v};
    for (size_t c = 0; c < std::size(arrays); ++c)
      parts.push_back(sample.compare(
          arrays[c]->data(), optimizers::column(elements, optimizers::kColumns[c].value),
          [&](size_t i) { return elements[i].*optimizers::kColumns[c].error; }));
    return together(parts);
  }

  size_t n;
  std::uint64_t seed;
  DeviceBuffer<float> d_w, d_grad_w, d_m, d_v;
  DeviceBuffer<optimizers::Schedule> schedule;
  optimizers::TensorList list;
  Sample sample;
  std::vector<float> w, grad_w, m, v;  // the sampled elements, as reset() leaves them
};

// A table: whole steps by this optimizer, by every version that was asked for.
void run(Kind kind, Problem& p, const Options& options, Report& report) {
  HostTimer timer;
  const std::vector<Element> elements = p.step_cpu(kind);
  report.table(optimizers::name(kind, p.n, p.list.tensors().size()),
               p.sample.size == p.n ? timer.ms() : 0, p.sample.text);
  const size_t bytes = optimizers::bytes_per_parameter(kind) * p.n;
  Measurement table(options);
  for (const auto& version : optimizers::kVersions) {
    Measured measured{{static_cast<double>(bytes), 0, Work::Limit::copy},
                      [&](hipStream_t stream) {
                        optimizers::launch_begin_step(p.schedule.data(), stream);
                        version.launch(kind, p.list, p.schedule.data(), stream);
                      },
                      [&] { return p.compare(elements); }};
    measured.prepare = [&] { p.reset(); };  // the step works in place: no output can be poisoned
    table.version(version, measured);
  }
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.4", "optimizers",
                            "SGD, momentum, Adam and AdamW, a whole model at once",
                            optimizers::sizes(), version_infos(optimizers::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t n = options.sizes[0], tensors = options.sizes[1];
    if (tensors > kMaxTensors)
      throw UsageError("a model has 1 to " + size_text(kMaxTensors) + " tensors, not " +
                       std::to_string(tensors));
    require_device_memory(4.0 * sizeof(float) * static_cast<double>(n));
    report.limits(timing::measure_limits(options));
    report.headline(optimizers::name(optimizers::kKinds[0], n, tensors));
    for (const size_t size : optimizers::printed(n, options.sizes_given)) {
      Problem problem(size, tensors, options.seed);
      for (const Kind kind : optimizers::kKinds) run(kind, problem, options, report);
    }
  });
}
