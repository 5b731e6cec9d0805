// What row_cached normalizes: a matrix, or the sum of two.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"

namespace layernorm {

// Where x comes from. row_cached loads number i of the matrix's Values, float or float4, and keeps
// what it has loaded.

// A matrix as it is.
struct Plain {
  static constexpr bool kKeeps = false;
  const float* x;
  __device__ float first(size_t i) const { return x[i]; }
  template <class Value>
  __device__ void load(Value& to, size_t i) const {
    to = reinterpret_cast<const Value*>(x)[i];
  }
  template <class Value>
  __device__ void keep(const Value&, size_t) const {}
};

// A sum of two matrices, which is stored: in a transformer it goes on past the layer.
struct Residual {
  static constexpr bool kKeeps = true;
  float* sum;
  const float *x, *residual;
  __device__ float first(size_t i) const { return x[i] + residual[i]; }
  template <class Value>
  __device__ void load(Value& to, size_t i) const {
    to = plus(reinterpret_cast<const Value*>(x)[i], reinterpret_cast<const Value*>(residual)[i]);
  }
  template <class Value>
  __device__ void keep(const Value& value, size_t i) const {
    reinterpret_cast<Value*>(sum)[i] = value;
  }
};

// The row's first element, which all others are held against. Where `sum` is x or the residual, it
// must be read by all before one overwrites it.
template <class Team, class Input>
__device__ inline float first_of_row(const Input& input, size_t i) {
  const float first = input.first(i);
  if constexpr (Input::kKeeps) Team::sync();  // every thread has the row's first element
  return first;
}

// The launch of versions/row_cached.hip, compiled there for both inputs. `aligned`: every row of
// every matrix begins at a multiple of 16 bytes. Returns false, and launches nothing, where no team
// can hold a row.
template <class Y, class Input>
bool launch_held(const PassOf<Y>& pass, const Input& input, bool aligned, hipStream_t stream);

}  // namespace layernorm
