// What a lane of the version `wave` owns.
#pragma once

#include "common/gpu.h"
#include "stage5_training/06_train_toy/network.h"

namespace train_toy {

// Lane (point, unit) computes one hidden unit for one point:
//
//   lane    0 1 2 3 4 5 6 7 | 8 ...                15 | 16 ...            23 | 24 ...            31
//   point   0               | 1                       | 2                    | 3
//   unit    0 1 2 3 4 5 6 7 | 0 1 2 3 4 5 6 7         | 0 ...              7 | 0 ...              7
//
// and owns, as do the lanes of its unit for the other points, the weights into and out of its unit;
// the biases of the outputs are everybody's. Lanes beyond the last point repeat the first ones.
struct WaveParameters {
  static constexpr int kBias = kWaveInputs;                    // of the unit, behind its weights
  static constexpr int kOutputs = kBias + 1;                   // its weight in each output
  static constexpr int kOutputBias = kOutputs + kWaveClasses;  // of each output
  static constexpr int kCount = kOutputBias + kWaveClasses;

  // Where number i of a unit's parameters lies in the arena.
  __device__ static int index(const Network& n, int unit, int i) {
    const Layer &hidden = n.layer[0], &output = n.layer[1];
    if (i < kBias) return hidden.w + unit * kWaveInputs + i;
    if (i == kBias) return hidden.bias + unit;
    if (i < kOutputBias) return output.w + (i - kOutputs) * kWaveHidden + unit;
    return output.bias + i - kOutputBias;
  }

  float w[kCount] = {}, m[kCount] = {}, v[kCount] = {};
};

}  // namespace train_toy
