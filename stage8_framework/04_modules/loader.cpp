#include "stage8_framework/04_modules/loader.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "stage5_training/06_train_toy/sampler.h"
#include "stage8_framework/02_backends/dispatch.h"

namespace framework {

namespace {

void require_batches(std::int64_t samples, std::int64_t batch, std::int64_t most) {
  if (samples < 1 || batch < 1 || batch > most)
    throw std::invalid_argument("batches of " + std::to_string(batch) + " of " +
                                std::to_string(samples) + " samples");
}

}  // namespace

Order shuffled(std::int64_t samples, std::int64_t batch, std::uint64_t seed) {
  require_batches(samples, batch, samples);
  const train_toy::Sampler sampler{static_cast<size_t>(samples), static_cast<size_t>(batch), seed};
  return [sampler](std::uint64_t step, std::int32_t* rows) {
    const random_numbers::Permutation order = sampler.order(step);
    const size_t first = sampler.place(step, 0);
    for (size_t i = 0; i < sampler.batch; ++i)
      rows[i] = static_cast<std::int32_t>(order(first + i));
  };
}

Order in_order(std::int64_t samples, std::int64_t batch) {
  require_batches(samples, batch, batch);
  return [=](std::uint64_t step, std::int32_t* rows) {
    for (std::int64_t i = 0; i < batch; ++i)
      rows[i] = static_cast<std::int32_t>((static_cast<std::int64_t>(step) * batch + i) % samples);
  };
}

BatchLoader::BatchLoader(std::vector<Tensor> columns, std::int64_t batch, Order order)
    : columns_(std::move(columns)), batch_(batch), order_(std::move(order)) {
  // The number of a sample is an i32 on the device.
  constexpr std::int64_t kMostSamples = std::numeric_limits<std::int32_t>::max();
  if (columns_.empty() || batch < 1) throw std::invalid_argument("a loader of nothing");
  for (const Tensor& column : columns_)
    if (column.rank() < 1 || column.shape()[0] != columns_[0].shape()[0])
      throw std::invalid_argument("a loader of " + columns_[0].text() + " and " + column.text() +
                                  ": their first extents differ");
  if (columns_[0].shape()[0] < 1 || columns_[0].shape()[0] > kMostSamples)
    throw std::invalid_argument("a loader of " + columns_[0].text() +
                                ": it takes from 1 to 2^31 - 1 samples");
}

std::int64_t BatchLoader::bytes_of_row(const Tensor& column) {
  return column.select(0, 0).elements() * static_cast<std::int64_t>(size_of(column.dtype()));
}

HostLoader::HostLoader(std::vector<Tensor> host_columns, std::int64_t batch, Order order,
                       Device& device)
    : BatchLoader(std::move(host_columns), batch, std::move(order)), device_(device) {
  for (const Tensor& column : columns_) {
    if (!plugin_device(column.device()).is_host_memory())
      throw std::invalid_argument("a loader of " + column.text() + " on " + column.device().name() +
                                  ": it reads host memory");
    if (!column.select(0, 0).is_contiguous())
      throw std::invalid_argument("a loader of " + column.text() + " with strides " +
                                  column.strides().text() + ": a row must be without gaps");
  }
}

std::vector<Tensor> HostLoader::next() {
  std::vector<std::int32_t> samples(static_cast<size_t>(batch_));
  order_(step_++, samples.data());
  std::vector<Tensor> result;
  for (const Tensor& column : columns_) {
    Shape shape = column.shape();
    shape[0] = batch_;
    const auto bytes = static_cast<size_t>(bytes_of_row(column));
    const auto stride = static_cast<size_t>(column.strides()[0]) * size_of(column.dtype());
    std::vector<unsigned char> rows(static_cast<size_t>(batch_) * bytes);
    const char* const first = static_cast<const char*>(column.data());
    for (size_t i = 0; i < samples.size(); ++i)
      std::memcpy(rows.data() + i * bytes, first + static_cast<size_t>(samples[i]) * stride, bytes);
    result.push_back(Tensor::from_host(device_, rows.data(), shape, column.dtype()));
  }
  return result;
}

}  // namespace framework
