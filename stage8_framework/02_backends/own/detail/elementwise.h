// out[i] = f(a[i], b[i], ...) for inputs of any strides: every operation of kOps that works element
// by element, but for those that have a launcher in stage 1.
#pragma once

#include <cstdint>
#include <utility>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage8_framework/02_backends/own/axes.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {

using conv2d::Divisor;
using vector_add::kBlock;

// From the number of an element of the output to the places in the inputs.
template <int kInputs>
struct Positions {
  int rank = 0;
  Divisor by[kMaxRank];  // the innermost axis first
  std::int64_t stride[kInputs][kMaxRank] = {};

  Positions() = default;
  explicit Positions(const Axes<kInputs>& axes) : rank(axes.rank) {
    for (int d = 0; d < rank; ++d) {
      by[d] = Divisor(static_cast<size_t>(axes.extent[rank - 1 - d]));
      for (int i = 0; i < kInputs; ++i) stride[i][d] = axes.stride[i][rank - 1 - d];
    }
  }

  __device__ void find(unsigned n, std::int64_t (&at)[kInputs]) const {
    GPU_UNROLL
    for (int d = 0; d < static_cast<int>(kMaxRank); ++d)
      if (d < rank) {
        const unsigned further = by[d].quotient(n);
        const std::int64_t index = n - further * by[d].value;
        GPU_UNROLL
        for (int i = 0; i < kInputs; ++i) at[i] += index * stride[i][d];
        n = further;
      }
  }
  // The place in one input alone.
  __device__ std::int64_t find(unsigned n, int input) const {
    std::int64_t at = 0;
    for (int d = 0; d < rank; ++d) {
      const unsigned further = by[d].quotient(n);
      at += static_cast<std::int64_t>(n - further * by[d].value) * stride[input][d];
      n = further;
    }
    return at;
  }
};

// Thread: element blockIdx.x * kBlock + threadIdx.x.
template <class F, class Out, class... In, size_t... i>
__device__ inline void store_one(const F& f, Out* out, unsigned n,
                                 const Positions<static_cast<int>(sizeof...(In))>& places,
                                 std::index_sequence<i...>, const In*... in) {
  std::int64_t at[sizeof...(In)] = {};
  places.find(n, at);
  out[n] = static_cast<Out>(f(in[at[i]]...));
}
template <class F, class Out, class... In>
static __global__ void __launch_bounds__(kBlock)
    elementwise_strided(F f, Out* out, unsigned elements,
                        Positions<static_cast<int>(sizeof...(In))> places, const In*... in) {
  const unsigned n = blockIdx.x * kBlock + threadIdx.x;
  if (n < elements) store_one(f, out, n, places, std::index_sequence_for<In...>{}, in...);
}

// An input without gaps, or one element for all.
template <class T>
struct Flat {
  const T* data;
  size_t stride;  // 1 or 0
};

// Thread: kAtOnce elements, kBlock apart, all of whose loads are under way at the same time.
inline constexpr int kAtOnce = 4;
template <class F, class Out, class... In>
static __global__ void __launch_bounds__(kBlock)
    elementwise_flat(F f, Out* out, size_t elements, Flat<In>... in) {
  const size_t first = size_t{blockIdx.x} * (kAtOnce * kBlock) + threadIdx.x;
  GPU_UNROLL
  for (int k = 0; k < kAtOnce; ++k) {
    const size_t n = first + static_cast<size_t>(k) * kBlock;
    if (n < elements) out[n] = static_cast<Out>(f(in.data[n * in.stride]...));
  }
}

// Whether run_elementwise takes the call; nullptr or why not.
template <int kInputs>
const char* unless_walkable(const CourseCall& call) {
  const bool is_small = elements(call.outputs[0]) < size_t{1} << 31;
  if (is_small || Axes<kInputs>(call.inputs, call.outputs[0]).are_flat()) return nullptr;
  return "2^31 elements or more must lie without gaps";
}

// Queues out[i] = f(in[i]...) for the call's output of type Out and inputs of types In.
template <class Out, class... In, class F, size_t... i>
void run_elementwise(const CourseCall& call, hipStream_t stream, const F& f,
                     std::index_sequence<i...>) {
  const CourseTensor* in = call.inputs;
  Out* out = data_of<Out>(call.outputs[0]);
  const size_t n = elements(call.outputs[0]);
  if (n == 0) return;
  const Axes<static_cast<int>(sizeof...(In))> axes(in, call.outputs[0]);
  if (axes.are_flat())
    LAUNCH_ON(stream, (elementwise_flat<F, Out, In...>),
              static_cast<unsigned>(gpu::ceil_div(n, kAtOnce * kBlock)), kBlock, 0, f, out, n,
              Flat<In>{data_of<In>(in[i]), static_cast<size_t>(axes.stride[i][0])}...);
  else
    LAUNCH_ON(stream, (elementwise_strided<F, Out, In...>),
              static_cast<unsigned>(gpu::ceil_div(n, kBlock)), kBlock, 0, f, out,
              static_cast<unsigned>(n), Positions<static_cast<int>(sizeof...(In))>(axes),
              data_of<const In>(in[i])...);
}
template <class Out, class... In, class F>
void run_elementwise(const CourseCall& call, hipStream_t stream, const F& f) {
  run_elementwise<Out, In...>(call, stream, f, std::index_sequence_for<In...>{});
}

}  // namespace own
