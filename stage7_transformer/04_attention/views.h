// Where the heads of attention lie, and which keys a query sees.
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"
#include "common/half.h"

namespace attention {

inline constexpr size_t kMostDepth = 256;  // numbers of a head

struct Problem {
  size_t B, H, Tq, Tk, D;  // D: 1 to kMostDepth
  bool causal;
  float scale;  // above 0; usually 1 / sqrt(D)

  size_t heads() const { return B * H; }
};

// Element d of row t of head h of sequence b is data[b stride_batch + h stride_head + t stride_row
// + d].
template <class T>
struct ViewOf {
  T* data;
  size_t stride_batch, stride_head, stride_row;

  __host__ __device__ T* head(size_t batch, size_t number) const {
    return data + (batch * stride_batch + number * stride_head);
  }
};
template <class T>
struct ConstViewOf {
  const T* data = nullptr;
  size_t stride_batch = 0, stride_head = 0, stride_row = 0;

  ConstViewOf() = default;
  ConstViewOf(const T* first, size_t batch, size_t head_of_batch, size_t row)
      : data(first), stride_batch(batch), stride_head(head_of_batch), stride_row(row) {}
  ConstViewOf(const ViewOf<T>& v)
      : ConstViewOf(v.data, v.stride_batch, v.stride_head, v.stride_row) {}

  __host__ __device__ const T* head(size_t batch, size_t number) const {
    return data + (batch * stride_batch + number * stride_head);
  }
};
using View = ViewOf<float>;
using ConstView = ConstViewOf<float>;
using Bf16View = ViewOf<gpu::bfloat16>;
using ConstBf16View = ConstViewOf<gpu::bfloat16>;

// An array (B, H, T, D).
template <class T>
ViewOf<T> heads_first(T* data, size_t H, size_t rows, size_t D) {
  return {data, H * rows * D, rows * D, D};
}
template <class T>
ConstViewOf<T> heads_first(const T* data, size_t H, size_t rows, size_t D) {
  return {data, H * rows * D, rows * D, D};
}
// Part `part` of an array (B, T, parts, H, D): of Q, K and V side by side, say; or of (B, T, H, D).
template <class T>
ViewOf<T> rows_first(T* data, size_t rows, size_t H, size_t D, size_t parts = 1, size_t part = 0) {
  return {data + part * H * D, rows * parts * H * D, D, parts * H * D};
}
template <class T>
ConstViewOf<T> rows_first(const T* data, size_t rows, size_t H, size_t D, size_t parts = 1,
                          size_t part = 0) {
  return {data + part * H * D, rows * parts * H * D, D, parts * H * D};
}

// How many keys, from key 0 on, query `query` sees.
__host__ __device__ inline size_t visible_keys(const Problem& p, size_t query) {
  if (!p.causal) return p.Tk;
  const size_t end = query + p.Tk + 1;
  return end <= p.Tq ? 0 : end - p.Tq < p.Tk ? end - p.Tq : p.Tk;
}

// So many queries, from query 0 on, see no key.
__host__ __device__ inline size_t blind_queries(const Problem& p) {
  return p.Tk == 0 ? p.Tq : p.causal && p.Tq > p.Tk ? p.Tq - p.Tk : 0;
}

}  // namespace attention
