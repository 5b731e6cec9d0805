#include "stage3_ml_ops/03_losses/buffers.h"

#include <stdexcept>
#include <string>

namespace losses {

void check_labels(unsigned long long bad_label, size_t classes) {
  if (bad_label == kNoBadLabel) return;
  throw std::out_of_range("row " + std::to_string(bad_label >> 32) + ": label " +
                          std::to_string(static_cast<int>(static_cast<unsigned>(bad_label))) +
                          " is not in [0, " + std::to_string(classes) + ")");
}

Buffers::Buffers(size_t rows)
    : row_losses_(rows), partials_(2 * kMaxBlocks), wholes_(2 * rows), counted_(1), bad_label_(1) {
  bad_label_.poison();
}

Workspace Buffers::workspace() {
  return {
      row_losses_.size(), row_losses_.data(), reinterpret_cast<softmax::MaxSum*>(wholes_.data()),
      partials_.data(),   counted_.data(),    bad_label_.data()};
}

void Buffers::check_labels(size_t classes) {
  const unsigned long long bad_label = bad_label_.to_host()[0];
  bad_label_.poison();
  losses::check_labels(bad_label, classes);
}

}  // namespace losses
