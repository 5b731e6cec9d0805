// A matrix unit as wmma and wmma_tiled use it, and its form in software.
//
// A whole wave multiplies two small tiles: C (16, 16) += A (16, kDepth) · B (kDepth, 16). Each lane
// holds a part of each tile in registers: a fragment. Which elements these are differs from unit to
// unit. Every function is called by all lanes of a wave.
#pragma once

#include "common/gpu.h"
#include "common/half.h"

namespace gemm_mixed {

// The unit in software: lane l owns row l % 16 of C, and of this row 8 columns in a wave of 32, 4
// in a wave of 64. A lane loads all that its elements need, so lanes exchange nothing.
//
//              columns 0-7    8-15    of C, wave of 32
//   row  0       lane 0     lane 16
//   row  1       lane 1     lane 17
//   ...
//   row 15       lane 15    lane 31
template <class T>
struct SoftwareUnit {
  static constexpr int kTile = 16;
  static constexpr int kDepth = static_cast<int>(32 / sizeof(T));  // 16, of tf32 8
  static constexpr int kMaxColumns = 8;  // of a lane: 8 in a wave of 32, 4 in a wave of 64

  struct A {
    float row[kDepth];
  };
  struct B {
    float columns[kDepth][kMaxColumns];
  };
  struct C {
    float sums[kMaxColumns];
  };

  static __device__ void clear(C& c) {
    for (float& sum : c.sums) sum = 0;
  }
  // Rows of the tile begin `stride` elements apart. The tile is aligned to 32 bytes, each row
  // to 16.
  static __device__ void load(A& a, const T* tile, size_t stride) {
    const T* row_of_a = tile + row() * stride;
    for (int k = 0; k < kDepth; ++k) a.row[k] = gpu::to_float(row_of_a[k]);
  }
  static __device__ void load(B& b, const T* tile, size_t stride) {
    const int count = columns();
    const T* first = tile + first_column();
    for (int k = 0; k < kDepth; ++k)
      for (int j = 0; j < count; ++j) b.columns[k][j] = gpu::to_float(first[k * stride + j]);
  }
  static __device__ void multiply_add(C& c, const A& a, const B& b) {
    const int count = columns();
    for (int k = 0; k < kDepth; ++k)
      for (int j = 0; j < count; ++j) c.sums[j] += a.row[k] * b.columns[k][j];
  }
  static __device__ void store(float* tile, size_t stride, const C& c) {
    const int count = columns();
    float* to = tile + row() * stride + first_column();
    for (int j = 0; j < count; ++j) to[j] = c.sums[j];
  }

 private:
  static __device__ size_t row() { return static_cast<size_t>(gpu::lane_id() % kTile); }
  static __device__ int columns() { return kTile * kTile / gpu::wave_size(); }
  static __device__ size_t first_column() {
    return static_cast<size_t>(gpu::lane_id() / kTile * columns());
  }
};

// The unit of the device: the one in software, unless matrix_unit_sm70.h or matrix_unit_cdna.h has
// another. Kernels include matrix_unit.h, which has them all.
template <class T>
struct MatrixUnit : SoftwareUnit<T> {};

}  // namespace gemm_mixed
