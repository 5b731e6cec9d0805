// The version `rows`, for models of few channels: versions/rows.hip and rows.cpp. Plain C++.
#pragma once

#include "stage7_transformer/07_train_shakespeare/training.h"

namespace train_shakespeare {

inline constexpr size_t kMostInRows = 128;  // characters of a vocabulary

// Whether a tile of this model's rows, and of its logits, fits shared memory. Other models are left
// to `fused`.
bool is_in_rows(const Training& t);

// Behind the last block: the normalization, the logits and the loss, and back to the gradient of
// what the block has left.
void launch_rows_end(Training& t, hipStream_t stream);

}  // namespace train_shakespeare
