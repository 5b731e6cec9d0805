// What a block of per_image keeps of its image in shared memory, and what it reads of it.
//
// Planes in shared memory have a border of zeros, so that no window asks where the image ends. A
// thread takes 2 x 2 neighbouring outputs of several channels: their four windows cover a patch of
// 4 x 4 values, of which each is loaded once and used up to nine times per channel; and the largest
// of the four is what the pool wants.
//
//   plane, 14 x 14 with its border         patch of the window (0, 1), and its four outputs
//    0 0 0 0 0 0 ...                        0 0 0 0
//    0 a b c d e ...                        b c d e        c d    <- c is the middle of the
//    0 f g h i j ...                        g h i j        h i       first of the four windows
//    0 k l m n o ...                        l m n o
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage6_cnn/04_train_cnn/detail/sizes.h"

namespace train_cnn {

inline constexpr unsigned kThreads = 512;   // of a block
inline constexpr unsigned kAtOnce = 4;      // channels of a thread
inline constexpr unsigned kRowsAtOnce = 4;  // of w3, by a wave
inline constexpr unsigned kWindows1 = kSide1 * kSide1, kWindows2 = kSide2 * kSide2;
inline constexpr unsigned kPitch0 = kSide + 2;  // of the image and its border
// Of planes of 14 x 14 with their border: lanes of neighbouring windows, and of windows in the row
// below, find their values in different banks; and so do lanes of neighbouring channels.
inline constexpr unsigned kPitch1 = 24, kPlane1 = (kSide1 + 2) * kPitch1 + 4;
inline constexpr std::uint8_t kNone = 4;  // in place of the largest of four: none gets a gradient
inline constexpr unsigned kWords3 = kFeatures / 4;  // float4s in a row of w3
// The last gradients of the filters: a thread for each tap of a channel, the tenth being the bias,
// and each of the parts.
inline constexpr unsigned kSums1 = (kTaps + 1) * kChannels1, kParts1 = kThreads / kSums1;
// The second convolution's: lanes of a part each, which add up what they have.
inline constexpr unsigned kParts2 = 8;
static_assert(kWindows1 * kChannels1 / kAtOnce <= kThreads && 2 * kWords3 <= kThreads);
static_assert(kChannels1 * kChannels2 / kAtOnce * kParts2 <= kThreads / 2);

// What the blocks of one kernel leave for those of the next, in global memory.
struct Handover {
  unsigned* rows;   // (batch) the images of the next step
  float* features;  // (batch, 784)
  float* parts;     // (batch, Row::end())
  float* losses;    // (batch)
};

// The gradient of a pool's output, and where in x the window begins that it came from.
struct Routed {
  float grad;
  unsigned corner;
};

// The shared memory of an image.
struct ImageMemory {
  float x[kPitch0 * kPitch0];           // pixels, with a border
  float pooled1[kChannels1 * kPlane1];  // what the first pool makes, with borders
  union {
    float grads2[kChannels2 * kPlane1];  // gradients of the second convolution's sums, with borders
    struct {
      Routed grads1[kChannels1 * kWindows1];  // of the first convolution's
      float sums1[kParts1 * kSums1];          // and the parts of its parameters' gradients
    } first;
  };
  float4 features[kWords3];  // what the second pool makes; later its gradients
  float4 half[kWords3];      // of a sum over hidden units
  float4 w1[kFilters1 / 4],
      w2[kFilters2 / 4];         // (1, 9, 8) and (8, 9, 16): the channels that are made last
  float4 turned[kFilters2 / 4];  // (16, 9, 8) w2 for the way back
  float h[kMostHidden], grad_h[kMostHidden];
  float logits[kClasses + 2];
  std::uint8_t place1[kChannels1 * kWindows1], place2[kChannels2 * kWindows2];
};
static_assert(sizeof(ImageMemory) <= 64 * 1024, "AMD has no more");

// The pixels of an image as floats and the filters, in the order in which threads read them; all
// planes become 0.
__device__ inline void load_image(ImageMemory& m, const Weights& network,
                                  const std::uint8_t* pixels) {
  const unsigned t = threadIdx.x;
  for (unsigned i = t; i < kPitch0 * kPitch0; i += kThreads) {
    const unsigned y = i / kPitch0 - 1, x = i % kPitch0 - 1;  // the border wraps around
    m.x[i] = y < kSide && x < kSide ? mnist::kPixelScale * static_cast<float>(pixels[y * kSide + x])
                                    : 0.0f;
  }
  for (unsigned i = t; i < kFilters1; i += kThreads)
    reinterpret_cast<float*>(m.w1)[i % kTaps * kChannels1 + i / kTaps] = network.w1.w[i];
  for (unsigned i = t; i < kFilters2; i += kThreads) {
    const unsigned tap = i % kTaps, c = i / kTaps % kChannels1, k = i / kTaps / kChannels1;
    const float weight = network.w2.w[i];
    reinterpret_cast<float*>(m.w2)[(c * kTaps + tap) * kChannels2 + k] = weight;
    reinterpret_cast<float*>(m.turned)[(k * kTaps + kTaps - 1 - tap) * kChannels1 + c] = weight;
  }
  for (unsigned i = t; i < kChannels1 * kPlane1; i += kThreads) m.pooled1[i] = 0;
  for (unsigned i = t; i < kChannels2 * kPlane1; i += kThreads) m.grads2[i] = 0;
}

// The 4 x 4 values from `corner` on.
__device__ inline void load_patch(float (&patch)[4][4], const float* corner, unsigned pitch) {
  GPU_UNROLL
  for (unsigned y = 0; y < 4; ++y) {
    const float2 left = *reinterpret_cast<const float2*>(corner + y * pitch);
    const float2 right = *reinterpret_cast<const float2*>(corner + y * pitch + 2);
    patch[y][0] = left.x, patch[y][1] = left.y, patch[y][2] = right.x, patch[y][3] = right.y;
  }
}

// ReLU and pool: the largest of four sums, and where the first of the largest is; 0 and kNone where
// none is above 0. A NaN stays.
__device__ inline float largest(const float (&sums)[4], std::uint8_t& place) {
  float best = 0;
  place = kNone;
  for (unsigned i = 0; i < 4; ++i)
    if (sums[i] > best || sums[i] != sums[i]) best = sums[i], place = static_cast<std::uint8_t>(i);
  return best;
}

}  // namespace train_cnn
