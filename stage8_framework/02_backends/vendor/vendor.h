// What the vendor plug-in is made of. Each library has a file that says which calls it takes and
// runs them; plugin.cpp makes the table of those that this build has. The tensors are in the memory
// of `own`: the plug-in has none.
#pragma once

#include <cstddef>

#include "stage8_framework/02_backends/c_tensor.h"

namespace vendor {

struct Operation {
  const char* name;     // in kOps
  const char* library;  // the name of its one kernel
  // nullptr where run() takes the call, else why not. All extents are 1 or more, all types f32 and
  // all outputs row-major without gaps: plugin.cpp has asked that of every call.
  const char* (*supports)(const CourseCall& call);
  // Queues the call on `stream`, a hipStream_t; a library of the processor is done on return.
  // Throws what the library or the runtime refuses.
  void (*run)(const CourseCall& call, void* stream);
};

using framework::extent;
using framework::floats;
using framework::is_absent;
using framework::is_contiguous;
using framework::Matrix;
using framework::to_matrix;

inline constexpr const char* kContiguous = "inputs must be row-major without gaps";

inline bool inputs_are_contiguous(const CourseCall& call) {
  for (int i = 0; i < call.input_count; ++i)
    if (!is_contiguous(call.inputs[i])) return false;
  return true;
}

// ---- The operations ---------------------------------------------------------------------------

// products.cpp, by gemm() below.
const char* supports_matmul(const CourseCall& call);
void run_matmul(const CourseCall& call, void* stream);
const char* supports_linear(const CourseCall& call);
void run_linear(const CourseCall& call, void* stream);

// cudnn.cpp or onednn.cpp.
const char* supports_conv2d(const CourseCall& call);
void run_conv2d(const CourseCall& call, void* stream);

// onednn.cpp.
const char* supports_softmax(const CourseCall& call);
void run_softmax(const CourseCall& call, void* stream);

// gpu_blas.cpp or openblas.cpp: C = op(A) op(B) + beta C for row-major matrices, op(A) (M,K), op(B)
// (K,N) and C (M,N).
void gemm(std::size_t M, std::size_t N, std::size_t K, const Matrix& a, const Matrix& b, float beta,
          float* c, void* stream);
// Each of the rows of y (rows, cols) becomes `row` (cols).
void repeat_row(float* y, const float* row, std::size_t rows, std::size_t cols, void* stream);

}  // namespace vendor
