// Clusters on the CPU backend: what detail/cluster_sm90.h has for NVIDIA's, with the same names.
// The blocks of a cluster take turns: common/cpu/cluster.h.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90.h"

namespace gemm_mixed {

__device__ inline unsigned block_of_cluster() { return cpu::block_of_cluster(); }

__device__ inline void sync_cluster(CPU_SITE("sync_cluster()")) {
  const uint3 self = threadIdx;
  cpu::wait(cpu::arrive_at_cluster({cpu::caller_number(), site}), self);
}

__device__ inline void sync_cluster_relaxed(CPU_SITE("sync_cluster_relaxed()")) {
  const uint3 self = threadIdx;
  cpu::wait(cpu::arrive_at_cluster({cpu::caller_number(), site}), self);
}

__device__ inline void arrive_at(PhaseBarrier& barrier, unsigned block, CPU_SITE("arrive_at()")) {
  cpu::arrive_in_phase_of({cpu::caller_number(), site}, block, &barrier.state);
  cpu::go_on();
}

template <class T>
__device__ inline T load_of(unsigned block, const T* here, CPU_SITE("load_of()")) {
  const void* const there =
      cpu::find_in_block({cpu::caller_number(), site}, block, here, sizeof(T));
  cpu::go_on();
  return *static_cast<const T*>(there);
}

__device__ inline void load_box_for(unsigned blocks, void* to, const CUtensorMap& map,
                                    const BoxPlace& at, PhaseBarrier& full,
                                    CPU_SITE("load_box_for()")) {
  const int place[] = {at.column, at.row, at.matrix, at.group};
  cpu::begin_load_for({cpu::caller_number(), site}, blocks, to, map, place, &full.state);
  cpu::go_on();
}
__device__ inline void load_box_for(unsigned blocks, void* to, const CUtensorMap& map, int row,
                                    int column, PhaseBarrier& full, CPU_SITE("load_box_for()")) {
  load_box_for(blocks, to, map, {row, column, 0, 0}, full, site);
}

#define LAUNCH_IN_CLUSTERS(stream, kernel, blocks_of_cluster, ...) \
  LAUNCH_ON_CPU(stream, blocks_of_cluster, kernel, __VA_ARGS__)
#define LAUNCH_EARLY_IN_CLUSTERS(stream, kernel, blocks_of_cluster, ...) \
  LAUNCH_ON_CPU(stream, cpu::Manner(blocks_of_cluster, true), kernel, __VA_ARGS__)

// One, on every machine: then small products have clusters of several blocks, too.
template <class Kernel>
unsigned clusters_at_once(Kernel, unsigned, unsigned, size_t) {
  return 1;
}

}  // namespace gemm_mixed

#endif
