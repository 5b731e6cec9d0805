// Products of matrices, by 2.3 and 4.1.
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/few_results.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/01_dense_backward/slices.h"
#include "stage8_framework/02_backends/own/own.h"
#include "stage8_framework/02_backends/own/products_mixed.h"
#include "stage8_framework/02_backends/own/reductions.h"

namespace own {
namespace {

// ---- matmul: y[..., m, n] = sum over k of a[..., m, k] b[..., k, n] -----------------------------

// The distance between two matrices of a batch, where one distance can say it: y's leading axes
// counted as one. A tensor that has fewer of them, or one of extent 1, is repeated.
bool batch_stride(const CourseTensor& t, const CourseTensor& y, size_t* stride) {
  std::int64_t step = 0, next = 0;  // of the batch, and what the next axis must be a multiple of
  bool is_first = true;
  for (int axis = y.rank - 3, own = t.rank - 3; axis >= 0; --axis, --own) {
    if (y.extent[axis] == 1) continue;
    const std::int64_t distance = own < 0 || t.extent[own] == 1 ? 0 : t.stride[own];
    if (is_first) step = next = distance, is_first = false;
    if (distance < 0 || distance != next) return false;
    next *= y.extent[axis];
  }
  *stride = static_cast<size_t>(step);
  return true;
}

const char* supports_matmul(const CourseCall& call) {
  if (is_mixed(call)) return supports_mixed_matmul(call);
  if (const char* reason = unless_f32(call)) return reason;
  const CourseTensor &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  if (elements(y) == 0) return nullptr;
  size_t stride;
  if (!batch_stride(a, y, &stride) || !batch_stride(b, y, &stride))
    return "the batch must have one stride";
  Matrix left, right;
  if (!to_matrix(a, &left) || !to_matrix(b, &right))
    return "rows or columns must be neighbours in memory";
  if (left.is_transposed && right.is_transposed) return "both matrices are transposed";
  const bool is_plain = is_contiguous(a) && is_contiguous(b) && y.rank == 2;
  const std::int32_t kernel = call.kernel;
  if (kernel > 0 && gemm::kVersions[kernel - 1].launch.contiguous != nullptr && !is_plain)
    return "this kernel takes two row-major matrices without gaps";
  return nullptr;
}

// Of two matrices of f32, where y has elements.
gemm::Product product_of(const CourseCall& call) {
  const CourseTensor &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const size_t M = extent(y, -2), N = extent(y, -1), K = extent(a, -1);
  Matrix left, right;
  to_matrix(a, &left), to_matrix(b, &right);
  gemm::Product p = gemm::contiguous(floats(y), floats(a), floats(b), M, N, K);
  p.layout = left.is_transposed    ? gemm::Layout::TN
             : right.is_transposed ? gemm::Layout::NT
                                   : gemm::Layout::NN;
  p.lda = left.ld, p.ldb = right.ld;
  p.batch = elements(y) / (M * N), p.stride_c = M * N;
  batch_stride(a, y, &p.stride_a), batch_stride(b, y, &p.stride_b);
  return p;
}

// A^T B of whole arrays: the gradient of a layer's weights, a sum over the rows of both. Where the
// result is small, 5.1 cuts a long sum into slices. Where it is smaller still and the sum is not
// too long for a block, 2.3 needs no second launch.
bool is_sum_over_samples(const gemm::Product& p) {
  if (gemm::has_few_long_sums(p)) return false;
  return p.layout == gemm::Layout::TN && p.batch == 1 && p.lda == p.M && p.ldb == p.N &&
         dense_backward::count_slices(p.K, p.N, p.M) > 1;
}
// Slices alone: the launches below use nothing else of 5.1's workspace.
dense_backward::Workspace slices_in(void* memory, size_t batch, size_t in, size_t out) {
  dense_backward::Workspace workspace;
  workspace.slices_of_gradients = {static_cast<float*>(memory),
                                   dense_backward::elements_of_slices(batch, in, out)};
  return workspace;
}
void run_in_slices(const gemm::Product& p, void* memory, hipStream_t stream) {
  dense_backward::Workspace workspace = slices_in(memory, p.K, p.N, p.M);
  dense_backward::launch_grad_w_in_slices({p.c, nullptr, nullptr}, p.a, p.b, p.K,
                                          {p.N, p.M, nullptr, nullptr}, 0, workspace, stream);
}

size_t workspace_of_matmul(const CourseCall& call) {
  if (is_mixed(call)) return workspace_of_mixed_matmul(call);
  if (call.kernel > 0 || elements(call.outputs[0]) == 0) return 0;
  const gemm::Product p = product_of(call);
  if (!is_sum_over_samples(p)) return 0;
  return dense_backward::elements_of_slices(p.K, p.N, p.M) * sizeof(float);
}

void run_matmul(const CourseCall& call, hipStream_t stream) {
  if (is_mixed(call)) return run_mixed_matmul(call, stream);
  if (elements(call.outputs[0]) == 0) return;
  const gemm::Product p = product_of(call);
  if (call.kernel == 0 && is_sum_over_samples(p)) return run_in_slices(p, call.workspace, stream);
  if (call.kernel == 0) return gemm::best(p, stream);
  const gemm::Launch& launch = gemm::kVersions[call.kernel - 1].launch;
  if (launch.general != nullptr)
    launch.general(p, stream);
  else
    launch.contiguous(p.c, p.a, p.b, p.M, p.N, p.K, stream);
}

// ---- linear: y[..., n] = f(sum over k of x[..., k] w[n, k] + bias[n]) ---------------------------

dense::Layer layer_of(const CourseCall& call) {
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1], &bias = call.inputs[2];
  return {columns(x), columns(call.outputs[0]), floats(w), floats(bias)};
}

// With a bias and one of the functions that 4.1 is compiled for, one launch.
template <class F>
void run_fused(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
  dense::forward<F>(floats(y), floats(x), rows(y), layer_of(call), stream);
}

// The same by a version of 4.1, if one is asked for.
template <class F>
void run_dense(const CourseCall& call, hipStream_t stream) {
  if (call.kernel == 0) return run_fused<F>(call, stream);
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
  dense::kVersions<F>[call.kernel - 1].launch(floats(y), floats(x), rows(y), layer_of(call),
                                              {static_cast<float*>(call.workspace)}, stream);
}

// Product, bias and function one after the other.
template <class F>
void run_parts(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1], &bias = call.inputs[2];
  const CourseTensor& y = call.outputs[0];
  const size_t batch = rows(y), in = columns(x), out = columns(y);
  gemm::best(gemm::Layout::NT, batch, out, in, 1, floats(x), in, floats(w), in, 0, floats(y), out,
             stream);
  if (!is_absent(bias))
    matrix_activations::launch_bias(floats(y), floats(y), floats(bias), batch, out, stream);
  if (count_of(call, 0) != none)
    activations::launch_forward_vectorized<F>(floats(y), floats(y), elements(y), stream);
}

