// What the tests of step 5.5 share: random inputs, a step held against the reference, a training.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage4_forward/01_dense/values_for_tests.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/05_sequential/sequential.h"

namespace sequential_test {

using namespace sequential;
using optimizers::Kind;
using Shape = std::vector<size_t>;

inline constexpr Mode kFused = kVersions[2].launch;

// Some more of them are positive than negative.
inline std::vector<float> some_floats(size_t n, std::uint32_t stream) {
  return testing::random_floats(n, stream, 2, 0.25f);
}

inline std::vector<float> to_host(const float* values, size_t n) {
  std::vector<float> host(n);
  if (n > 0) HIP_CHECK(hipMemcpy(host.data(), values, n * sizeof(float), hipMemcpyDeviceToHost));
  return host;
}
inline void to_device(float* values, const std::vector<float>& host) {
  HIP_CHECK(hipMemcpy(values, host.data(), host.size() * sizeof(float), hipMemcpyHostToDevice));
}

// All bits of w, m and v.
inline std::vector<float> state(const Sequential& model) {
  const optimizers::ParameterArena& arena = model.arena();
  std::vector<float> all = to_host(arena.w, arena.n);
  for (const float* array : {arena.m, arena.v})
    for (const float value : to_host(array, arena.n)) all.push_back(value);
  return all;
}
inline std::vector<float> gradients(const Sequential& model) {
  std::vector<float> all;
  for (const NamedTensor& tensor : model.tensors())
    for (const float value : to_host(tensor.grad, tensor.n)) all.push_back(value);
  return all;
}
using testing::same_bits;

inline void poison_gradients(const Sequential& model) {
  for (const NamedTensor& tensor : model.tensors())
    gpu::poison(tensor.grad, tensor.n * sizeof(float));
}

using dense::against;

// A step's inputs, and what the reference makes of them.
struct Step {
  Step(const Sequential& model, size_t samples)
      : batch(samples),
        x(some_floats(batch * model.inputs(), 100)),
        grad_y(some_floats(batch * model.outputs(), 101)),
        want(step_cpu(model, x, grad_y, batch)) {}

  size_t batch;
  std::vector<float> x, grad_y;
  Reference want;
};

// What a step of the model has made, or the first of its results that is out of bound.
inline Comparison run(Sequential& model, const Step& step, size_t offset = 0) {
  Guarded<float> d_x(step.x, offset), d_grad_y(step.grad_y, offset);
  Guarded<float> d_grad_x(step.x.size(), offset);
  poison_gradients(model);
  const float* y = model.forward(d_x.data(), step.batch);
  const std::vector<float> got_y = to_host(y, step.grad_y.size());
  model.backward(d_grad_y.data(), d_grad_x.data(), nullptr);
  REQUIRE(d_grad_x.intact());
  REQUIRE(same_bits(d_x.to_host(), step.x));
  REQUIRE(same_bits(d_grad_y.to_host(), step.grad_y));
  Comparison verdict = against(got_y, step.want.y);
  for (size_t k = 0; verdict.ok && k < model.tensors().size(); ++k) {
    const NamedTensor& tensor = model.tensors()[k];
    verdict = against(to_host(tensor.grad, tensor.n), step.want.gradients[k]);
  }
  return verdict.ok ? against(d_grad_x.to_host(), step.want.grad_x) : verdict;
}

// Biases that are not 0, which would hide where they are added.
inline void randomize_biases(Sequential& model) {
  std::uint32_t stream = 200;
  for (const NamedTensor& tensor : model.tensors())
    if (tensor.shape.size() == 1) to_device(tensor.w, some_floats(tensor.n, stream++));
}

template <class... Layers>
Sequential make(Layers... layers) {
  Sequential model{std::move(layers)...};
  model.initialize(5);
  randomize_biases(model);
  return model;
}

// A training on fixed data: cross-entropy, and one optimizer.
struct Trainer {
  Trainer(Sequential& trained, Kind rule, const std::vector<float>& x,
          const std::vector<int>& labels, float rate, std::uint64_t steps = 0)
      : model(trained),
        kind(rule),
        batch(labels.size()),
        d_x(x),
        d_grad(batch * trained.outputs()),
        d_loss(1),
        d_labels(labels),
        buffers(batch) {
    optimizers::Hyperparameters hyper;
    hyper.learning_rate = rate;
    schedule = optimizers::make_schedule(hyper, steps);
  }
  void step(hipStream_t stream = nullptr) {
    const float* y = model.forward(d_x.data(), batch, stream);
    losses::cross_entropy(d_loss.data(), d_grad.data(), y,
                          {d_labels.data(), batch, model.outputs()}, buffers.workspace(), stream);
    model.backward(d_grad.data(), stream);
    optimizers::step(kind, model.arena(), schedule.data(), stream);
  }
  double loss() const { return static_cast<double>(d_loss.to_host()[0]); }

  Sequential& model;
  Kind kind;
  size_t batch;
  DeviceBuffer<float> d_x, d_grad, d_loss;
  DeviceBuffer<int> d_labels;
  losses::Buffers buffers;
  DeviceBuffer<optimizers::Schedule> schedule;
};

inline std::vector<int> some_labels(size_t batch, size_t classes) {
  std::vector<int> labels(batch);
  for (size_t i = 0; i < batch; ++i) labels[i] = static_cast<int>((i * i + 1) % classes);
  return labels;
}

// What a call throws as Exception, which must be one line.
template <class Exception, class Call>
std::string complaint(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "no complaint";
}

}  // namespace sequential_test
