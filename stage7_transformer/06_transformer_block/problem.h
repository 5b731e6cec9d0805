// A block's sizes, parameters and ways to run. Plain C++.
#pragma once

#include <cstddef>
#include <vector>

#include "common/gpu_runtime.h"
#include "stage4_forward/01_dense/layer.h"
#include "stage7_transformer/04_attention/views.h"

namespace transformer_block {

struct Shape {
  size_t B, T, C, H;
  __host__ __device__ size_t D() const { return C / H; }
  __host__ __device__ size_t rows() const { return B * T; }
};

inline constexpr size_t kExpansion = 4;   // fc makes so many times C
inline constexpr float kEpsilon = 1e-5f;  // of both normalizations, as in PyTorch

// Throws std::invalid_argument where no block is of this shape.
void check(const Shape& shape);

// Its attention: causal, with the scale 1 / sqrt(D).
attention::Problem attention_problem(const Shape& shape);

// How a version runs: see kVersions.
struct Mode {
  bool flash;  // attention without the T x T matrix
  bool fuse;   // epilogues do what stands between the products
  bool group;  // the four weights' gradients in one launch
  bool rows;   // a launch from one attention to the next, where is_in_rows(shape)
};

// A pointer for each parameter of a block, or for its gradient.
template <class Pointer>
struct Tensors {
  Pointer norm1_gain, norm1_bias;  // (C), (C)
  Pointer qkv_w, qkv_bias;         // (3 C, C), (3 C)
  Pointer proj_w, proj_bias;       // (C, C), (C)
  Pointer norm2_gain, norm2_bias;  // (C), (C)
  Pointer fc_w, fc_bias;           // (4 C, C), (4 C)
  Pointer out_w, out_bias;         // (C, 4 C), (C)
};
using Parameters = Tensors<const float*>;
using Gradients = Tensors<float*>;

struct ParameterShape {
  const char* name;
  std::vector<size_t> shape;
};

// Names and shapes, in the order of Tensors.
std::vector<ParameterShape> parameter_shapes(size_t C);
inline constexpr size_t kTensors = 12;

// Tensors from a list in their order.
template <class Pointer, class List>
Tensors<Pointer> tensors_of(const List& list) {
  return {list[0], list[1], list[2], list[3], list[4],  list[5],
          list[6], list[7], list[8], list[9], list[10], list[11]};
}

// The four products' layers.
struct Layers {
  dense::Layer qkv, proj, fc, out;
};
Layers layers(const Shape& shape, const Parameters& p);

}  // namespace transformer_block
