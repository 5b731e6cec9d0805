// The sizes of a batch, as the parts of a pass want them.
#pragma once

#include <cstddef>

#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/06_transformer_block/problem.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"

namespace train_shakespeare {

// For up to sizes.batch pieces.
struct BatchSizes {
  size_t rows() const { return sizes.batch * sizes.context; }
  transformer_block::Shape shape(size_t batch) const {
    return {batch, sizes.context, sizes.width, sizes.heads};
  }
  embedding::Shape embedding_shape(size_t batch, size_t vocabulary) const {
    return {batch, sizes.context, sizes.width, vocabulary, sizes.context};
  }

  ModelSizes sizes;
};

}  // namespace train_shakespeare
