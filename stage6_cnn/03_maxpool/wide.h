// Places of 32 bits, for those who keep them as numbers of their own: a conversion would be a
// launch more, and read and write all of them again.
#pragma once

#include "stage6_cnn/03_maxpool/maxpool.h"

namespace maxpool {

using WideIndex = std::int32_t;

// As forward() and backward() for 2x2 windows every 2 cells and rows of an even number of columns,
// aligned to 8 bytes. Of others they return false, and launch nothing.
bool forward_wide(float* y, WideIndex* argmax, const float* x, const Problem& p,
                  hipStream_t stream = nullptr);
bool backward_wide(float* grad_x, const float* grad_y, const WideIndex* argmax, const Problem& p,
                   hipStream_t stream = nullptr);

}  // namespace maxpool
