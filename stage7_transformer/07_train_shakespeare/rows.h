// What fused does with models of few channels: versions/rows.hip and rows.cpp. Plain C++.
#pragma once

#include "stage7_transformer/07_train_shakespeare/training.h"

namespace train_shakespeare {

inline constexpr size_t kMostInRows = 128;  // characters of a vocabulary

// Whether queue_rows takes this model.
bool is_in_rows(const Training& t);

// Queues one step, in a quarter of the launches of the chain.
void queue_rows(Training& t);

// Behind the last block: the normalization, the logits and the loss, and back to the gradient of
// what the block has left.
void launch_rows_end(Training& t, hipStream_t stream);

}  // namespace train_shakespeare
