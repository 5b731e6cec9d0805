// Where the kernels of a whole step find everything: the layers of a network in the model's arena
// and in shared memory, the arrays in global memory, and the steps that a launch does.
#pragma once

#include <cstddef>

#include "stage5_training/04_optimizers/optimizers.h"

namespace train_toy {

using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::Schedule;

inline constexpr int kMaxLayers = 4;
inline constexpr int kUnits = 4;              // that a thread computes for a point at once
inline constexpr unsigned kMaxThreads = 768;  // of the block that does a whole step

// The network of the version `wave`.
inline constexpr int kWaveInputs = 2, kWaveHidden = 8, kWaveClasses = 2, kWavePoints = 4;

// A layer, and where its numbers lie. A bias is the weight of an input that is always 1.
struct Layer {
  int in, out;
  int w, bias;  // in the model's arena: weights (out, in), biases (out)
  int weights;  // in shared memory: (out, in + 1), a unit's bias behind its weights
  int inputs;   // its first row of inputs: in + 1 rows, the last one all ones
  int grads;    // its first row of gradients of its sums: out rows
};

// A row holds a number per point, and zeros up to its end.
struct Network {
  int layers, points, parameters;
  int rows, stride;    // of all rows: how many, and floats from one to the next
  int labels, losses;  // the rows of these
  Layer layer[kMaxLayers];

  size_t shared_bytes() const {
    const size_t floats = static_cast<size_t>(rows) * static_cast<size_t>(stride);
    return (floats + static_cast<size_t>(parameters)) * sizeof(float);
  }
};

// What is in global memory.
struct Arrays {
  const float* x;             // (points, inputs)
  const int* labels;          // (points)
  float *w, *m, *v;           // the model's arena; m and v are 0 at first
  const Schedule* schedules;  // of the steps to do
  Hyperparameters hyper;      // of all of them
  float* curve;               // [i]: the loss before step (i + 1) * every; steps count from 1
};

// Which steps a launch does.
struct Span {
  unsigned done, count;  // steps done before, steps to do
  unsigned every;        // so often a loss goes to the curve
};

}  // namespace train_toy
