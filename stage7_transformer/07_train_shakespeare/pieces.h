// The pieces of a text that a batch is made of, the same on host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/random.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace train_shakespeare {

using optimizers::Schedule;

// A text in device memory, a token per byte.
struct Text {
  const std::uint8_t* tokens;
  size_t length;
};

inline constexpr std::uint32_t kPieces = 0x7E87u;  // the sequence that they are drawn from

// Where piece b of a batch begins: anywhere, drawn for the step that begins.
struct Drawn {
  const Schedule* schedule;
  std::uint64_t seed;
  size_t places, batch;
  __host__ __device__ static size_t place(std::uint64_t seed, std::uint64_t step, size_t batch,
                                          size_t b, size_t places) {
    return random_numbers::word(seed, kPieces, step * batch + b) % places;
  }
  __device__ size_t operator()(size_t b) const {
    return place(seed, schedule->step, batch, b, places);
  }
};

// Or one piece behind the other, for a text that is not trained on.
struct Consecutive {
  size_t first, length;
  __device__ size_t operator()(size_t b) const { return first + b * length; }
};

// tokens[b,t] = text[begin(b) + t], labels[b,t] = text[begin(b) + t + 1]    both (batch, T).
// versions/operations.hip has the kernel.
void launch_gather(std::int32_t* tokens, int* labels, const Text& text, size_t batch, size_t T,
                   const Drawn& begin, hipStream_t stream = nullptr);
void launch_gather(std::int32_t* tokens, int* labels, const Text& text, size_t batch, size_t T,
                   const Consecutive& begin, hipStream_t stream = nullptr);

}  // namespace train_shakespeare