const char* supports_linear(const CourseCall& call) {
  if (is_mixed(call)) return supports_mixed_linear(call);
  if (const char* reason = unless_plain(call)) return reason;
  if (call.kernel > 0 && (is_absent(call.inputs[2]) || count_of(call, 0) == tanh))
    return "the kernels of 4.1 take a bias, and no tanh";
  return nullptr;
}

void run_linear(const CourseCall& call, hipStream_t stream) {
  if (is_mixed(call)) return run_mixed_linear(call, stream);
  if (elements(call.outputs[0]) == 0) return;
  const bool has_bias = !is_absent(call.inputs[2]);
  switch (count_of(call, 0)) {
    case relu:
      return has_bias ? run_dense<activations::Relu>(call, stream)
                      : run_parts<activations::Relu>(call, stream);
    case sigmoid:
      return has_bias ? run_dense<activations::Sigmoid>(call, stream)
                      : run_parts<activations::Sigmoid>(call, stream);
    case tanh:
      return has_bias ? run_fused<activations::Tanh>(call, stream)
                      : run_parts<activations::Tanh>(call, stream);
    case gelu:
      return has_bias ? run_dense<activations::GeluTanh>(call, stream)
                      : run_parts<activations::GeluTanh>(call, stream);
    default:
      return has_bias ? run_dense<dense::Linear>(call, stream)
                      : run_parts<activations::Relu>(call, stream);
  }
}

// ---- The gradients of linear --------------------------------------------------------------------

// The bias's, where a layer has no inputs and so no weights: a sum over all axes but the last.
ReductionTask sum_of_rows(const CourseTensor& grad_y) {
  return task_of(grad_y, (1u << (grad_y.rank - 1)) - 1);
}
size_t workspace_of_linear_grad_w(const CourseCall& call) {
  const CourseTensor &grad_y = call.inputs[0], &x = call.inputs[1];
  const size_t batch = rows(grad_y), in = columns(x), out = columns(grad_y);
  if (in == 0) return sum_of_rows(grad_y).part_bytes();
  return dense_backward::elements_of_slices(batch, in, out) * sizeof(float);
}
// By 5.1: grad_w is a product, grad_y^T x, whose tiles of grad_y make the bias's, too.
void run_linear_grad_w(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &x = call.inputs[1];
  const size_t batch = rows(grad_y), in = columns(x), out = columns(grad_y);
  float *const grad_w = floats(call.outputs[0]), *const grad_bias = floats(call.outputs[1]);
  if (out == 0) return;
  if (in == 0)
    return launch_reduction(Reduction::sum, sum_of_rows(grad_y), grad_bias, floats(grad_y),
                            static_cast<float*>(call.workspace), stream);
  dense_backward::Workspace workspace = slices_in(call.workspace, batch, in, out);
  dense_backward::launch_grad_parameters({grad_w, grad_bias, nullptr}, floats(grad_y), floats(x),
                                         batch, {in, out, nullptr, nullptr}, 0, workspace, stream);
}

// The epilogue of a layer's product that goes back through gelu: its sums are not stored.
struct TimesSlope {
  const float* bias;  // may be null
  const float* grad_y;
  size_t columns;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    const float x = bias == nullptr ? sum : sum + bias[col];
    return grad_y[row * columns + col] * activations::GeluTanh{}.derivative(x);
  }
};
void run_gelu_linear_backward(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &x = call.inputs[1], &w = call.inputs[2];
  if (elements(grad_y) == 0) return;
  gemm::Product p = gemm::contiguous(floats(call.outputs[0]), floats(x), floats(w), rows(grad_y),
                                     columns(grad_y), columns(x));
  p.layout = gemm::Layout::NT, p.ldb = columns(x);
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(
      p, TimesSlope{floats(call.inputs[3]), floats(grad_y), columns(grad_y)}, stream);
}

size_t workspace_of_linear(const CourseCall& call) {
  if (is_mixed(call)) return 0;
  return call.kernel == 0 ? 0 : gemv::kMaxPartials * sizeof(float);
}

}  // namespace

std::vector<Operation> products() {
  return {{"matmul", supports_matmul, run_matmul, name_of<gemm::kVersions>, workspace_of_matmul},
          {"linear", supports_linear, run_linear, name_of<dense::kVersions<dense::Linear>>,
           workspace_of_linear},
          {"linear_grad_w", unless_plain, run_linear_grad_w, nullptr, workspace_of_linear_grad_w},
          {"gelu_linear_backward", unless_plain, run_gelu_linear_backward}};
}

}  // namespace own
