// The sizes of an embedding, and the memory that its backward pass needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/device_parts.h"

namespace embedding {

using gpu::DeviceBuffer;

struct Shape {
  size_t B, T, C, V;  // sequences, positions of each, columns, tokens
  size_t T_max = 0;   // rows of the position table; 0: T
  __host__ __device__ size_t positions() const { return B * T; }
};

inline constexpr size_t kMost = std::numeric_limits<std::uint32_t>::max();  // they have 32 bits

// With T_max in the place of 0. Throws std::invalid_argument where T is more than T_max, or where
// the positions or the tokens do not have numbers of 32 bits.
Shape checked(Shape shape);

__host__ __device__ inline bool is_token(std::int32_t token, size_t V) {
  return token >= 0 && static_cast<size_t>(token) < V;
}

// A position and the token that it has; a bad token counts as V, behind all others.
struct alignas(8) Entry {
  std::uint32_t token, position;
};

// For shapes of at most these sizes. No two streams use it at the same time.
class Workspace {
 public:
  explicit Workspace(const Shape& largest);
  // What backward() uses for this very shape, of `parts`. Nobody is told of bad tokens.
  Workspace(const Shape& shape, gpu::DeviceParts& parts);
  // Where kernels leave the first bad token: detail/rows.h. May be null.
  unsigned long long* bad_token() { return bad_token_.data(); }
  // Waits for the default stream; throws std::out_of_range for the first bad token of any launch
  // since the last call: "position 17: token 70 is not in [0, 65)", where the positions of all
  // sequences count on.
  void check_tokens(size_t V);
  // Where sort() leaves its result.
  const Entry* sorted(size_t V) const;
  // Throws std::invalid_argument where this shape needs more, sorted or in tables.
  void require(const Shape& shape, bool is_sorted) const;

  gpu::DeviceArray<Entry> entries[2];           // between the rounds of the sort
  gpu::DeviceArray<std::uint32_t> first, last;  // (V)
  gpu::DeviceArray<float> partials;             // (chunks, 2, C), or a table for each slice

 private:
  Shape largest_;
  DeviceBuffer<unsigned long long> bad_token_;
};

}  // namespace embedding
