// The memory that the launchers are given.
#include <vector>

#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

Workspace::Workspace(size_t max_batch)
    : ones(std::vector<float>(max_batch, 1)), partials(gemv::kMaxPartials) {}

Workspace::Workspace(size_t max_batch, size_t in, size_t out) : Workspace(max_batch) {
  const size_t slices = count_slices(max_batch, in, out);
  if (slices < 2) return;
  slices_of_w = gpu::DeviceBuffer<float>(slices * in * out);
  partials_of_w = gpu::DeviceBuffer<float>(gemv::kMaxPartials);
}

}  // namespace dense_backward
