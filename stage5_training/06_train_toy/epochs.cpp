#include "stage5_training/06_train_toy/epochs.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "common/compare.h"
#include "common/timer.h"
#include "stage5_training/05_sequential/checkpoint.h"

namespace train_toy {

Settings settings_of(const Options& options) {
  Settings settings;
  settings.hyper.learning_rate = static_cast<float>(options.training.learning_rate);
  settings.seed = options.seed;
  for (const Kind kind : optimizers::kKinds)
    if (options.training.optimizer == optimizers::name(kind)) settings.kind = kind;
  return settings;
}

bool as_promised(const Options& options, const TrainingDefaults& defaults) {
  const TrainingOptions& training = options.training;
  return !options.quick && !options.sizes_given && training.optimizer == defaults.optimizer &&
         training.learning_rate == defaults.learning_rate && training.batch == defaults.batch;
}

std::vector<float> next_losses(Trainer& t, const QueueSteps& queue, size_t steps) {
  std::vector<float> losses;
  while (losses.size() < steps) {
    const size_t place = t.steps % t.curve.size();
    const size_t some = std::min(steps - losses.size(), t.curve.size() - place);
    queue(some);
    const std::vector<float> curve = t.losses();
    const auto begin = curve.begin() + static_cast<std::ptrdiff_t>(place);
    losses.insert(losses.end(), begin, begin + static_cast<std::ptrdiff_t>(some));
  }
  return losses;
}

Comparison check_first_steps(Trainer& t, const QueueSteps& queue, const Trajectory& want) {
  t.restart();
  const std::vector<float> before = t.parameters();
  queue(1);
  HIP_CHECK(hipDeviceSynchronize());
  const Comparison gradient = compare_gradient(t.stored().tensors, t.settings.kind,
                                               t.schedule.to_host()[0].hyper, before, want);
  t.restart();
  return together({compare_losses(next_losses(t, queue, want.losses.size()), want), gradient});
}

double finite_loss(const Trainer& t, std::uint64_t begin, const training::Kept& kept) {
  const std::vector<float> curve = t.losses();
  const size_t per_epoch = t.steps_per_epoch() > 1 ? t.steps_per_epoch() : 0;
  std::vector<float> losses;
  for (std::uint64_t k = begin / t.every; k < t.steps / t.every; ++k) {
    losses.push_back(curve[k % curve.size()]);
    training::require_finite({losses.back()}, 0, 1, (k + 1) * t.every - 1, per_epoch, kept);
  }
  sequential::require_finite_stored(t.stored(), t.settings.kind, t.steps, kept);
  return training::mean_of(losses, 0, losses.size());
}

double run_epochs(Trainer& t, const Epochs& epochs, const QueueSteps& queue,
                  const training::Interrupt& interrupt) {
  const size_t per_epoch = t.steps_per_epoch(), round = epochs.steps_per_round;
  const std::uint64_t last = std::uint64_t{epochs.in_all} * per_epoch;
  const std::uint64_t of_bar = per_epoch > 1 ? per_epoch : last;  // steps until the bar is full
  training::Kept kept{epochs.checkpoint, t.steps};
  training::Progress progress(epochs.in_all, stdout, epochs.unit);
  double ms = 0;
  while (t.steps < last) {
    const std::uint64_t begin = t.steps, end = std::min(last, (begin / round + 1) * round);
    while (t.steps < end) {
      const std::uint64_t next = std::min(end, t.steps + epochs.steps_at_a_time);
      const HostTimer timer;
      queue(next - t.steps);
      HIP_CHECK(hipDeviceSynchronize());
      ms += timer.ms();
      if (t.steps != next) throw std::logic_error("this version does not count its steps");
      if (interrupt.asked() && t.steps < last) {
        if (epochs.checkpoint.empty())
          interrupt.stop("stopped after " + std::to_string(t.steps) +
                         " steps; with --checkpoint FILE the work would have been saved");
        finite_loss(t, begin, kept);
        t.save(epochs.checkpoint, epochs.more);
        interrupt.stop("stopped after " + std::to_string(t.steps) + " steps, saved in " +
                       epochs.checkpoint + ": go on with --resume");
      }
      progress.update((t.steps - 1) / per_epoch + 1, (t.steps - 1) % of_bar + 1, of_bar, "");
    }
    const double loss = finite_loss(t, begin, kept);
    const std::string line = epochs.after_round(t.steps / per_epoch, loss, kept);
    if (!epochs.checkpoint.empty()) t.save(epochs.checkpoint, epochs.more), kept.steps = t.steps;
    if (!line.empty()) progress.finish_epoch(t.steps / per_epoch, line);
    if (epochs.is_enough()) break;
  }
  return ms;
}

}  // namespace train_toy
