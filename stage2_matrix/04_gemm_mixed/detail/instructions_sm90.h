// The instructions of sm_90 that feed its matrix units, as functions. wgmma itself is in
// detail/wgmma_sm90.h.
//
//   mbarrier     a barrier in shared memory that counts arriving threads and arriving bytes
//   TMA          one thread has a box of a matrix copied between global and shared memory
//   setmaxnreg   a warp group (four warps, 128 threads) gives registers back or takes more
//
// PTX ISA, sections "mbarrier", "cp.async.bulk.tensor" and "setmaxnreg". On the CPU backend the
// functions do in software what each instruction does: detail/instructions_sm90_cpu.h. AMD has none
// of them.
#pragma once

#include "common/gpu_runtime.h"

#if !defined(GPU_BACKEND_HIP)

#if defined(GPU_BACKEND_CUDA)
#include <cuda.h>
#endif

#include <cstdint>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"

namespace gemm_mixed {

// Device code for other devices, and for sm_90 without the `a`, has none of these instructions:
// kernels leave their bodies out.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHaveWgmma = false;
#else
inline constexpr bool kHaveWgmma = true;
#endif

inline constexpr int kWarpGroup = 128;  // threads

// Where a box of a map with four dimensions is: rows and columns of a matrix, which are many
// matrices.
struct BoxPlace {
  int row, column, matrix, group;  // matrix `matrix` of group `group`
};

}  // namespace gemm_mixed

#if defined(GPU_BACKEND_CPU)

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90_cpu.h"

#else

namespace gemm_mixed {

// ---- mbarrier ---------------------------------------------------------------------------------

// A barrier in shared memory. A phase ends when `arrivals` threads have arrived and all expected
// bytes are there; the next phase begins at once. Phases are counted from 0, and a thread waits for
// the parity of a phase: it must know which phase it is in.
//
//   init(1)   |  expect(n) ... n bytes arrive  |  expect(n) ... n bytes arrive  |
//             |            phase 0             |            phase 1             |
//
//   wait(0) returns during phase 1, wait(1) during phase 2. wait(1) returns in phase 0, too: the
//   phase before the first one counts as complete.
struct PhaseBarrier {
  std::uint64_t state;

  // One thread calls this, then publish_barriers(), then the block's __syncthreads().
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)),
                 "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state))
        : "memory");
  }
  // Arrives, and makes this phase wait for `bytes` more bytes of copies.
  __device__ void expect(unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)),
        "r"(bytes)
        : "memory");
  }
  __device__ void wait(unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "@done bra DONE;\n"
        "bra WAIT;\n"
        "DONE:\n"
        "}" ::"r"(shared_address(&state)),
        "r"(parity)
        : "memory");
  }
};

// Makes initialized barriers known to the TMA.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// ---- TMA --------------------------------------------------------------------------------------

// Copies the box of the map's matrix whose first element is (row, column) to shared memory, with
// zeros beyond the matrix's edges. Its bytes, those of the zeros too, arrive at `full`. One thread
// calls this.
__device__ inline void load_box(void* to, const CUtensorMap& map, int row, int column,
                                PhaseBarrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&full.state)), "r"(column), "r"(row)
      : "memory");
}

// The same of a map with four dimensions.
__device__ inline void load_box(void* to, const CUtensorMap& map, const BoxPlace& at,
                                PhaseBarrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&full.state)), "r"(at.column), "r"(at.row), "r"(at.matrix),
      "r"(at.group)
      : "memory");
}

// Copies a box from shared memory to the map's matrix; what lies beyond the edges is not written.
// The thread that calls it then calls end_stores(): what it began since the last one is a group.
__device__ inline void store_box(const CUtensorMap& map, int row, int column, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
          &map),
      "r"(shared_address(from)), "r"(column), "r"(row)
      : "memory");
}
// The same of what is not read soon: the L2 cache gives it up before what others have copied.
__device__ inline void stream_box(const CUtensorMap& map, int row, int column, const void* from) {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3}], [%1], %4;" ::"l"(&map),
      "r"(shared_address(from)), "r"(column), "r"(row), "l"(policy)
      : "memory");
}
// store_box of a map with four dimensions.
__device__ inline void store_box(const CUtensorMap& map, const BoxPlace& at, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(&map),
      "r"(shared_address(from)), "r"(at.column), "r"(at.row), "r"(at.matrix), "r"(at.group)
      : "memory");
}
// Copies `bytes` bytes as they lie, both from and to multiples of 16. With add_floats each float is
// added to what is there: where several add to one, the order is that in which they come.
__device__ inline void store_floats(float* to, const float* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void add_floats(float* to, const float* from, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
__device__ inline void end_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until this thread's stores have read their shared memory, which may then be overwritten.
__device__ inline void wait_until_stores_have_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until this thread's stores are complete.
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// The TMA and wgmma reach shared memory on a way of their own. Each thread calls this behind its
// ordinary stores that they shall see, before the barrier.
__device__ inline void fence_for_tma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// The same for global memory.
__device__ inline void fence_global_for_tma() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- Warp groups ------------------------------------------------------------------------------

// From here on each thread of this warp group has `kRegisters` registers: fewer than before, or
// more, as soon as others have given enough back.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier for one warp group. `number`: 1 to 15, one for each group; 0 is __syncthreads().
__device__ inline void sync_warp_group(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kWarpGroup) : "memory");
}
// A barrier of two warp groups: one waits for the other, which gives it the turn and goes on.
__device__ inline void wait_for_turn(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(2 * kWarpGroup) : "memory");
}
__device__ inline void give_turn(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(2 * kWarpGroup) : "memory");
}
// A barrier of `threads` threads of the block: is `value` true for any of them?
__device__ inline bool any_of_threads(int number, int threads, bool value) {
  unsigned any;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.u32 own, %3, 0;\n"
      "bar.red.or.pred all, %1, %2, own;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}"
      : "=r"(any)
      : "r"(number), "r"(threads), "r"(unsigned{value})
      : "memory");
  return any != 0;
}

}  // namespace gemm_mixed

#endif

#endif
