// The memory that the launchers are given.
#include <stdexcept>
#include <string>
#include <vector>

#include "stage5_training/01_dense_backward/slices.h"

namespace dense_backward {

Workspace::Workspace(size_t max_batch)
    : ones(std::vector<float>(max_batch, 1)), partials(gemv::kMaxPartials) {}

Workspace::Workspace(size_t max_batch, size_t in, size_t out) : Workspace(max_batch) {
  slices_of_gradients = gpu::DeviceBuffer<float>(elements_of_slices(max_batch, in, out));
}

size_t elements_of_slices(size_t batch, size_t in, size_t out) {
  const size_t slices = count_slices(batch, in, out);
  return slices < 2 ? 0 : slices * slice_row(in, out);
}

void Workspace::require(size_t batch) const {
  if (batch > ones.size())
    throw std::invalid_argument("dense_backward: a batch of " + std::to_string(batch) +
                                " in a workspace for " + std::to_string(ones.size()));
}

}  // namespace dense_backward
