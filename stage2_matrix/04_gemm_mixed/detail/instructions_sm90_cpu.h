// The instructions of sm_90 that feed its matrix units, on the CPU backend: what
// detail/instructions_sm90.h has for NVIDIA's, with the same names. Copies arrive as late as they
// may, and mistakes are reported: common/cpu/events.h.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include <cstdint>

#include "common/cpu/events.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90.h"

using CUtensorMap = cpu::TensorMap;

// The place of a call, which messages name: the default of a last parameter.
#define CPU_SITE(what) const cpu::Site& site = {__builtin_FILE(), __builtin_LINE(), what}

namespace gemm_mixed {

using cpu::shared_address;

// ---- mbarrier ---------------------------------------------------------------------------------

struct PhaseBarrier {
  std::uint64_t state;

  __device__ void init(int arrivals, CPU_SITE("PhaseBarrier::init()")) {
    cpu::init_phases({cpu::caller_number(), site}, &state, arrivals);
    cpu::go_on();
  }
  __device__ void arrive(CPU_SITE("PhaseBarrier::arrive()")) {
    cpu::arrive_in_phase({cpu::caller_number(), site}, &state, 0);
    cpu::go_on();
  }
  __device__ void expect(unsigned bytes, CPU_SITE("PhaseBarrier::expect()")) {
    cpu::arrive_in_phase({cpu::caller_number(), site}, &state, bytes);
    cpu::go_on();
  }
  __device__ void wait(unsigned parity, CPU_SITE("PhaseBarrier::wait()")) {
    const uint3 self = threadIdx;
    cpu::wait(cpu::arrive_for_phase({cpu::caller_number(), site}, &state, parity), self);
  }
};

__device__ inline void publish_barriers() { cpu::publish_phases(); }

// ---- TMA --------------------------------------------------------------------------------------

__device__ inline void load_box(void* to, const CUtensorMap& map, const BoxPlace& at,
                                PhaseBarrier& full, CPU_SITE("load_box()")) {
  const int place[] = {at.column, at.row, at.matrix, at.group};
  cpu::begin_load({cpu::caller_number(), site}, to, map, place, &full.state);
  cpu::go_on();
}
__device__ inline void load_box(void* to, const CUtensorMap& map, int row, int column,
                                PhaseBarrier& full, CPU_SITE("load_box()")) {
  load_box(to, map, {row, column, 0, 0}, full, site);
}

__device__ inline void store_box(const CUtensorMap& map, const BoxPlace& at, const void* from,
                                 CPU_SITE("store_box()")) {
  const int place[] = {at.column, at.row, at.matrix, at.group};
  cpu::begin_store({cpu::caller_number(), site}, map, place, from);
  cpu::go_on();
}
__device__ inline void store_box(const CUtensorMap& map, int row, int column, const void* from,
                                 CPU_SITE("store_box()")) {
  store_box(map, {row, column, 0, 0}, from, site);
}
__device__ inline void stream_box(const CUtensorMap& map, int row, int column, const void* from,
                                  CPU_SITE("stream_box()")) {
  store_box(map, {row, column, 0, 0}, from, site);
}
__device__ inline void store_floats(float* to, const float* from, unsigned bytes,
                                    CPU_SITE("store_floats()")) {
  cpu::begin_store({cpu::caller_number(), site}, to, from, bytes, false);
  cpu::go_on();
}
__device__ inline void add_floats(float* to, const float* from, unsigned bytes,
                                  CPU_SITE("add_floats()")) {
  cpu::begin_store({cpu::caller_number(), site}, to, from, bytes, true);
  cpu::go_on();
}
__device__ inline void end_stores() { cpu::end_stores(cpu::caller_number()); }
__device__ inline void wait_until_stores_have_read(CPU_SITE("wait_until_stores_have_read()")) {
  cpu::wait_for_stores({cpu::caller_number(), site}, false);
  cpu::go_on();
}
__device__ inline void wait_for_stores(CPU_SITE("wait_for_stores()")) {
  cpu::wait_for_stores({cpu::caller_number(), site}, true);
  cpu::go_on();
}

__device__ inline void fence_for_tma() { cpu::fence_for_units(); }
__device__ inline void fence_global_for_tma() {}

// ---- Warp groups ------------------------------------------------------------------------------

template <int kRegisters>
__device__ inline void give_registers() {
  cpu::set_registers(cpu::caller_number(), kRegisters);
}
template <int kRegisters>
__device__ inline void take_registers() {
  cpu::set_registers(cpu::caller_number(), kRegisters);
}

__device__ inline bool any_of_threads(int number, int threads, bool value,
                                      CPU_SITE("any_of_threads()")) {
  const uint3 self = threadIdx;
  bool any = false;
  cpu::wait(
      cpu::arrive_at_number({cpu::caller_number(), site}, number, threads, false, value, &any),
      self);
  return any;
}
__device__ inline void sync_warp_group(int number, CPU_SITE("sync_warp_group()")) {
  any_of_threads(number, kWarpGroup, false, site);
}
__device__ inline void wait_for_turn(int number, CPU_SITE("wait_for_turn()")) {
  any_of_threads(number, 2 * kWarpGroup, false, site);
}
__device__ inline void give_turn(int number, CPU_SITE("give_turn()")) {
  const cpu::Caller caller{cpu::caller_number(), site};
  cpu::arrive_at_number(caller, number, 2 * kWarpGroup, true, false, nullptr);
  cpu::go_on();
}

}  // namespace gemm_mixed

#endif
