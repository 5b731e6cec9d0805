// matmul and linear as products of a BLAS. A matrix may be stored by rows or by columns, with gaps
// between them; axes in front count matrices, and one that is broadcast is used again.
#include <limits>

#include "stage8_framework/02_backends/vendor/vendor.h"

namespace vendor {
namespace {

constexpr int kMaxRank = 8;

// A BLAS of the processor counts in int.
bool is_small(const CourseTensor& tensor) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.extent[axis] > kMost || tensor.stride[axis] > kMost) return false;
  return true;
}

const char* supports_pair(const CourseTensor& a, const CourseTensor& b) {
  Matrix ignored;
  if (!to_matrix(a, &ignored) || !to_matrix(b, &ignored))
    return "the rows or the columns of a matrix must lie without gaps";
  if (!is_small(a) || !is_small(b)) return "an extent or a stride is above 2^31 - 1";
  return nullptr;
}

// Whether all axes but the last are one axis of rows, as far apart as those of each matrix.
bool is_one_matrix(const CourseTensor& tensor) {
  for (int axis = tensor.rank - 3; axis >= 0; --axis)
    if (tensor.extent[axis] != 1 &&
        tensor.stride[axis] != tensor.extent[axis + 1] * tensor.stride[axis + 1])
      return false;
  return true;
}

// How far matrix number `index` (along out's axis, aligned at the end) lies from the first one.
std::int64_t offset_of(const CourseTensor& tensor, int out_rank, const std::int64_t* index) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < tensor.rank - 2; ++axis)
    if (tensor.extent[axis] != 1)
      offset += index[axis + out_rank - tensor.rank] * tensor.stride[axis];
  return offset;
}

}  // namespace

const char* supports_matmul(const CourseCall& call) {
  return supports_pair(call.inputs[0], call.inputs[1]);
}

void run_matmul(const CourseCall& call, void* stream) {
  const CourseTensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const std::size_t M = extent(out, -2), N = extent(out, -1), K = extent(a, -1);
  Matrix left, right;
  to_matrix(a, &left), to_matrix(b, &right);
  if (b.rank == 2 && !left.is_transposed && is_one_matrix(a))
    return gemm(framework::rows(a), N, K, left, right, 0, floats(out), stream);

  std::int64_t index[kMaxRank] = {};
  const std::size_t products = framework::rows(out) / M;
  for (std::size_t i = 0; i < products; ++i) {
    Matrix one = left, other = right;
    one.data += offset_of(a, out.rank, index), other.data += offset_of(b, out.rank, index);
    gemm(M, N, K, one, other, 0, floats(out) + i * M * N, stream);
    for (int axis = out.rank - 3; axis >= 0 && ++index[axis] == out.extent[axis]; --axis)
      index[axis] = 0;
  }
}

// x [...,K] and w (N,K), as step 4.1 stores them: y = x w^T + bias.
const char* supports_linear(const CourseCall& call) {
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1];
  if (call.attributes[0] != 0) return "an activation is not supported";
  if (!is_contiguous(x) || (call.input_count > 2 && !is_contiguous(call.inputs[2])))
    return kContiguous;
  Matrix ignored;
  if (!to_matrix(w, &ignored)) return "the rows or the columns of w must lie without gaps";
  return is_small(x) && is_small(w) ? nullptr : "an extent or a stride is above 2^31 - 1";
}

void run_linear(const CourseCall& call, void* stream) {
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  const std::size_t rows = framework::rows(x), N = extent(w, 0), K = extent(w, 1);
  const bool has_bias = call.input_count > 2 && !is_absent(call.inputs[2]);
  if (has_bias) repeat_row(floats(out), floats(call.inputs[2]), rows, N, stream);
  Matrix weights;
  to_matrix(w, &weights);
  weights.is_transposed = !weights.is_transposed;
  gemm(rows, N, K, {floats(x), K, false}, weights, has_bias ? 1.0f : 0.0f, floats(out), stream);
}

}  // namespace vendor
