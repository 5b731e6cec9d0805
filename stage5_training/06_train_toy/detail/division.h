// How the version `registers` divides a training among lanes, and where things lie in shared
// memory.
#pragma once

#include "common/gpu.h"

namespace train_toy {

// How the block is divided. Hidden layers are padded with zeros to kWidth units, inputs and classes
// to a quad. All of this is constant, so loops over it unroll and arrays are registers.
template <int kHiddenLayers, int kPaddedWidth, int kUnitsPerLane, int kPointsPerLane>
struct Division {
  static constexpr int kQuad = 4, kLong = 2 * kQuad, kTile = kLong * kQuad;
  static constexpr int kHidden = kHiddenLayers, kWidth = kPaddedWidth;
  static constexpr int kOwn = kUnitsPerLane;          // units of each layer that a lane computes
  static constexpr int kPoints = kPointsPerLane;      // points that it computes them for
  static constexpr int kLanes = kWidth / kOwn;        // of a point
  static constexpr int kOwnClasses = kQuad / kLanes;  // classes whose gradient a lane computes
  static constexpr int kBlock = 512;                  // threads, at most

  // A point's record in shared memory. Its length is an odd number of quads: 16-byte accesses of
  // neighbouring points then meet different banks.
  static constexpr int kX = 0, kGrad = kQuad, kLabel = 2 * kQuad, kLoss = kLabel + 1;
  __host__ __device__ static constexpr int h(int l) { return 3 * kQuad + l * kWidth; }
  __host__ __device__ static constexpr int d(int l) { return h(kHidden + l); }
  static constexpr int kRecord = 3 * kQuad + 2 * kHidden * kWidth;

  // The parameters in shared memory: rows of the weights of a unit, layer by layer, then biases.
  // A quad between the rows of two lanes moves them to different banks.
  __host__ __device__ static constexpr int depth(int l) { return l == 0 ? kQuad : kWidth; }
  __host__ __device__ static constexpr int begin(int l) {
    return l == 0 ? 0 : (kQuad + (l - 1) * kWidth) * kWidth + l * kLanes * kQuad;
  }
  __host__ __device__ static constexpr int row(int l, int unit) {
    return begin(l) + unit * depth(l) + (l < kHidden ? unit / kOwn * kQuad : 0);
  }
  __host__ __device__ static constexpr int bias(int l) {
    return begin(kHidden) + kQuad * kWidth + l * kWidth;
  }
  static constexpr int kParameters =
      (kHidden == 0 ? 0 : begin(kHidden)) + kQuad * kWidth + kHidden * kWidth + kQuad;

  // Tiles of 8 x 4 weights, and one of all biases per layer.
  static constexpr int kQuads = kWidth / kQuad, kLongs = kWidth / kLong;
  static constexpr int kTiles = kHidden + 1 + 2 * kLongs + (kHidden - 1) * kLongs * kQuads;

  // Points padded to what the waves take at once.
  template <class Int>
  __host__ __device__ static constexpr Int records(Int points, Int wave) {
    const Int step = wave * (kPoints > kLanes ? kPoints / kLanes : 1);
    return (points + step - 1) / step * step;
  }
};

// What a class that is not there has for a bias: its probability is 0, and so is its gradient.
inline constexpr float kNoLogit = -1e30f;

template <int kCount>
__device__ inline void read(float (&to)[kCount], const float* from) {
  GPU_UNROLL
  for (int k = 0; k < kCount; k += 4) {
    const float4 quad = *reinterpret_cast<const float4*>(from + k);
    to[k] = quad.x, to[k + 1] = quad.y, to[k + 2] = quad.z, to[k + 3] = quad.w;
  }
}

template <int kCount>
__device__ inline void write(float* to, const float (&from)[kCount]) {
  GPU_UNROLL
  for (int k = 0; k < kCount; k += 4)
    *reinterpret_cast<float4*>(to + k) =
        make_float4(from[k], from[k + 1], from[k + 2], from[k + 3]);
}

}  // namespace train_toy
