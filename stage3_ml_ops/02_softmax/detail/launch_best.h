// The fastest version for rows of each length, with any Output.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/choices.h"
#include "stage3_ml_ops/02_softmax/detail/online.h"
#include "stage3_ml_ops/02_softmax/detail/row_in_registers.h"
#include "stage3_ml_ops/02_softmax/detail/row_in_shared.h"

namespace softmax {

// Whatever `output` makes of the probabilities of X, (rows, cols), stored to y, by the version that
// choices.h names for this length. Where that one can't hold a row, the row is read once if
// registers, or they and shared memory, can hold it, else twice. y may be x.
template <class Output>
inline void launch_best(float* y, const float* x, size_t rows, size_t cols, Output output,
                        hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Choice first = choice(cols);
  if (first == Choice::row_in_shared && launch_row_in_shared(y, x, rows, cols, output, stream))
    return;
  if (first == Choice::online || (!launch_row_in_registers(y, x, rows, cols, output, stream) &&
                                  !launch_row_in_shared(y, x, rows, cols, output, stream)))
    launch_online(y, x, rows, cols, output, stream);
}

}  // namespace softmax
