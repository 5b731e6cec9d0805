#include "stage5_training/06_train_toy/trainer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "stage5_training/06_train_toy/sampler.h"
#include "stage5_training/06_train_toy/sequential_trainer.h"

namespace train_toy {

Sampler require_batch(const Sampler& sampler, const char* samples) {
  if (sampler.batch == 0 || sampler.batch > sampler.samples)
    throw std::invalid_argument("a batch of " + std::to_string(sampler.batch) +
                                " is not from 1 to the " + std::to_string(sampler.samples) + " " +
                                samples);
  return sampler;
}

Trainer::Trainer(const Settings& wanted, const CurveShape& curve_shape)
    : settings(wanted), schedule(1), loss(1) {
  HIP_CHECK(hipStreamCreate(&stream));
  set_curve(curve_shape);
}

SequentialTrainer::SequentialTrainer(sequential::Sequential trained, const Settings& wanted,
                                     size_t batch_size, const CurveShape& curve_shape)
    : Trainer(wanted, curve_shape),
      model(std::move(trained)),
      batch(batch_size),
      grad_y(batch_size * model.outputs()) {
  restart();
}

Trainer::~Trainer() {
  static_cast<void>(hipStreamSynchronize(stream));  // graphs must live until they have run
  static_cast<void>(hipStreamDestroy(stream));
}

void Trainer::set_curve(const CurveShape& shape) {
  if (shape.length != curve.size() || shape.every != every) forget_graphs();
  if (shape.length != curve.size()) curve = DeviceBuffer<float>(shape.length);
  every = shape.every;
  curve.poison();
}

void Trainer::go_on(std::uint64_t steps_done) {
  Schedule behind;
  behind.hyper = settings.hyper, behind.step = steps_done;
  schedule.to_device(&behind, 1);  // graphs know where it is
  curve.poison();
  steps = steps_done;
  HIP_CHECK(hipDeviceSynchronize());
}

void Trainer::set_learning_rate(float rate) {
  HIP_CHECK(hipStreamSynchronize(stream));
  Schedule next = schedule.to_host()[0];
  next.hyper.learning_rate = rate;
  schedule.to_device(&next, 1);
}

void Trainer::restart() {
  initialize();
  go_on(0);
}

void Trainer::forget_graphs() {
  if (captured_.empty()) return;
  HIP_CHECK(hipStreamSynchronize(stream));  // they must live until they have run
  captured_.clear();
  graph_.reset(), one_step_.reset();
}

void Trainer::run_in_pieces(size_t count, const std::function<void(size_t)>& run) {
  while (count > 0) {
    const size_t piece =
        every == 1 ? count : std::min<size_t>(count, every - static_cast<size_t>(steps % every));
    run(piece);
    steps += piece, count -= piece;
    if (every > 1 && steps % every == 0)
      HIP_CHECK(hipMemcpyAsync(curve.data() + (steps / every - 1) % curve.size(), loss.data(),
                               sizeof(float), hipMemcpyDeviceToDevice, stream));
  }
}

std::vector<float> Trainer::losses() const {
  HIP_CHECK(hipDeviceSynchronize());  // a cooperative launch is on the default stream
  return curve.to_host();
}

std::vector<float> Trainer::parameters() const {
  HIP_CHECK(hipStreamSynchronize(stream));
  std::vector<float> all;
  const sequential::Stored model = stored();
  for (const sequential::NamedTensor& tensor : model.tensors) {
    all.resize(all.size() + tensor.n);
    HIP_CHECK(hipMemcpy(all.data() + all.size() - tensor.n, tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return all;
}

sequential::TrainingState Trainer::state() const {
  return {steps, steps / steps_per_epoch(), settings.seed, optimizers::name(settings.kind),
          facts()};
}

void Trainer::save(const std::string& path, const std::map<std::string, std::string>& more) const {
  HIP_CHECK(hipStreamSynchronize(stream));
  sequential::TrainingState kept = state();
  kept.more.insert(more.begin(), more.end());
  safetensors::write(path, sequential::file_of_stored(stored(), &kept));
}

void Trainer::resume(const std::string& path) {
  const safetensors::File file = safetensors::read(path);
  sequential::require_training(path, file, state());
  go_on(sequential::load_stored(path, file, stored()).steps);
}

}  // namespace train_toy
