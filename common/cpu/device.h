// What a kernel can call on the CPU backend: barriers, wave operations, atomics, fences,
// arithmetic. The semantics are HIP's; where a GPU would go on with garbage, these report the
// mistake.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/cpu/launch.h"

#define CPU_DEVICE_FUNCTION __attribute__((always_inline)) static inline

namespace cpu {

using WaveMask64 = unsigned long long;  // one bit per lane, whatever the wave's size

// ---- Implemented in block.cpp -----------------------------------------------------------------

// A thread arrives at the block's barrier (or the grid's) with a vote; the last one of the block
// opens it. *phase receives the number under which the votes are read.
Switch arrive_at_barrier(unsigned thread, const Site& site, bool vote, bool whole_grid,
                         unsigned* phase);
unsigned count_votes(unsigned phase);

// A thread deposits a value and a vote for its wave; the last live lane completes the exchange.
struct Exchange {
  unsigned wave, phase;
};
Switch arrive_in_wave(unsigned thread, const Site& site, std::uint64_t value, bool vote,
                      Exchange* exchange);
// What lane `lane` of the caller's wave deposited; 0xFF bytes if that lane does not take part.
std::uint64_t read_lane(const Exchange& exchange, int lane);
WaveMask64 read_votes(const Exchange& exchange);         // one bit per lane that voted true
WaveMask64 read_participants(const Exchange& exchange);  // one bit per lane that took part

void* dynamic_shared();
// In a launch that begins early: the launch before it has ended.
void wait_for_launch_before();
extern int lanes_per_wave;  // 32 or 64: known before a kernel runs
CPU_DEVICE_FUNCTION int wave_size() { return lanes_per_wave; }

// ---- Barriers ---------------------------------------------------------------------------------

CPU_DEVICE_FUNCTION unsigned barrier(const Site& site, bool vote, bool whole_grid) {
  const uint3 self = threadIdx;
  unsigned phase = 0;
  wait(arrive_at_barrier(thread_number(self), site, vote, whole_grid, &phase), self);
  return phase;
}

CPU_DEVICE_FUNCTION void grid_sync(const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
  barrier({file, line, "grid_sync()"}, false, true);
}

}  // namespace cpu

// Every thread of the block waits here for all the others; what they wrote is visible afterwards.
CPU_DEVICE_FUNCTION void __syncthreads(const char* file = __builtin_FILE(),
                                       int line = __builtin_LINE()) {
  cpu::barrier({file, line, "__syncthreads()"}, false, false);
}
// The same, and returns for how many threads of the block the predicate held.
CPU_DEVICE_FUNCTION int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                                            int line = __builtin_LINE()) {
  return static_cast<int>(
      cpu::count_votes(cpu::barrier({file, line, "__syncthreads_count()"}, predicate != 0, false)));
}
CPU_DEVICE_FUNCTION int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) {
  return cpu::count_votes(
             cpu::barrier({file, line, "__syncthreads_or()"}, predicate != 0, false)) != 0;
}
CPU_DEVICE_FUNCTION int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
  return cpu::count_votes(cpu::barrier({file, line, "__syncthreads_and()"}, predicate != 0,
                                       false)) == blockDim.x * blockDim.y * blockDim.z;
}

// ---- Wave operations --------------------------------------------------------------------------
namespace cpu {

CPU_DEVICE_FUNCTION Exchange exchange(std::uint64_t value, bool vote, const Site& site) {
  const uint3 self = threadIdx;
  Exchange result;
  wait(arrive_in_wave(thread_number(self), site, value, vote, &result), self);
  return result;
}

CPU_DEVICE_FUNCTION int lane_number() {
  return static_cast<int>(thread_number(threadIdx)) & (wave_size() - 1);
}

// The value that `source` deposited. A source outside the wave gives the thread's own value, as
// hardware does; a lane that has left the kernel gives poison, where hardware gives anything.
template <class T>
CPU_DEVICE_FUNCTION T shuffle(T value, int source, const Site& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a lane holds 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const Exchange all = exchange(bits, false, site);
  if (source >= 0 && source < wave_size()) {
    bits = read_lane(all, source);
    std::memcpy(&value, &bits, sizeof(T));
  }
  return value;
}

template <class T>
CPU_DEVICE_FUNCTION T wave_shfl(T value, int lane, const char* file = __builtin_FILE(),
                                int line = __builtin_LINE()) {
  return shuffle(value, lane & (wave_size() - 1), {file, line, "wave_shfl()"});
}
template <class T>
CPU_DEVICE_FUNCTION T wave_shfl_up(T value, int distance, const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
  return shuffle(value, lane_number() - distance, {file, line, "wave_shfl_up()"});
}
template <class T>
CPU_DEVICE_FUNCTION T wave_shfl_down(T value, int distance, const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
  return shuffle(value, lane_number() + distance, {file, line, "wave_shfl_down()"});
}
template <class T>
CPU_DEVICE_FUNCTION T wave_shfl_xor(T value, int mask, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
  return shuffle(value, lane_number() ^ mask, {file, line, "wave_shfl_xor()"});
}
CPU_DEVICE_FUNCTION WaveMask64 wave_ballot(bool predicate, const char* file = __builtin_FILE(),
                                           int line = __builtin_LINE()) {
  return read_votes(exchange(0, predicate, {file, line, "wave_ballot()"}));
}
CPU_DEVICE_FUNCTION bool wave_any(bool predicate, const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
  return read_votes(exchange(0, predicate, {file, line, "wave_any()"})) != 0;
}
CPU_DEVICE_FUNCTION bool wave_all(bool predicate, const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
  const Exchange all = exchange(0, predicate, {file, line, "wave_all()"});
  return read_votes(all) == read_participants(all);
}
CPU_DEVICE_FUNCTION void wave_sync(const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
  exchange(0, false, {file, line, "wave_sync()"});
}

}  // namespace cpu

