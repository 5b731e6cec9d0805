// What the interpreter's kernel is given, and how its threads read and write: groups of four
// neighbours, 16 bytes where they lie so.
//
//   elements of a block   | 4 of thread 0 | 4 of thread 1 | ... | 4 of thread 0 | 4 of thread 1 ...
//                         group 0                               group 1
//   shared memory         [slot][group][thread] of float4: neighbours in a wave read neighbours,
//   and
//                         no thread reads what another one has written
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"
#include "stage8_framework/06_fusion/detail/slots.h"

namespace fusion {

// More elements for each thread share the work of decoding a step, and take more registers and
// shared memory.
inline constexpr unsigned kThreads = 64;
inline constexpr int kGroups = 4, kOfThread = 4 * kGroups;
inline constexpr size_t kSlotBytes = kGroups * kThreads * sizeof(float4);
static_assert(kSlots * kSlotBytes <= 48 * 1024, "what a launch may have without asking for it");

enum class Access : std::int32_t {
  wide,  // as the domain is walked, and 16 bytes at a time
  flat,  // as the domain is walked
  one,   // one element for all
  rows,  // four neighbours lie in one row: their places are `step` apart
  any,   // each place by itself
};
struct Source {
  const void* data;
  std::int64_t step;  // of the last axis that is left, where axes have become one
  Access access;
  bool is_boolean, is_aligned;  // aligned: four neighbours can be one access
};

// A kernel's argument, which lies in constant memory: all threads of a wave read the same word.
struct Bytecode {
  Step steps[kMaxSteps];
  int length;
  bool are_outputs_wide;
  size_t elements;
  Source in[kMaxInputs];
  float* out[kMaxOutputs];
  own::Positions<kMaxInputs> places;
};
static_assert(sizeof(Bytecode) <= 4096, "arguments of a kernel");

// A value of the elements of a thread, in registers.
struct Values {
  float of[kOfThread];
};

// Of this thread: where its first group begins, whether all of its groups are elements, and where
// its part of slot 0 begins.
struct Self {
  size_t first;
  bool is_whole;
  float4* slots;

  __device__ size_t group(int number) const {
    return first + static_cast<size_t>(number) * (4 * kThreads);
  }
};
__device__ inline Self self_of(const Bytecode& code, float4* slots) {
  const size_t first = (size_t{blockIdx.x} * (kGroups * kThreads) + threadIdx.x) * 4;
  return {first, first + (kGroups - 1) * 4 * kThreads + 4 <= code.elements, slots + threadIdx.x};
}

__device__ inline void spread(float* x, const float4& four) {
  x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

// x = what a slot holds, or a number. nvcc makes one of two such short ways without a branch, and
// issues both; where one is told to be rare, it branches.
__device__ inline void fetch(Values& x, const Self& self, const ReadFrom& from) {
  if (__builtin_expect(from.slot >= 0, 1)) {
    const float4* slot = self.slots + from.slot * (kGroups * static_cast<int>(kThreads));
    GPU_UNROLL
    for (int group = 0; group < kGroups; ++group)
      spread(x.of + 4 * group, slot[group * static_cast<int>(kThreads)]);
  } else {
    GPU_UNROLL
    for (int k = 0; k < kOfThread; ++k) x.of[k] = from.number;
  }
}

// The slot holds x from now on.
__device__ inline void keep(const Self& self, int to, const Values& x) {
  float4* slot = self.slots + to * (kGroups * static_cast<int>(kThreads));
  GPU_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    const float* four = x.of + 4 * group;
    slot[group * static_cast<int>(kThreads)] = make_float4(four[0], four[1], four[2], four[3]);
  }
}

// x = f of x and of the step's other operands.
template <int kInputs, class F>
__device__ inline void apply(Values& x, const Step& step, const Self& self, const F& f) {
  Values y{}, z{};
  if constexpr (kInputs > 1) fetch(y, self, step.from[1]);
  if constexpr (kInputs > 2) fetch(z, self, step.from[2]);
  GPU_UNROLL
  for (int k = 0; k < kOfThread; ++k) x.of[k] = f(x.of[k], y.of[k], z.of[k]);
}

// ---- Memory -------------------------------------------------------------------------------------

__device__ inline float element(const Source& source, std::int64_t place) {
  if (source.is_boolean)
    return static_cast<float>(static_cast<const std::uint8_t*>(source.data)[place]);
  return static_cast<const float*>(source.data)[place];
}

// x[k] = element n + k of the domain in an input; 0 behind the last one.
__device__ inline void load_four(float* x, const Bytecode& code, int input, size_t n) {
  const Source& source = code.in[input];
  spread(x, make_float4(0, 0, 0, 0));
  if (n >= code.elements) return;
  const auto places = static_cast<int>(code.elements - n < 4 ? code.elements - n : 4);
  if (source.access == Access::any) {
    for (int k = 0; k < 4; ++k)
      if (k < places)
        x[k] = element(
            source, code.places.find(static_cast<unsigned>(n) + static_cast<unsigned>(k), input));
    return;
  }
  auto at = static_cast<std::int64_t>(source.access == Access::one ? 0 : n);
  if (source.access == Access::rows) at = code.places.find(static_cast<unsigned>(n), input);
  if (source.is_aligned && places == 4) {
    if (source.is_boolean)
      spread(x, gpu::unpack_bytes(static_cast<const std::uint32_t*>(source.data)[at / 4]));
    else
      spread(x, static_cast<const float4*>(source.data)[at / 4]);
  } else if (source.step == 0) {
    const float all = element(source, at);
    spread(x, make_float4(all, all, all, all));
  } else {
    GPU_UNROLL
    for (int k = 0; k < 4; ++k)
      if (k < places) x[k] = element(source, at + k * source.step);
  }
}
__device__ inline void load_input(Values& x, const Bytecode& code, const Self& self, int input) {
  if (code.in[input].access == Access::wide && self.is_whole) {
    const float4* data = static_cast<const float4*>(code.in[input].data) + self.first / 4;
    GPU_UNROLL
    for (int group = 0; group < kGroups; ++group)
      spread(x.of + 4 * group, data[group * static_cast<int>(kThreads)]);
    return;
  }
  GPU_UNROLL
  for (int group = 0; group < kGroups; ++group)
    load_four(x.of + 4 * group, code, input, self.group(group));
}

__device__ inline void store_four(const Bytecode& code, int output, size_t n, const float* x) {
  float* const out = code.out[output];
  if (code.are_outputs_wide && n + 4 <= code.elements) {
    reinterpret_cast<float4*>(out)[n / 4] = make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
  GPU_UNROLL
  for (int k = 0; k < 4; ++k)
    if (n + static_cast<size_t>(k) < code.elements) out[n + static_cast<size_t>(k)] = x[k];
}
// Stores x as the outputs of a mask.
__device__ inline void store(const Bytecode& code, const Self& self, unsigned outputs,
                             const Values& x) {
  for (int output = 0; output < kMaxOutputs; ++output)
    if (outputs >> output & 1) {
      GPU_UNROLL
      for (int group = 0; group < kGroups; ++group)
        store_four(code, output, self.group(group), x.of + 4 * group);
    }
}

}  // namespace fusion
