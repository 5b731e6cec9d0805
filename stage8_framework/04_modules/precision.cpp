#include "stage8_framework/04_modules/precision.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "common/half.h"
#include "common/random.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage8_framework/03_autograd/tape.h"

namespace modules {

namespace {

constexpr const char* kPrecision = "--precision";
constexpr std::uint64_t kCheckedSteps = 20;
constexpr int kTwins = 4;
constexpr double kFactor = 4, kWithin = 0.01;

// Moves each parameter by a rounding of bf16, up or down as the seed says.
void move(Module& model, std::uint64_t seed) {
  const framework::NoGrad guard;
  std::uint32_t stream = 0;
  for (const framework::NamedTensor& parameter : model.parameters()) {
    const Tensor values = parameter.tensor->detach();
    std::vector<float> factors(static_cast<size_t>(values.elements()));
    for (size_t i = 0; i < factors.size(); ++i)
      factors[i] = 1 + std::copysign(static_cast<float>(gpu::kBfloat16Roundoff),
                                     random_numbers::uniform(seed, stream, i));
    values.copy_from(values * Tensor::from_host(values.device(), factors, values.shape()));
    ++stream;
  }
}

// The losses of the model, moved by each of the seeds from `first` on.
std::vector<double> losses_beside(Module& model, std::uint64_t first,
                                  const std::function<Tensor()>& loss) {
  const framework::NoGrad guard;
  std::vector<Tensor> before;
  for (const framework::NamedTensor& parameter : model.parameters())
    before.push_back(parameter.tensor->detach().clone());
  std::vector<double> losses;
  for (int twin = 0; twin < kTwins; ++twin) {
    move(model, first + static_cast<std::uint64_t>(twin));
    losses.push_back(static_cast<double>(loss().to_host<float>()[0]));
    size_t i = 0;
    for (const framework::NamedTensor& parameter : model.parameters())
      parameter.tensor->detach().copy_from(before[i++]);
  }
  return losses;
}

// The gradient of the first step, all parameters one behind the other.
std::vector<double> gradient_of(const Training& training, bool is_moved) {
  const std::unique_ptr<Module> model = training.make(training.task.device);
  if (is_moved) move(*model, 0);
  best().launch(*model, training.task, 1);
  std::vector<double> all;
  for (const framework::NamedTensor& parameter : model->parameters()) {
    const std::vector<float> values = parameter.tensor->grad().to_host<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

train_toy::Trajectory trajectory_of(const Training& training) {
  std::vector<std::vector<double>> of_twins;  // for each step
  Task task = training.task;
  task.loss = [&](Module& model, const std::vector<Tensor>& batch) {
    const auto loss = [&] { return training.task.loss(model, batch); };
    of_twins.push_back(losses_beside(model, of_twins.size() * kTwins, loss));
    return loss();
  };
  const std::vector<float> losses =
      best().launch(*training.make(task.device), task, std::min(kCheckedSteps, training.steps));
  train_toy::Trajectory want;
  train_toy::Twins drift(kFactor);
  for (size_t t = 0; t < losses.size(); ++t)
    if (!drift.add(want, static_cast<double>(losses[t]), of_twins[t])) break;
  want.gradient = gradient_of(training, false), want.twin_gradient = gradient_of(training, true);
  constexpr double kThere = 10;  // times the distance of a twin's gradient, by compare_gradient()
  for (size_t i = 0; i < want.gradient.size(); ++i)
    want.twin_gradient[i] =
        want.gradient[i] + kFactor / kThere * (want.twin_gradient[i] - want.gradient[i]);
  return want;
}

}  // namespace

ExtraOption precision_option() {
  return {kPrecision, "TYPE",
          "bf16: train the character model alone, its products and attention in bf16; or fp32"};
}

bool wants_bf16(const Options& options) {
  const auto given = options.extra.find(kPrecision);
  if (given == options.extra.end() || given->second == "fp32") return false;
  if (given->second == "bf16") return true;
  throw UsageError(std::string(kPrecision) + ": " + given->second + " is neither fp32 nor bf16");
}

Training in_bf16(const Training& training) {
  if (!check(training, best().launch).ok)
    throw std::runtime_error(training.name + ": in f32 it is not what its reference says");
  Training result = training;
  result.name += "   products in bf16";
  result.task.loss = [loss = training.task.loss](Module& model, const std::vector<Tensor>& batch) {
    const framework::Autocast guard;
    return loss(model, batch);
  };
  result.want = trajectory_of(training);
  // Of the training in f32, once somebody has asked.
  const auto in_f32 = std::make_shared<std::vector<double>>();
  result.judge = [=](Module& model, const std::vector<float>& losses) {
    Training::Result reached;
    {
      const framework::Autocast guard;
      reached = training.judge(model, losses);
    }
    if (losses.empty()) return reached;
    if (in_f32->empty()) {
      const std::unique_ptr<Module> other = training.make(training.task.device);
      const auto of_f32 = best().launch(*other, training.task, training.steps);
      *in_f32 = training.judge(*other, of_f32).reached;
    }
    double off = 0;
    for (size_t i = 0; i < in_f32->size(); ++i) {
      const double apart = std::fabs(reached.reached[i] / (*in_f32)[i] - 1);
      off = std::isnan(apart) ? INFINITY : std::fmax(off, apart);
    }
    reached.text += train_toy::text(", within %.2f%% of f32's", 100 * off);
    if (reached.missed.empty() && !(off <= kWithin))
      reached.missed = reached.text + train_toy::text(", promised %.0f%%", 100 * kWithin);
    return reached;
  };
  return result;
}

}  // namespace modules