struct WarpSize {
  operator int() const { return cpu::wave_size(); }
};
inline constexpr WarpSize warpSize;

// ---- Fences and atomics -----------------------------------------------------------------------
// Atomics are relaxed, as on a GPU; only ThreadSanitizer, which does not understand fences, sees
// them as acquire-release, so that "write, fence, count" is no race.
namespace cpu {

#if defined(COURSE_SANITIZE_THREAD)
inline constexpr int kAtomicOrder = __ATOMIC_ACQ_REL;
#else
inline constexpr int kAtomicOrder = __ATOMIC_RELAXED;
#endif

// old = *address; *address = update(old), as one step. Returns old.
template <class T, class Update>
CPU_DEVICE_FUNCTION T atomic_update(T* address, Update update) {
  T old, wanted;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    wanted = update(old);
  } while (
      !__atomic_compare_exchange(address, &old, &wanted, true, kAtomicOrder, __ATOMIC_RELAXED));
  return old;
}

template <class T>
inline constexpr bool kIsAtomicType =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long> || std::is_same_v<T, unsigned long> ||
    std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T>
using AtomicType = std::enable_if_t<kIsAtomicType<T>, T>;

}  // namespace cpu

// Each returns the value before. The second argument is converted to the first one's type.
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicAdd(T* address, std::common_type_t<T> value) {
  if constexpr (std::is_integral_v<T>)
    return __atomic_fetch_add(address, value, cpu::kAtomicOrder);
  else
    return cpu::atomic_update(address, [value](T old) { return old + value; });
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicSub(T* address, std::common_type_t<T> value) {
  if constexpr (std::is_integral_v<T>)
    return __atomic_fetch_sub(address, value, cpu::kAtomicOrder);
  else
    return cpu::atomic_update(address, [value](T old) { return old - value; });
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicMax(T* address, std::common_type_t<T> value) {
  return cpu::atomic_update(address, [value](T old) { return old < value ? value : old; });
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicMin(T* address, std::common_type_t<T> value) {
  return cpu::atomic_update(address, [value](T old) { return value < old ? value : old; });
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicExch(T* address, std::common_type_t<T> value) {
  return cpu::atomic_update(address, [value](T) { return value; });
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicCAS(T* address, std::common_type_t<T> expected,
                                                 std::common_type_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomicCAS compares integers");
  __atomic_compare_exchange_n(address, &expected, value, false, cpu::kAtomicOrder,
                              __ATOMIC_RELAXED);
  return expected;
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicAnd(T* address, std::common_type_t<T> value) {
  return __atomic_fetch_and(address, value, cpu::kAtomicOrder);
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicOr(T* address, std::common_type_t<T> value) {
  return __atomic_fetch_or(address, value, cpu::kAtomicOrder);
}
template <class T>
CPU_DEVICE_FUNCTION cpu::AtomicType<T> atomicXor(T* address, std::common_type_t<T> value) {
  return __atomic_fetch_xor(address, value, cpu::kAtomicOrder);
}
// old >= limit ? 0 : old + 1: a counter that resets itself.
CPU_DEVICE_FUNCTION unsigned atomicInc(unsigned* address, unsigned limit) {
  return cpu::atomic_update(address, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}

CPU_DEVICE_FUNCTION void __threadfence() {
#if !defined(CPU_SANITIZED_FIBERS)
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
CPU_DEVICE_FUNCTION void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// ---- Arithmetic -------------------------------------------------------------------------------
// <cmath> has most of the names; these are the ones that only GPUs have.
namespace cpu {

template <class To, class From>
CPU_DEVICE_FUNCTION To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "both hold the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace cpu

CPU_DEVICE_FUNCTION float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
CPU_DEVICE_FUNCTION double rsqrt(double x) { return 1.0 / std::sqrt(x); }
#define __expf expf  // the C library has functions of its own under these names
#define __logf logf
CPU_DEVICE_FUNCTION float __fdividef(float a, float b) { return a / b; }
CPU_DEVICE_FUNCTION int __popc(unsigned x) { return __builtin_popcount(x); }
CPU_DEVICE_FUNCTION int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CPU_DEVICE_FUNCTION int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
CPU_DEVICE_FUNCTION int __ffs(int x) { return __builtin_ffs(x); }
CPU_DEVICE_FUNCTION int __ffsll(long long x) { return __builtin_ffsll(x); }
CPU_DEVICE_FUNCTION int __float_as_int(float x) { return cpu::same_bits<int>(x); }
CPU_DEVICE_FUNCTION unsigned __float_as_uint(float x) { return cpu::same_bits<unsigned>(x); }
CPU_DEVICE_FUNCTION float __int_as_float(int bits) { return cpu::same_bits<float>(bits); }
CPU_DEVICE_FUNCTION float __uint_as_float(unsigned bits) { return cpu::same_bits<float>(bits); }
template <class T>
CPU_DEVICE_FUNCTION T __ldg(const T* address) {
  return *address;
}
template <class T>
CPU_DEVICE_FUNCTION std::enable_if_t<std::is_arithmetic_v<T>, T> min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
CPU_DEVICE_FUNCTION std::enable_if_t<std::is_arithmetic_v<T>, T> max(T a, T b) {
  return a < b ? b : a;
}
