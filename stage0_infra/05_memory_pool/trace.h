// The allocations of a training run, and how an allocator is tried with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage0_infra/05_memory_pool/memory_pool.h"

namespace memory_pool {

// One event of a trace: block `id` is allocated with `bytes`, or freed (bytes == 0).
struct Event {
  size_t id, bytes;
};
struct Trace {
  std::vector<Event> events;
  size_t blocks = 0;      // ids are 0 .. blocks - 1
  size_t peak_bytes = 0;  // the most that is live at a time
};

// The allocations of `steps` training steps of a network of 12 layers. The layers' widths, at most
// `max_width` (>= 1), come from `seed`. Forward allocates an activation for each layer, and a
// workspace for as long as the layer computes. Backward goes through the layers in reverse: each
// makes the gradient of its input from that of its output, then frees the latter and the
// activation. The gradients of the weights live until the end of the step. Everything is freed.
Trace training_trace(size_t steps, size_t max_width, std::uint64_t seed);

// Allocates and frees as the trace says, touching no memory. `blocks` has trace.blocks elements.
void replay(const Trace& trace, Allocator& allocator, std::vector<void*>& blocks);

// Replays the trace with every block filled with a byte pattern of its own from its allocation to
// its release. Returns how many blocks do not hold their pattern when they are freed: two blocks
// share memory, or one is shorter than was asked for.
size_t count_damaged(const Trace& trace, Allocator& allocator);

}  // namespace memory_pool
