// Products of bf16 or f16, by 2.4. Sums and results are f32.
//
//   matmul   a (..., M, K)   b (..., K, N)      in any layout of 2.3's; 8.1 copies others into the
//                                               workspace first
//   linear   x (rows, K)     w (N, K) as w^T    one launch, with bias and function as its epilogue
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/04_gemm_mixed/detail/choose_product.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage8_framework/01_tensor/tensor.h"
#include "stage8_framework/02_backends/own/detail/permuted.h"
#include "stage8_framework/02_backends/own/products_mixed.h"

namespace own {
namespace {

using gemm_mixed::Layout;

constexpr const char* kOneKernel = "the kernels that have names take f32";

// A tensor of matrices, and its copy into memory without gaps.
struct Factor {
  const void* data;
  tensor::Problem copy;

  std::int64_t extent(unsigned from_end) const { return copy.extent[copy.rank - from_end]; }
  std::int64_t stride(unsigned from_end) const { return copy.a_stride[copy.rank - from_end]; }
  // Whether each matrix is stored row by row, or column by column.
  bool has_rows() const {
    return (stride(1) == 1 || extent(1) == 1) && (stride(2) >= extent(1) || extent(2) == 1);
  }
  bool has_columns() const {
    return (stride(2) == 1 || extent(2) == 1) && (stride(1) >= extent(2) || extent(1) == 1);
  }
  // The distance of its rows, or of its columns.
  size_t ld(bool are_columns) const {
    const std::int64_t length = extent(are_columns ? 2 : 1), count = extent(are_columns ? 1 : 2);
    return static_cast<size_t>(std::max(count == 1 ? length : stride(are_columns ? 1 : 2), length));
  }
  size_t bytes_of_copy() const {
    constexpr size_t kAlignment = 256;
    const size_t bytes = static_cast<size_t>(copy.elements()) * sizeof(gpu::half);
    return gpu::ceil_div(bytes, kAlignment) * kAlignment;
  }
};
Factor factor_of(const CourseTensor& t) { return {t.data, with_axes_last(t, 0)}; }
// (..., K), without gaps, as one matrix.
Factor as_rows(const CourseTensor& x) {
  const auto K = static_cast<std::int64_t>(columns(x));
  const std::int64_t extents[] = {static_cast<std::int64_t>(rows(x)), K}, strides[] = {K, 1};
  return factor_of({x.data, extents, strides, 2, x.dtype});
}

// What 2.4 can't take is copied: matrices that lie neither way, and one of two that both lie by
// columns.
struct Factors {
  Factor a, b;
  bool is_layer = false;  // b is a layer's w, by columns

  bool copies_a() const {
    return a.copy.elements() > 0 && !a.has_rows() && (!a.has_columns() || needs_columns_of_b());
  }
  bool copies_b() const { return b.copy.elements() > 0 && !b.has_rows() && !b.has_columns(); }
  size_t workspace() const {
    return (copies_a() ? a.bytes_of_copy() : 0) + (copies_b() ? b.bytes_of_copy() : 0);
  }

