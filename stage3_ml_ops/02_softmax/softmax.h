// 3.2  softmax by rows: y[r,c] = exp(x[r,c]) / sum over k of exp(x[r,k]), for X, Y (rows, cols).
//
// exp overflows float above 88.7, so every version computes exp(x - m) / sum exp(x - m) with the
// row's maximum m, which is the same number: no exponent is positive and the sum is at least 1.
// Every element depends on its whole row, so a row is read, reduced and read again. The limit is
// one read and one write of 4 bytes per element; the ladder ends where a row is read only once.
//
// Every launcher takes device arrays of rows * cols floats, row-major without gaps, aligned to 4
// bytes, any sizes (0 too, and rows beyond 2^31 elements), and queues on `stream`. y may be x;
// otherwise they do not overlap. As IEEE arithmetic has it, a NaN or +infinity in a row makes the
// whole row NaN, and so does a row of nothing but -infinity; any other -infinity, such as a mask
// puts there, becomes exactly 0.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage3_ml_ops/02_softmax/reference.h"

namespace softmax {

// Y = softmax(X). row_in_registers and row_in_shared leave to online the rows that they can't hold,
// and arrays that are not aligned alike.
void launch_thread_per_row(float* y, const float* x, size_t rows, size_t cols,
                           hipStream_t stream = nullptr);
void launch_block_per_row(float* y, const float* x, size_t rows, size_t cols,
                          hipStream_t stream = nullptr);
void launch_wave_per_row(float* y, const float* x, size_t rows, size_t cols,
                         hipStream_t stream = nullptr);
void launch_online(float* y, const float* x, size_t rows, size_t cols,
                   hipStream_t stream = nullptr);
void launch_row_in_registers(float* y, const float* x, size_t rows, size_t cols,
                             hipStream_t stream = nullptr);
void launch_row_in_shared(float* y, const float* x, size_t rows, size_t cols,
                          hipStream_t stream = nullptr);

// Y = softmax(X) by the version that choices.h names for rows of this length: the entry for later
// steps. One that stores something else than Y has launch_best(..., output, stream) in
// detail/launch_best.h.
void best(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

struct Launch {
  void (*run)(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream);
  Roundings (*roundings)(size_t cols);
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row",
     {launch_thread_per_row, roundings_thread_per_row},
     "three passes, lanes a row apart"},
    {"block_per_row",
     {launch_block_per_row, roundings_block_per_row},
     "neighbours read neighbours; trees in shared memory"},
    {"wave_per_row", {launch_wave_per_row, roundings_wave_per_row}, "shuffles instead of barriers"},
    {"online", {launch_online, roundings_online}, "maximum and sum in one pass"},
    {"row_in_registers",
     {launch_row_in_registers, roundings_row_in_registers},
     "the row is read once"},
    {"row_in_shared",
     {launch_row_in_shared, roundings_row_in_shared},
     "a row in two memories: longer rows are read once"},
};

}  // namespace softmax
