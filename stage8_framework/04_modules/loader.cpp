#include "stage8_framework/04_modules/loader.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "common/random.h"
#include "stage8_framework/02_backends/dispatch.h"

namespace framework {

Order shuffled(std::int64_t samples, std::int64_t batch, std::uint64_t seed) {
  const auto count = static_cast<std::uint64_t>(samples), size = static_cast<std::uint64_t>(batch);
  if (samples < 1 || batch < 1 || batch > samples)
    throw std::invalid_argument("batches of " + std::to_string(batch) + " of " +
                                std::to_string(samples) + " samples");
  const std::uint64_t per_epoch = count / size;
  return [=](std::uint64_t step, std::int32_t* rows) {
    const random_numbers::Permutation order(count, seed,
                                            static_cast<std::uint32_t>(step / per_epoch));
    const std::uint64_t first = step % per_epoch * size;
    for (std::uint64_t i = 0; i < size; ++i) rows[i] = static_cast<std::int32_t>(order(first + i));
  };
}

Order in_order(std::int64_t samples, std::int64_t batch) {
  if (samples < 1 || batch < 1)
    throw std::invalid_argument("batches of " + std::to_string(batch) + " of " +
                                std::to_string(samples) + " samples");
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
    shape[0] = 1;
    std::int64_t row = 1;
    for (const std::int64_t extent : shape) row *= extent;
    const size_t element = size_of(column.dtype()), bytes = static_cast<size_t>(row) * element;
    const auto stride = static_cast<size_t>(column.strides()[0]) * element;
    std::vector<unsigned char> rows(static_cast<size_t>(batch_) * bytes);
    const char* const first = static_cast<const char*>(column.data());
    for (size_t i = 0; i < samples.size(); ++i)
      std::memcpy(rows.data() + i * bytes, first + static_cast<size_t>(samples[i]) * stride, bytes);
    shape[0] = batch_;
    result.push_back(Tensor::from_host(device_, rows.data(), shape, column.dtype()));
  }
  return result;
}

}  // namespace framework
