// Clusters: blocks that run at the same time on neighbouring multiprocessors and reach one
// another's shared memory. An address of shared memory has the same offset in all blocks of a
// cluster.
//
// PTX ISA, sections "Cluster", "mapa", "barrier.cluster" and "cp.async.bulk.tensor". On the CPU
// backend: detail/cluster_sm90_cpu.h.
#pragma once

#include "common/gpu_runtime.h"

#if !defined(GPU_BACKEND_HIP)

#include "common/early_launch_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/ring_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"

#if defined(GPU_BACKEND_CPU)

#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90_cpu.h"

#else

#include <array>

#include "common/cuda/launch_with.h"

namespace gemm_mixed {

// The number of this block in its cluster.
__device__ inline unsigned block_of_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier of all threads of the cluster. What they wrote before is visible behind it.
__device__ inline void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

// The same, but of what they wrote before, only barriers behind publish_barriers() are visible: no
// thread waits until its stores are complete. It tells of reads that are.
__device__ inline void sync_cluster_relaxed() {
  asm volatile(
      "barrier.cluster.arrive.relaxed;\n"
      "barrier.cluster.wait;" ::
          : "memory");
}

// Arrives at the barrier of block `block` that lies where `barrier` lies in this block. It tells of
// reads that are complete. What this thread has written is not visible behind it: to make it so for
// other blocks, the instruction would wait for all of the thread's memory accesses, at each
// arrival.
__device__ inline void arrive_at(PhaseBarrier& barrier, unsigned block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(shared_address(&barrier.state)),
      "r"(block)
      : "memory");
}

// What lies in block `block` of the cluster where `here` lies in this one.
template <class T>
__device__ inline T load_of(unsigned block, const T* here) {
  const T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(block));
  return *there;
}

// load_box for several blocks of the cluster: bit i of `blocks` is block i. The box arrives in each
// of them where `to` lies, and its bytes at the barrier there that lies where `full` lies.
__device__ inline void load_box_for(unsigned blocks, void* to, const CUtensorMap& map, int row,
                                    int column, PhaseBarrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&full.state)), "r"(column), "r"(row),
      "h"(static_cast<unsigned short>(blocks))
      : "memory");
}

// The same of a map with four dimensions.
__device__ inline void load_box_for(unsigned blocks, void* to, const CUtensorMap& map,
                                    const BoxPlace& at, PhaseBarrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&full.state)), "r"(at.column), "r"(at.row), "r"(at.matrix),
      "r"(at.group), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}

// LAUNCH_IN_CLUSTERS(stream, kernel, blocks_of_cluster, blocks, threads, shared_bytes,
// arguments...) launches `blocks` blocks in clusters of `blocks_of_cluster`, a divisor of `blocks`.
// Errors: gpu::Error where the launch is refused.
#define LAUNCH_IN_CLUSTERS(stream, kernel, blocks_of_cluster, ...)                             \
  ::gpu::launch_with(std::array{::gemm_mixed::in_clusters(blocks_of_cluster)}, stream, kernel, \
                     __VA_ARGS__)

// The same of a kernel that waits for the launch before it, as common/early_launch_sm90.h says.
// Code for wgmma is of sm_90a and no other device's, so what is launched does wait.
#if CUDART_VERSION >= 12030
#define LAUNCH_EARLY_IN_CLUSTERS(stream, kernel, blocks_of_cluster, ...)                      \
  ::gpu::launch_with(                                                                         \
      std::array{::gemm_mixed::in_clusters(blocks_of_cluster), ::gpu::early_start()}, stream, \
      kernel, __VA_ARGS__)
#else
#define LAUNCH_EARLY_IN_CLUSTERS LAUNCH_IN_CLUSTERS
#endif

inline cudaLaunchAttribute in_clusters(unsigned blocks_of_cluster) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks_of_cluster, 1, 1};
  return cluster;
}

// How many such clusters the device runs at the same time. The blocks of one are in one group of
// multiprocessors (GPC); 132 multiprocessors in groups of 16 and 18 have room for 32 clusters of 4.
template <class... Parameters>
unsigned clusters_at_once(void (*kernel)(Parameters...), unsigned blocks_of_cluster,
                          unsigned threads, size_t shared_bytes) {
  std::array cluster{in_clusters(blocks_of_cluster)};
  const auto config = gpu::launch_config(cluster, blocks_of_cluster, threads, shared_bytes);
  int clusters = 0;
  HIP_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return static_cast<unsigned>(clusters);
}

}  // namespace gemm_mixed

#endif

namespace gemm_mixed {

// The blocks of a cluster in the product: their tiles of C are below one another, so they need the
// same tile of B.
inline constexpr unsigned kClusterBlocks = 2, kWholeCluster = 0b11;
inline constexpr unsigned kRasterPairs = kRasterRows / kClusterBlocks;

}  // namespace gemm_mixed

#endif
