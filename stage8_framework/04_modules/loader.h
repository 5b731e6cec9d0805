// Batches of a data set: a loader hands out the samples of one step after the other. A data set is
// a list of columns, tensors of one first extent whose rows are the samples. Which samples a step
// takes is a function of its number, so that nothing has to be shuffled, and a training that goes
// on takes the same ones.
//
//   column 0: images f32 (60000, 784)    order(step): rows 17, 4, ...    batch 0: (64, 784)
//   column 1: labels i32 (60000)                                         batch 1: (64)
//
// A column may be a view in which rows overlap: of a text t (n), the pieces of T characters are
// t.view({{n - T, T}, {1, 1}}), and take no memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stage8_framework/01_tensor/handle.h"

namespace framework {

// Writes the rows of a step's samples, the first step being number 0, to rows[0], rows[1], ...
using Order = std::function<void(std::uint64_t step, std::int32_t* rows)>;

// Every epoch takes all samples in an order of its own and drops what does not fill its last batch.
Order shuffled(std::int64_t samples, std::int64_t batch, std::uint64_t seed);
// One behind the other, again and again.
Order in_order(std::int64_t samples, std::int64_t batch);

// The columns of a batch. Throws std::invalid_argument where a column has another first extent.
class BatchLoader {
 public:
  virtual ~BatchLoader() = default;
  virtual std::vector<Tensor> next() = 0;

 protected:
  BatchLoader(std::vector<Tensor> columns, std::int64_t batch, Order order);
  static std::int64_t bytes_of_row(const Tensor& column);
  std::vector<Tensor> columns_;
  std::int64_t batch_;
  Order order_;
  std::uint64_t step_ = 0;  // the next one
};

// The columns lie in host memory: the samples of a batch are copied together there, row by row, and
// brought to `device`, which waits for them. Contiguous rows only.
class HostLoader : public BatchLoader {
 public:
  HostLoader(std::vector<Tensor> host_columns, std::int64_t batch, Order order, Device& device);
  std::vector<Tensor> next() override;

 private:
  Device& device_;
};

// The columns lie on the device: `gather` fetches the samples of as many steps as fit into
// kMostBytes at once, of no more than `steps`, and a batch is a slice of them.
// versions/resident.cpp.
class DeviceLoader : public BatchLoader {
 public:
  static constexpr std::int64_t kMostBytes = 64 << 20;
  DeviceLoader(std::vector<Tensor> columns, std::int64_t batch, Order order,
               std::uint64_t steps = kMostBytes);
  std::vector<Tensor> next() override;

 private:
  void fetch();
  std::int64_t steps_;           // that are fetched at once
  std::uint64_t first_ = 0;      // step of fetched_
  std::vector<Tensor> fetched_;  // a column each, of steps_ batches
};

}  // namespace framework
