// What a block of fused and persistent owns, its shared memory, and what blocks leave for one
// another.
//
// A block owns kUnits hidden units: their rows of w1 and what the optimizer keeps of them, their
// biases, their columns of w2. All pixels of the batch meet all of these weights inside one block,
// so a block computes its units' outputs without the others, and changes its weights without the
// others. Only between the two does it need what the other blocks have: the logits are sums over
// all hidden units.
//
// clang-format off
//   pixels --> h of own units --+                 +--> logits --> loss --> gradients --> own weights
//                               |  all blocks     |
//                               +--> h, w2 -------+    the same in every block, but the last two
// clang-format on
//
// Each block computes all logits itself: to share that work would take a second time of waiting.
// b2 is every block's: all keep it, all change it alike.
//
// The threads of a block are divided in two ways:
//   kSamples x kParts     a sample; a seventh of its pixels, or of the hidden units
//   kWords x kHalves      four neighbouring pixels; half of the samples. The threads that are left
//                         take the small gradients: of w2's columns and of the biases.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/gpu.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

using mnist::kPixelScale;
using optimizers::ParameterArena;

inline constexpr unsigned kParts = 7;
inline constexpr unsigned kThreads = kSamples * kParts;
inline constexpr unsigned kVectors = kPixels / 16 / kParts;  // loads of 16 pixels per part: 7
inline constexpr unsigned kWords = kPixels / 4;              // 196
inline constexpr unsigned kHalves = 2;
inline constexpr unsigned kSmallThreads = kThreads - kWords * kHalves;
inline constexpr unsigned kHeld = 19;               // hidden units of a part, at a time
inline constexpr unsigned kChunk = kHeld * kParts;  // hidden units at a time
static_assert(kVectors * 16 * kParts == kPixels && kSmallThreads > 0);

// The parameters in global memory, with what the optimizer keeps of them.
struct Network {
  ParameterArena w1, b1, w2, b2;  // (hidden, 784), (hidden), (10, hidden), (10)
  unsigned hidden;
};

// What the blocks leave for one another, in global memory.
struct Exchange {
  float* h;           // (hidden, kSamples) outputs of the hidden units
  float* w2;          // (hidden, kPadded) the columns of w2
  ParameterArena b2;  // (10) a copy
};

// The shared memory of a block.
template <unsigned kUnits>
struct Shared {
  static constexpr unsigned kOfClasses = (kUnits + 1) * kClasses, kSmall = kOfClasses + kUnits;
  static constexpr unsigned kOfLogits = kParts * kSamples * kClasses / 4;
  static constexpr unsigned kOfPixels = kUnits * kWords;

  float4 w1[kUnits][kWords];
  float4 scratch[kOfLogits > kOfPixels ? kOfLogits : kOfPixels];  // parts of sums
  float4 w2[kChunk][kPadded / 4];                                 // of all units, a chunk of them
  float4 grad_logits[kSamples][kPadded / 4];
  float h[kUnits + 1][kSamples];  // of the own units, and of one that is always 1
  float grad_h[kSamples][kUnits];
  float row_losses[kSamples];
  // The own columns of w2, unit by unit; b2, the column of the unit that is always 1; the own
  // units' b1. And their m and v.
  float small_w[kSmall], small_m[kSmall], small_v[kSmall];

  __device__ float& bias(unsigned unit) { return small_w[kOfClasses + unit]; }
  __device__ float& bias_of_class(unsigned c) { return small_w[kUnits * kClasses + c]; }
};

// The images of a batch: where they lie in the data set, or copied into a tile of shared memory.
struct DataSetImages {
  const std::uint8_t* pixels;
  const unsigned* rows;
  __device__ const std::uint8_t* image(unsigned sample) const {
    return pixels + size_t{rows[sample]} * kPixels;
  }
};
struct TileImages {
  const std::uint8_t* tile;
  __device__ const std::uint8_t* image(unsigned sample) const { return tile + sample * kPixels; }
};

// Where the block's number i of small_w lies in the network: calls visit(tensor, offset) unless it
// is of a unit that the network does not have.
template <unsigned kUnits, class Visit>
__device__ inline void visit_small(const Network& network, unsigned i, Visit visit) {
  using Block = Shared<kUnits>;
  const unsigned first = blockIdx.x * kUnits, unit = i / kClasses, c = i % kClasses;
  if (i >= Block::kOfClasses) {
    const unsigned row = first + i - Block::kOfClasses;
    if (row < network.hidden) visit(network.b1, row);
  } else if (unit == kUnits) {
    visit(network.b2, c);
  } else if (first + unit < network.hidden) {
    visit(network.w2, c * network.hidden + first + unit);
  }
}

// Brings the block's weights from global memory; those of units that the network does not have
// are 0.
template <unsigned kUnits>
__device__ inline void load_w1(Shared<kUnits>& shared, const Network& network) {
  const float4* w1 = reinterpret_cast<const float4*>(network.w1.w);
  for (unsigned i = threadIdx.x; i < kUnits * kWords; i += kThreads) {
    const unsigned unit = blockIdx.x * kUnits + i / kWords;
    shared.w1[i / kWords][i % kWords] =
        unit < network.hidden ? w1[size_t{unit} * kWords + i % kWords] : make_float4(0, 0, 0, 0);
  }
}
template <unsigned kUnits>
__device__ inline void load_small(Shared<kUnits>& shared, const Network& network) {
  for (unsigned i = threadIdx.x; i < kSamples; i += kThreads) shared.h[kUnits][i] = 1;
  for (unsigned i = threadIdx.x; i < Shared<kUnits>::kSmall; i += kThreads) {
    shared.small_w[i] = shared.small_m[i] = shared.small_v[i] = 0;
    visit_small<kUnits>(network, i, [&](const ParameterArena& tensor, unsigned at) {
      shared.small_w[i] = tensor.w[at];
      shared.small_m[i] = tensor.m[at], shared.small_v[i] = tensor.v[at];
    });
  }
}

// Takes the small ones back; b2 from block 0.
template <unsigned kUnits>
__device__ inline void store_small(const Shared<kUnits>& shared, const Network& network) {
  const bool stores_b2 = blockIdx.x == 0;
  for (unsigned i = threadIdx.x; i < Shared<kUnits>::kSmall; i += kThreads)
    visit_small<kUnits>(network, i, [&](const ParameterArena& tensor, unsigned at) {
      if (tensor.w == network.b2.w && !stores_b2) return;
      tensor.w[at] = shared.small_w[i];
      tensor.m[at] = shared.small_m[i], tensor.v[at] = shared.small_v[i];
    });
}

// ---- Where they lie: on the host ---------------------------------------------------------------

inline ParameterArena tensor_of(const sequential::NamedTensor& named) {
  return {named.w, named.grad, named.m, named.v, named.n};
}
inline Network network_of(const Training& t) {
  const auto& tensors = t.model.tensors();
  return {tensor_of(tensors[0]), tensor_of(tensors[1]), tensor_of(tensors[2]),
          tensor_of(tensors[3]), static_cast<unsigned>(t.hidden)};
}
// Two of them, for steps in turn.
inline Exchange exchange_of(Training& t, size_t turn) {
  float* const h = t.exchange.data() + turn * t.hidden * kExchanged;
  float* const b2 = t.exchange.data() + 2 * t.hidden * kExchanged;
  return {h, h + t.hidden * kSamples, {b2, nullptr, b2 + kClasses, b2 + 2 * kClasses, kClasses}};
}

}  // namespace train_mnist
