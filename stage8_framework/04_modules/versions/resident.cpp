// Data and losses stay on the device: the host queues step after step and waits for nothing.
//
//   arena      host    | batch | copy |  queue  |         wait for the loss | batch | copy | ...
//              device  .........|     | . . .  step  . . . |................|
//   resident   host    | queue step 0 | queue step 1 | queue step 2 |
//              device  ...| step 0 | step 1 | step 2 |
//
// Fixes: arena brings a batch in front of each step and takes a loss behind it.
// Idea:  the data set lies on the device. One `gather` fetches the samples of many steps, in their
//        order, and a batch is a view of them. A loss is copied into its place in a tensor, and all
//        of them are read at the end.
// Costs: the memory of the data set and of what is fetched, 64 MB at most.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "stage8_framework/04_modules/modules.h"

namespace framework {

DeviceLoader::DeviceLoader(std::vector<Tensor> columns, std::int64_t batch, Order order,
                           std::uint64_t steps)
    : BatchLoader(std::move(columns), batch, std::move(order)) {
  std::int64_t bytes = 1;  // of a sample
  for (const Tensor& column : columns_) bytes += bytes_of_row(column);
  const auto that_fit = static_cast<std::uint64_t>(kMostBytes / bytes / batch);
  steps_ = static_cast<std::int64_t>(std::max<std::uint64_t>(std::min(that_fit, steps), 1));
}

void DeviceLoader::fetch() {
  // exercise: fetch the samples of the next steps_ steps, by one gather per column (about 8 lines)
  std::vector<std::int32_t> rows(static_cast<size_t>(steps_ * batch_));
  for (std::int64_t k = 0; k < steps_; ++k)
    order_(step_ + static_cast<std::uint64_t>(k), rows.data() + k * batch_);
  const Tensor samples = Tensor::from_host(columns_[0].device(), rows, {steps_ * batch_});
  fetched_.clear();
  for (const Tensor& column : columns_) fetched_.push_back(gather(column, samples));
  first_ = step_;
  // end exercise
}

std::vector<Tensor> DeviceLoader::next() {
  const auto steps = static_cast<std::uint64_t>(steps_);
  if (fetched_.empty() || step_ - first_ >= steps) fetch();
  const std::int64_t first = static_cast<std::int64_t>(step_++ - first_) * batch_;
  std::vector<Tensor> batch;
  for (const Tensor& column : fetched_) batch.push_back(column.slice(0, first, first + batch_));
  return batch;
}

}  // namespace framework

namespace modules {

std::vector<float> train_resident(Module& model, const Task& task, std::uint64_t steps) {
  framework::ArenaOptimizer optimizer(model.parameters(), task.rule);
  framework::DeviceLoader batches(task.columns, task.batch, task.order, steps);
  const auto count = static_cast<std::int64_t>(steps);
  const Tensor losses = Tensor::empty(task.device, {count});
  for (std::int64_t step = 0; step < count; ++step) {
    optimizer.zero_grad();
    const Tensor loss = task.loss(model, batches.next());
    loss.backward();
    optimizer.step(task.rate(static_cast<std::uint64_t>(step)));
    losses.select(0, step).copy_from(loss.detach());
  }
  return losses.to_host<float>();
}

}  // namespace modules
