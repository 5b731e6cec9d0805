#include "stage0_infra/05_memory_pool/trace.h"

#include <algorithm>

#include "common/gpu_runtime.h"
#include "common/random.h"

namespace memory_pool {

Trace training_trace(size_t steps, size_t max_width, std::uint64_t seed) {
  constexpr size_t kLayers = 12, kBatch = 64;
  Trace trace;
  std::vector<size_t> sizes;
  size_t live = 0;
  std::uint64_t drawn = 0;
  const auto random = [&](size_t limit) {
    return static_cast<size_t>(random_numbers::word(seed, 5, drawn++)) % limit;
  };
  const auto allocate = [&](size_t floats) {
    sizes.push_back(floats * sizeof(float));
    trace.events.push_back({trace.blocks, sizes.back()});
    live += sizes.back();
    trace.peak_bytes = std::max(trace.peak_bytes, live);
    return trace.blocks++;
  };
  const auto release = [&](size_t id) {
    trace.events.push_back({id, 0});
    live -= sizes[id];
  };

  size_t widths[kLayers + 1];
  for (size_t& width : widths) width = 1 + random(max_width);
  for (size_t step = 0; step < steps; ++step) {
    const size_t batch = step % 8 == 7 ? 1 + random(kBatch) : kBatch;  // the end of an epoch
    size_t activations[kLayers + 1], weight_gradients[kLayers];
    activations[0] = allocate(batch * widths[0]);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const size_t workspace = allocate(widths[layer] * (1 + random(kBatch)));
      activations[layer + 1] = allocate(batch * widths[layer + 1]);
      release(workspace);
    }
    size_t gradient = allocate(batch * widths[kLayers]);
    for (size_t layer = kLayers; layer-- > 0;) {
      weight_gradients[layer] = allocate(widths[layer] * widths[layer + 1]);
      const size_t next = allocate(batch * widths[layer]);
      release(gradient);
      release(activations[layer + 1]);
      gradient = next;
    }
    release(gradient);
    release(activations[0]);
    for (const size_t weights : weight_gradients) release(weights);
  }
  return trace;
}

void replay(const Trace& trace, Allocator& allocator, std::vector<void*>& blocks) {
  for (const Event& event : trace.events) {
    if (event.bytes != 0)
      blocks[event.id] = allocator.allocate(event.bytes);
    else
      allocator.free(blocks[event.id]);
  }
}

size_t count_damaged(const Trace& trace, Allocator& allocator) {
  std::vector<void*> blocks(trace.blocks);
  std::vector<size_t> sizes(trace.blocks);
  const auto pattern = [](size_t id) { return static_cast<unsigned char>(1 + id % 251); };
  size_t damaged = 0;
  std::vector<unsigned char> content;
  for (const Event& event : trace.events) {
    if (event.bytes != 0) {
      sizes[event.id] = event.bytes;
      blocks[event.id] = allocator.allocate(event.bytes);
      HIP_CHECK(hipMemset(blocks[event.id], pattern(event.id), event.bytes));
    } else {
      content.resize(sizes[event.id]);
      HIP_CHECK(hipMemcpy(content.data(), blocks[event.id], content.size(), hipMemcpyDeviceToHost));
      allocator.free(blocks[event.id]);
      bool same = true;
      for (const unsigned char byte : content) same = same && byte == pattern(event.id);
      damaged += !same;
    }
  }
  return damaged;
}

}  // namespace memory_pool
