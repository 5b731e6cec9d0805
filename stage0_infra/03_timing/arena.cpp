#include "stage0_infra/03_timing/arena.h"

#include <algorithm>

namespace timing {

Arena::Arena(size_t bytes, bool transfers) {
  const size_t tiles = std::max(gpu::ceil_div(bytes, kWholeTiles * sizeof(uint4)), size_t{1});
  const size_t n = tiles * kWholeTiles;
  halves_ = gpu::DeviceBuffer<uint4>(2 * n);
  sums_ = gpu::DeviceBuffer<unsigned>(most_read_threads(n));
  chain_ends_ = gpu::DeviceBuffer<float>(fma_threads());
  HIP_CHECK(hipMemset(halves_.data(), 0, halves_.bytes()));
  memory_.from = halves_.data(), memory_.to = halves_.data() + n, memory_.n = n;
  memory_.sums = sums_.data(), memory_.chain_ends = chain_ends_.data();
  if (!transfers) return;
  memory_.host_bytes = std::min(memory_.bytes(), size_t{256} << 20);
  pageable_.resize(memory_.host_bytes);
  pinned_ = std::make_unique<PinnedBuffer>(memory_.host_bytes);
  memory_.pageable = pageable_.data(), memory_.pinned = pinned_->data();
}

size_t arena_bytes(bool quick) {
  constexpr size_t kMiB = size_t{1} << 20;
#if defined(GPU_BACKEND_CPU)
  return (quick ? 8 : 64) * kMiB;
#else
  static_cast<void>(quick);  // a GPU needs milliseconds for either
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  return std::min(1024 * kMiB, free_bytes / 4);
#endif
}

}  // namespace timing
