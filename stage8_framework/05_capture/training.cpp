#include "stage8_framework/05_capture/training.h"

#include <algorithm>

namespace capturing {

namespace {

// The samples of the `count` steps that begin with number `first`, as those of one. `first` is read
// when they are asked for.
framework::Order together(const framework::Order& order, std::int64_t batch, std::int64_t count,
                          const std::int64_t& first) {
  return [=, &first](std::uint64_t, std::int32_t* rows) {
    for (std::int64_t k = 0; k < count; ++k)
      order(static_cast<std::uint64_t>(first + k), rows + k * batch);
  };
}

// Of all steps, and zeros for a graph behind them.
Tensor rates_of(const Task& task, std::uint64_t steps, std::uint64_t count) {
  std::vector<float> rates(static_cast<size_t>(steps + count));
  for (std::uint64_t i = 0; i < steps; ++i) rates[i] = static_cast<float>(task.rate(i));
  return Tensor::from_host(task.device, rates, {static_cast<std::int64_t>(rates.size())});
}

}  // namespace

std::uint64_t steps_of_graph(std::uint64_t steps) {
  const std::uint64_t most = std::clamp(steps / kShare, kFewSteps, kMostSteps);
  return std::clamp<std::uint64_t>((steps - 1) / 3, 1, most);
}

CapturedTraining::CapturedTraining(Module& model, const Task& task, std::uint64_t count,
                                   std::uint64_t steps)
    : model_(model),
      task_(task),
      count_(static_cast<std::int64_t>(count)),
      optimizer_(model.parameters(), task.rule),
      slabs_(task.columns, count_ * task.batch, together(task.order, task.batch, count_, done_), 1),
      rates_(Tensor::empty(task.device, {count_})),
      losses_(Tensor::empty(task.device, {count_})),
      all_rates_(rates_of(task, steps, count)),
      all_losses_(Tensor::empty(task.device, {static_cast<std::int64_t>(steps)})),
      one_(framework::full(task.device, {}, 1)) {}

void CapturedTraining::prepare() {
  const std::vector<Tensor> samples = slabs_.next();
  if (slab_.empty())
    slab_ = samples;
  else
    for (size_t i = 0; i < slab_.size(); ++i) slab_[i].copy_from(samples[i]);
  rates_.copy_from(all_rates_.slice(0, done_, done_ + count_));
}

void CapturedTraining::step(std::int64_t k) {
  std::vector<Tensor> batch;
  for (const Tensor& column : slab_)
    batch.push_back(column.slice(0, k * task_.batch, (k + 1) * task_.batch));
  optimizer_.zero_grad();
  const Tensor loss = task_.loss(model_, batch);
  loss.backward(one_);
  optimizer_.step(rates_.select(0, k));
  losses_.select(0, k).copy_from(loss.detach());
}

Graph CapturedTraining::captured() {
  return framework::capture([&] {
    for (std::int64_t k = 0; k < count_; ++k) step(k);
  });
}

void CapturedTraining::count_done(std::int64_t count) {
  all_losses_.slice(0, done_, done_ + count).copy_from(losses_.slice(0, 0, count));
  done_ += count;
}

std::vector<float> train_replayed(Module& model, const Task& task, std::uint64_t steps,
                                  const std::function<void(Graph&)>& begin) {
  const auto all = static_cast<std::int64_t>(steps);
  const auto count = static_cast<std::int64_t>(steps_of_graph(steps));
  CapturedTraining training(model, task, steps_of_graph(steps), steps);
  training.prepare();
  training.step(0);
  training.count_done(1);
  Graph graph;
  for (std::int64_t done = 1, now; done < all; done += now) {
    now = std::min(count, all - done);
    training.prepare();
    if (now < count) {
      for (std::int64_t k = 0; k < now; ++k) training.step(k);
    } else if (graph.size() > 0) {
      graph.replay();
    } else {
      graph = training.captured();
      begin(graph);
    }
    training.count_done(now);
  }
  return training.losses();
}

}  // namespace capturing
