#include "stage7_transformer/07_train_shakespeare/first_steps.h"

#include <algorithm>
#include <vector>

#include "stage5_training/06_train_toy/epochs.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

namespace {

// The host computes a step of so many operations in a second.
constexpr double kMostReferenceOperations = 4e9;

// Where there is no reference of bf16, its losses are held against those of floats. A loss is a
// mean over all characters of a batch, of which each may be off by some U, up or down.
constexpr double kBf16OfLoss = gpu::kBfloat16Roundoff / 4;

}  // namespace

FirstSteps::FirstSteps(Training& training, const Corpus& corpus, Precision precision)
    : training_(training),
      corpus_(corpus),
      precision_(precision),
      steps_(std::min(kCheckedSteps, training.schedules.size())),
      whole_(operations_of(training.model, 1) <= kMostReferenceOperations) {
  if (whole_)
    want_ = trajectory_cpu(training.wanted(), corpus.train, parameters_of(training.model), steps_,
                           precision);
}

std::string FirstSteps::checked_text() const {
  if (whole_)
    return "checked: the first gradient and the losses of the first " +
           std::to_string(want_.losses.size()) + " steps";
  return "checked: the losses of the first " + std::to_string(steps_) +
         " steps against `operations`, of which one piece was checked";
}

Comparison FirstSteps::check_forward() {
  const ModelSizes& sizes = training_.model.sizes();
  const auto begin = corpus_.train.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(sizes.context);
  const Batch piece{{begin, end}, {begin + 1, end + 1}};
  const std::vector<std::vector<float>> parameters = parameters_of(training_.model);
  const bool is_bf16 = precision_ == Precision::bf16;
  const auto loss_of_piece = [&](unsigned twin) {
    const Layers layers(sizes, training_.model.vocabulary(),
                        is_bf16 && twin > 0 ? Precision::bf16_twin : precision_);
    sequential::DoubleModel run(layers.network(), train_toy::Twins::beside(parameters, twin),
                                {false, 0, 0, true});
    return loss_cpu(run.forward(tokens_of(piece.tokens), 1), piece.labels).mean.value;
  };
  train_toy::Trajectory want;
  twins().add(want, loss_of_piece(0), {loss_of_piece(1)});
  const double got = is_bf16 ? loss_of(training_.model, training_.bf16_pass(), training_.train(), 1)
                             : loss_of(training_.model, training_.plain, training_.train(), 1);
  return train_toy::compare_losses({static_cast<float>(got)}, want);
}

std::vector<float> FirstSteps::losses_of(Launch launch) {
  return train_toy::next_losses(
      training_, [&](size_t steps) { train(training_, launch, steps); }, steps_);
}

train_toy::Trajectory FirstSteps::of_operations() {
  const Launch launch = kVersions[0].launch;
  training_.restart();
  const std::vector<float> losses = losses_of(launch);
  training_.restart();
  const auto weights = train_toy::Twins::beside(parameters_of(training_.model), 1);
  for (size_t k = 0; k < weights.size(); ++k)
    HIP_CHECK(hipMemcpy(training_.model.tensors()[k].w, weights[k].data(),
                        weights[k].size() * sizeof(float), hipMemcpyHostToDevice));
  const std::vector<float> twin = losses_of(launch);
  train_toy::Trajectory want;
  train_toy::Twins drift = twins();
  for (size_t i = 0; i < steps_; ++i)
    if (!drift.add(want, static_cast<double>(losses[i]), {static_cast<double>(twin[i])})) break;
  if (precision_ == Precision::bf16)
    for (size_t i = 0; i < want.losses.size(); ++i) want.bounds[i] += kBf16OfLoss * want.losses[i];
  return want;
}

Comparison FirstSteps::check(const Version<Launch>& version) {
  std::vector<Comparison> verdicts;
  if (whole_) {
    verdicts.push_back(train_toy::check_first_steps(
        training_, [&](size_t steps) { train(training_, version.launch, steps); }, want_));
  } else {
    if (want_.losses.empty()) {
      want_ = of_operations();
      training_.restart();
      verdicts.push_back(check_forward());
    }
    if (&version != &kVersions[0]) {
      training_.restart();
      verdicts.push_back(train_toy::compare_losses(losses_of(version.launch), want_));
    }
  }
  training_.restart();
  return together(verdicts);
}

}  // namespace train_shakespeare