 private:
  bool needs_columns_of_b() const { return !b.has_rows() && b.has_columns(); }
};

Factor copied(const Factor& f, char** workspace, hipStream_t stream) {
  Factor result{*workspace, f.copy};
  std::copy(std::begin(f.copy.out_stride), std::end(f.copy.out_stride), result.copy.a_stride);
  tensor::launch_vectorized(*workspace, f.data, sizeof(gpu::half), f.copy, stream);
  *workspace += f.bytes_of_copy();
  return result;
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

// Whether one distance says where all matrices of a batch are.
template <class T>
bool has_one_stride(const Factor& f, const CourseTensor& y, size_t count, size_t* stride) {
  const T* const first = matrix<T>(f, y, 0);
  const std::ptrdiff_t step = count > 1 ? matrix<T>(f, y, 1) - first : 0;
  for (size_t i = 2; i < count; ++i)
    if (matrix<T>(f, y, i) - first != static_cast<std::ptrdiff_t>(i) * step) return false;
  *stride = static_cast<size_t>(step);
  return step >= 0;
}

// The products that y is made of, M rows each: one product with a batch, or one after the other.
template <class T, class Run>
void for_each_product(const CourseTensor& y, Factors f, size_t M, void* memory, hipStream_t stream,
                      Run&& run) {
  auto* workspace = static_cast<char*>(memory);
  const bool copies_a = f.copies_a(), copies_b = f.copies_b();
  if (copies_a) f.a = copied(f.a, &workspace, stream);
  if (copies_b) f.b = copied(f.b, &workspace, stream);
  const bool a_turned = !f.a.has_rows(), b_turned = f.is_layer || !f.b.has_rows();
  const Layout layout = a_turned ? Layout::TN : b_turned ? Layout::NT : Layout::NN;
  auto p = gemm_mixed::contiguous<T, float>(layout, floats(y), nullptr, nullptr, M, columns(y),
                                            static_cast<size_t>(f.a.extent(1)));
  p.lda = f.a.ld(a_turned), p.ldb = f.b.ld(b_turned), p.stride_c = M * p.N;
  const size_t count = rows(y) / M;
  const bool is_batch = has_one_stride<T>(f.a, y, count, &p.stride_a) &&
                        has_one_stride<T>(f.b, y, count, &p.stride_b);
  p.batch = is_batch ? count : 1;
  for (size_t i = 0; i < count; i += p.batch) {
    p.a = matrix<T>(f.a, y, i), p.b = matrix<T>(f.b, y, i), p.c = floats(y) + i * M * p.N;
    run(p);
  }
}

// Where one b serves a batch of a without gaps, the batch is one matrix.
bool is_one_product(const CourseCall& call) {
  return call.inputs[1].rank == 2 && is_contiguous(call.inputs[0]);
}
Factors factors_of(const CourseCall& call) {
  return {is_one_product(call) ? as_rows(call.inputs[0]) : factor_of(call.inputs[0]),
          factor_of(call.inputs[1])};
}

// w (N, K) as (K, N).
Factor turned(const CourseTensor& w) { return {w.data, with_axes_last(w, 1)}; }
Factors factors_of_linear(const CourseCall& call) {
  return {as_rows(call.inputs[0]), turned(call.inputs[1]), true};
}

template <class T>
void run_matmul(const CourseCall& call, hipStream_t stream) {
  const CourseTensor& y = call.outputs[0];
  for_each_product<T>(y, factors_of(call), is_one_product(call) ? rows(y) : extent(y, -2),
                      call.workspace, stream, [&](const auto& p) { gemm_mixed::best(p, stream); });
}

// The epilogue of a layer.
template <class F>
struct LayerEpilogue {
  const float* bias;  // may be null
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    return F{}(bias == nullptr ? sum : sum + bias[col]);
  }
};

template <class T, class F>
void run_layer(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &bias = call.inputs[2], &y = call.outputs[0];
  const LayerEpilogue<F> epilogue{is_absent(bias) ? nullptr : floats(bias)};
  for_each_product<T>(
      y, factors_of_linear(call), rows(y), call.workspace, stream,
      [&](const auto& p) { gemm_mixed::best<gemm::Layouts<Layout::NT>>(p, epilogue, stream); });
}

template <class T>
void run_linear(const CourseCall& call, hipStream_t stream) {
  switch (count_of(call, 0)) {
    case relu:
      return run_layer<T, activations::Relu>(call, stream);
    case sigmoid:
      return run_layer<T, activations::Sigmoid>(call, stream);
    case tanh:
      return run_layer<T, activations::Tanh>(call, stream);
    case gelu:
      return run_layer<T, activations::GeluTanh>(call, stream);
    default:
      return run_layer<T, matrix_activations::Identity>(call, stream);
  }
}

bool is_bf16(const CourseCall& call) { return is_of(call.inputs[0], Dtype::bf16); }

}  // namespace

// ---- matmul -------------------------------------------------------------------------------------

const char* supports_mixed_matmul(const CourseCall& call) {
  return call.kernel > 0 ? kOneKernel : nullptr;
}
size_t workspace_of_mixed_matmul(const CourseCall& call) { return factors_of(call).workspace(); }
void run_mixed_matmul(const CourseCall& call, hipStream_t stream) {
  if (elements(call.outputs[0]) == 0) return;
  is_bf16(call) ? run_matmul<gpu::bfloat16>(call, stream) : run_matmul<gpu::half>(call, stream);
}

// ---- linear -------------------------------------------------------------------------------------

const char* supports_mixed_linear(const CourseCall& call) {
  if (call.kernel > 0) return kOneKernel;
  for (const int i : {0, 2})
    if (!is_contiguous(call.inputs[i])) return "x and bias must be row-major without gaps";
  if (!turned(call.inputs[1]).has_columns()) return "w must be stored row by row";
  return nullptr;
}
void run_mixed_linear(const CourseCall& call, hipStream_t stream) {
  if (elements(call.outputs[0]) == 0) return;
  is_bf16(call) ? run_linear<gpu::bfloat16>(call, stream) : run_linear<gpu::half>(call, stream);
}

}  // namespace own
