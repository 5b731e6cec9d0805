// Products of bf16 or f16, by 2.4. Sums and results are f32.
//
//   matmul   a (..., M, K)   b (..., K, N)      2.4 takes matrices that are row-major without gaps.
//   linear   x (rows, K)     w (N, K) as w^T    8.1 copies others into the workspace first, and w
//                                               nearly always
#include "stage8_framework/02_backends/own/products_mixed.h"
#include "common/program.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage8_framework/01_tensor/tensor.h"
#include "stage8_framework/02_backends/own/detail/permuted.h"

namespace own {
namespace {

constexpr const char* kOneKernel = "the kernels that have names take f32";

// By the best of 2.4's versions that this device runs. Those of sm_90 are for few rows, and for so
// many tiles that every multiprocessor has one: mma_sync has smaller tiles for what lies between.
template <class T>
void launch_mixed(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream) {
  static const bool has_sm90 = missing(Needs::Sm90).empty(),
                    has_sm80 = missing(Needs::Sm80).empty();
  static const bool has_wmma = missing(gemm_mixed::kNeedsOfWmma<T>).empty();
  constexpr size_t kTileRows = 128, kTileColumns = 256;  // of `clusters`
  const size_t tiles = gpu::ceil_div(M, kTileRows) * gpu::ceil_div(N, kTileColumns);
  if (has_sm90 && (M <= gemm_mixed::kFewRows || tiles >= gpu::multiprocessors()))
    return gemm_mixed::launch_skinny(c, a, b, M, N, K, stream);  // or clusters, by itself
  if (has_sm80) return gemm_mixed::launch_mma_sync(c, a, b, M, N, K, stream);
  if (has_wmma) return gemm_mixed::launch_wmma_tiled(c, a, b, M, N, K, stream);
  gemm_mixed::launch_naive(c, a, b, M, N, K, stream);
}

// A tensor of matrices, and its copy into memory without gaps.
struct Factor {
  const void* data;
  tensor::Problem copy;

