// The owner of a Workspace.
#pragma once

#include <cstddef>
#include <vector>

#include "common/device_buffer.h"
#include "stage3_ml_ops/03_losses/detail/targets.h"

namespace losses {

// Throws std::out_of_range for what a launch has left in Workspace::bad_label:
// "row 17: label 12 is not in [0, 10)".
void check_labels(unsigned long long bad_label, size_t classes);

// A Workspace for batches of up to `rows` rows. Errors: those of gpu::DeviceBuffer.
class Buffers {
 public:
  explicit Buffers(size_t rows);
  Workspace workspace();

  // The loss of each row of the last batch. Waits for the default stream.
  std::vector<float> row_losses() const { return row_losses_.to_host(); }
  // Call it where the loss is read. Waits for the default stream; throws std::out_of_range for the
  // first bad label of any batch since the last call.
  void check_labels(size_t classes);

 private:
  gpu::DeviceBuffer<float> row_losses_, partials_;
  gpu::DeviceBuffer<float> wholes_;  // two floats for each MaxSum
  gpu::DeviceBuffer<unsigned> counted_;
  gpu::DeviceBuffer<unsigned long long> bad_label_;
};

}  // namespace losses
