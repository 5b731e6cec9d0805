// The gradients of a tile of 8 x 4 weights, or of the biases of a layer, for the version
// `registers`.
#pragma once

#include "common/gpu.h"
#include "stage5_training/06_train_toy/detail/division.h"
#include "stage5_training/06_train_toy/network.h"

namespace train_toy {

// Which parameters: the weights of eight units times four inputs, of four classes times eight
// inputs, or the biases of all units.
struct Tile {
  int layer, first_unit, first_input;
  bool biases;
};

// Tile number `tile`: first the biases of each layer, then weights of the first, the last and the
// inner layers.
template <class D>
__device__ inline Tile find_tile(int tile) {
  if (tile <= D::kHidden) return {tile, 0, 0, true};
  const int number = tile - (D::kHidden + 1), inner = number - 2 * D::kLongs;
  if (number < D::kLongs) return {0, number * D::kLong, 0, false};
  if (inner < 0) return {D::kHidden, 0, (number - D::kLongs) * D::kLong, false};
  const int of_layer = inner % (D::kLongs * D::kQuads);
  return {1 + inner / (D::kLongs * D::kQuads), of_layer / D::kQuads * D::kLong,
          of_layer % D::kQuads * D::kQuad, false};
}

// Which of a tile's sums a lane gets from sum_tile(): the lowest five bits of its number, reversed.
__device__ inline int index_in_tile(int lane) {
  return (lane & 1) << 4 | (lane & 2) << 2 | (lane & 4) | (lane & 8) >> 2 | (lane & 16) >> 4;
}

struct Place {
  int unit, input;
};

// Which parameter of its layer sum number `index` of a tile is for.
template <class D>
__device__ inline Place place_in_tile(const Tile& tile, int index) {
  if (tile.biases) return {index, 0};
  const int along = index / D::kQuad, across = index % D::kQuad;
  if (tile.layer == D::kHidden) return {across, tile.first_input + along};
  return {tile.first_unit + along, tile.first_input + across};
}

// sums[j] = this lane's share of gradient j of the tile: that of the points lane, lane + wave, ...
template <class D>
__device__ inline void add_points(float (&sums)[D::kTile], const Tile& tile, int records,
                                  const float* record_of_0) {
  const int lane = gpu::lane_id(), wave = gpu::wave_size(), l = tile.layer;
  const bool last = l == D::kHidden;
  const float* const mine = record_of_0 + lane * D::kRecord;
  const float* const grads = mine + (last ? D::kGrad : D::d(l)) + tile.first_unit;
  GPU_UNROLL
  for (int j = 0; j < D::kTile; ++j) sums[j] = 0;
  if (tile.biases) {
    const int units = last ? D::kQuad : D::kWidth;
    for (int r = lane; r < records; r += wave) {
      GPU_UNROLL
      for (int k = 0; k < D::kWidth; k += D::kQuad) {
        if (k >= units) continue;
        float g[D::kQuad];
        read(g, grads + (r - lane) * D::kRecord + k);
        GPU_UNROLL
        for (int e = 0; e < D::kQuad; ++e) sums[k + e] += g[e];
      }
    }
    return;
  }
  const float* const inputs = mine + (l == 0 ? D::kX : D::h(l - 1)) + tile.first_input;
  const float *longs = last ? inputs : grads, *quads = last ? grads : inputs;
  for (int r = lane; r < records; r += wave) {
    float a[D::kLong], b[D::kQuad];
    read(a, longs), read(b, quads);
    GPU_UNROLL
    for (int j = 0; j < D::kTile; ++j) sums[j] = fmaf(a[j / D::kQuad], b[j % D::kQuad], sums[j]);
    longs += wave * D::kRecord, quads += wave * D::kRecord;
  }
}

// Calls visit(i, parameter) for each number i of the arena and its place in shared memory, each by
// one thread.
template <class D, class Visit>
__device__ inline void for_each_parameter(const Network& n, float* weights, Visit visit) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int l = 0; l < n.layers; ++l) {
    const Layer& layer = n.layer[l];
    for (int i = thread; i < layer.out * layer.in; i += threads)
      visit(layer.w + i, weights + D::row(l, i / layer.in) + i % layer.in);
    for (int i = thread; i < layer.out; i += threads)
      visit(layer.bias + i, weights + D::bias(l) + i);
  }
}

// Parameters, their states and the data to shared memory; all else there becomes 0.
template <class Rule, class D>
__device__ inline void load_records(const Network& n, const Arrays& arrays, float* weights,
                                    float* record_of_0, int records) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int floats = (1 + Rule::kStates) * D::kParameters + records * D::kRecord;
  for (int i = thread; i < floats; i += threads) weights[i] = 0;
  __syncthreads();  // all is zero, the padding too
  for_each_parameter<D>(n, weights, [&](int i, float* parameter) {
    parameter[0] = arrays.w[i];
    if constexpr (Rule::kStates >= 1) parameter[D::kParameters] = arrays.m[i];
    if constexpr (Rule::kStates >= 2) parameter[2 * D::kParameters] = arrays.v[i];
  });
  for (int c = n.layer[D::kHidden].out + thread; c < D::kQuad; c += threads)
    weights[D::bias(D::kHidden) + c] = kNoLogit;
  for (int point = thread; point < n.points; point += threads) {
    float* const record = record_of_0 + point * D::kRecord;
    const int inputs = n.layer[0].in;
    for (int k = 0; k < inputs; ++k) record[D::kX + k] = arrays.x[point * inputs + k];
    record[D::kLabel] = static_cast<float>(arrays.labels[point]);
  }
  __syncthreads();  // data and parameters are complete
}

template <class Rule, class D>
__device__ inline void store_parameters(const Network& n, const Arrays& arrays, float* weights) {
  for_each_parameter<D>(n, weights, [&](int i, float* parameter) {
    arrays.w[i] = parameter[0];
    if constexpr (Rule::kStates >= 1) arrays.m[i] = parameter[D::kParameters];
    if constexpr (Rule::kStates >= 2) arrays.v[i] = parameter[2 * D::kParameters];
  });
}

}  // namespace train_toy