  std::int64_t extent(unsigned from_end) const { return copy.extent[copy.rank - from_end]; }
  // Whether each matrix is row-major without gaps.
  bool is_dense() const {
    const std::int64_t* const stride = copy.a_stride + copy.rank;
    return copy.elements() == 0 ||
           ((stride[-1] == 1 || extent(1) == 1) && (stride[-2] == extent(1) || extent(2) == 1));
  }
  size_t bytes_of_copy() const {
    constexpr size_t kAlignment = 256;
    const size_t bytes = static_cast<size_t>(copy.elements()) * sizeof(gpu::half);
    return is_dense() ? 0 : gpu::ceil_div(bytes, kAlignment) * kAlignment;
  }
};
Factor factor_of(const CourseTensor& t) { return {t.data, with_axes_last(t, 0)}; }
Factor turned(const CourseTensor& w) { return {w.data, with_axes_last(w, 1)}; }
// (..., K), without gaps, as one matrix.
Factor as_rows(const CourseTensor& x) {
  const auto K = static_cast<std::int64_t>(columns(x));
  const std::int64_t extents[] = {static_cast<std::int64_t>(rows(x)), K}, strides[] = {K, 1};
  return factor_of({x.data, extents, strides, 2, x.dtype});
}

// The same, or its copy at the beginning of `workspace`, which begins behind it then.
Factor dense(const Factor& f, char** workspace, hipStream_t stream) {
  if (f.is_dense()) return f;
  Factor copied{*workspace, f.copy};
  std::copy(std::begin(f.copy.out_stride), std::end(f.copy.out_stride), copied.copy.a_stride);
  tensor::launch_vectorized(*workspace, f.data, sizeof(gpu::half), f.copy, stream);
  *workspace += f.bytes_of_copy();
  return copied;
}

// Matrix `i` of those that y has. A tensor that has fewer of them is repeated.
template <class T>
const T* matrix(const Factor& f, const CourseTensor& y, size_t i) {
  std::int64_t offset = 0;
  for (int axis = y.rank - 3, own = static_cast<int>(f.copy.rank) - 3; own >= 0; --axis, --own) {
    if (f.copy.extent[own] != 1)
      offset += static_cast<std::int64_t>(i % extent(y, axis)) * f.copy.a_stride[own];
    i /= extent(y, axis);
  }
  return static_cast<const T*>(f.data) + offset;
}

// y = a b: a launch for each M rows of y.
template <class T>
void multiply(const CourseTensor& y, Factor a, Factor b, size_t M, void* memory,
              hipStream_t stream) {
  auto* workspace = static_cast<char*>(memory);
  a = dense(a, &workspace, stream), b = dense(b, &workspace, stream);
  const size_t N = columns(y), K = static_cast<size_t>(a.extent(1)), count = rows(y) / M;
  for (size_t i = 0; i < count; ++i)
    launch_mixed(floats(y) + i * M * N, matrix<T>(a, y, i), matrix<T>(b, y, i), M, N, K, stream);
}

void multiply(const CourseCall& call, const Factor& a, const Factor& b, size_t M,
              hipStream_t stream) {
  const CourseTensor& y = call.outputs[0];
  if (is_of(call.inputs[0], Dtype::bf16))
    multiply<gpu::bfloat16>(y, a, b, M, call.workspace, stream);
  else
    multiply<gpu::half>(y, a, b, M, call.workspace, stream);
}

// Where one b serves a batch of a without gaps, the batch is one matrix.
bool is_one_product(const CourseCall& call) {
  return call.inputs[1].rank == 2 && is_contiguous(call.inputs[0]);
}
Factor left_of(const CourseCall& call) {
  return is_one_product(call) ? as_rows(call.inputs[0]) : factor_of(call.inputs[0]);
}

}  // namespace

// ---- matmul -------------------------------------------------------------------------------------

const char* supports_mixed_matmul(const CourseCall& call) {
  return call.kernel > 0 ? kOneKernel : nullptr;
}
size_t workspace_of_mixed_matmul(const CourseCall& call) {
  return left_of(call).bytes_of_copy() + factor_of(call.inputs[1]).bytes_of_copy();
}
void run_mixed_matmul(const CourseCall& call, hipStream_t stream) {
  const CourseTensor& y = call.outputs[0];
  if (elements(y) == 0) return;
  multiply(call, left_of(call), factor_of(call.inputs[1]),
           is_one_product(call) ? rows(y) : extent(y, -2), stream);
}

// ---- linear: product, bias and function one after the other -------------------------------------

const char* supports_mixed_linear(const CourseCall& call) {
  if (call.kernel > 0) return kOneKernel;
  for (const int i : {0, 2})
    if (!is_contiguous(call.inputs[i])) return "x and bias must be row-major without gaps";
  return nullptr;
}
size_t workspace_of_mixed_linear(const CourseCall& call) {
  return turned(call.inputs[1]).bytes_of_copy();
}
void run_mixed_linear(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &bias = call.inputs[2], &y = call.outputs[0];
  if (elements(y) == 0) return;
  multiply(call, as_rows(x), turned(call.inputs[1]), rows(y), stream);
  if (!is_absent(bias))
    matrix_activations::launch_bias(floats(y), floats(y), floats(bias), rows(y), columns(y),
                                    stream);
  using namespace activations;
  constexpr decltype(activations::Launch::forward) kFunctions[] = {
      nullptr, launch_forward_vectorized<Relu>, launch_forward_vectorized<Sigmoid>,
      launch_forward_vectorized<Tanh>, launch_forward_vectorized<GeluTanh>};
  const auto function = kFunctions[count_of(call, 0)];  // in the order of the attribute
  if (function != nullptr) function(floats(y), floats(y), elements(y), stream);
}

}  // namespace own
