// 7.1  embedding: what a transformer knows of a token before it has looked at any other.
//
//   y[b,t] = token_table[tokens[b,t]] + position_table[t]           y (B, T, C)
//
//   tokens (B, T)     token_table (V, C)     position_table (T_max, C), of which T rows are used
//
// Forward copies rows from where the tokens say. Backward sends the gradients back there, and there
// the work begins, because many positions may have the same token:
//
//   grad_token[v]    = sum of grad_y[b,t] over all (b,t) with tokens[b,t] = v     0 where none has
//   grad_position[t] = sum of grad_y[b,t] over b                                  0 where t >= T
//
// Everything is on the device, row-major without gaps and aligned to 4 bytes; any sizes (0 too).
// Launchers queue on `stream`. They throw std::invalid_argument where T is more than T_max.
//
// A token outside [0, V) is a mistake in the data, and a kernel can't throw: nothing is read there,
// y[b,t] becomes NaN, no row of grad_token gets its gradient, and the first such position stays in
// a word on the device, which Workspace::check_tokens looks at (as step 3.3 does with labels).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/version.h"
#include "stage7_transformer/01_embedding/workspace.h"

namespace embedding {

// What a forward pass reads.
struct Lookup {
  const std::int32_t* tokens;
  const float *token_table, *position_table;
  Shape shape;
  unsigned long long* bad_token;  // may be null
};

void launch_element_per_thread(float* y, const Lookup& in, hipStream_t stream);
void launch_wave_per_row(float* y, const Lookup& in, hipStream_t stream);
void launch_vectorized(float* y, const Lookup& in, hipStream_t stream);

struct Launch {
  void (*run)(float* y, const Lookup& in, hipStream_t stream);
};

inline constexpr Version<Launch> kVersions[] = {
    {"element_per_thread", {launch_element_per_thread}, "every element looks for its own token"},
    {"wave_per_row", {launch_wave_per_row}, "a wave copies a row: one token, no division"},
    {"vectorized", {launch_vectorized}, "16 bytes per load, blocks shaped like the rows"},
};

// y (B, T, C): what later steps call. bad_token may be null, else it is Workspace::bad_token().
void forward(float* y, const std::int32_t* tokens, const float* token_table,
             const float* position_table, const Shape& shape, hipStream_t stream = nullptr,
             unsigned long long* bad_token = nullptr);

// What a backward pass reads and writes.
struct Scatter {
  float *grad_token, *grad_position;
  const float* grad_y;
  const std::int32_t* tokens;
  Shape shape;
  unsigned long long* bad_token;
};

void launch_atomic(const Scatter& out, Workspace&, hipStream_t stream);
void launch_gather(const Scatter& out, Workspace&, hipStream_t stream);
void launch_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream);
// launch_sorted where there are too many tokens for a table.
void launch_table_or_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream);

// Through how many additions one of `terms` goes at most.
double roundings_in_order(double terms);
double roundings_sorted(double terms);

struct BackwardLaunch {
  void (*run)(const Scatter& out, Workspace& workspace, hipStream_t stream);
  double (*roundings)(double terms);
  bool deterministic;  // the same bits on every run
};

inline constexpr Version<BackwardLaunch> kBackwardVersions[] = {
    {"backward_atomic",
     {launch_atomic, roundings_in_order, false},
     "atomics: any order, other bits on every run"},
    {"backward_gather",
     {launch_gather, roundings_in_order, true},
     "every element of the table looks for its positions"},
    {"backward_sorted",
     {launch_sorted, roundings_sorted, true},
     "positions sorted by token, sums of neighbours in a fixed order"},
    {"backward_table",
     {launch_table_or_sorted, roundings_in_order, true},
     "few tokens: every block has a table of its own in shared memory"},
};

// The first half of backward_sorted, which needs the tokens alone: a training step may have it done
// on another stream while the forward pass runs.
void sort(const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
          hipStream_t stream = nullptr);
// The second half, for the tokens that the last sort() with this workspace was given.
void backward_sorted(float* grad_token, float* grad_position, const float* grad_y,
                     const Shape& shape, Workspace& workspace, hipStream_t stream = nullptr);

// grad_token (V, C) and grad_position (T_max, C), which are overwritten. The same bits on every run
// of one device. Two launches where the tokens are few, else three, of which the first is sort().
void backward(float* grad_token, float* grad_position, const float* grad_y,
              const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
              hipStream_t stream = nullptr);

}  // namespace embedding
