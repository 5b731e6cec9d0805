// Shape rules.
#include "stage8_framework/02_backends/detail/rules.h"

#include <algorithm>
#include <stdexcept>

#include "stage8_framework/02_backends/detail/checks.h"

namespace framework {

using namespace checks;

namespace {

const Tensor& input(const Call& call, int i) { return call.inputs[i]; }

void require_rank(const Call& call, int i, size_t rank, const char* name) {
  if (input(call, i).rank() != rank)
    refuse(call, std::string(name) + " has rank " + std::to_string(input(call, i).rank()) +
                     ", not " + std::to_string(rank));
}

void require_extent(const Call& call, const char* what, std::int64_t got, std::int64_t want) {
  if (got != want)
    refuse(call,
           std::string(what) + " is " + std::to_string(got) + ", not " + std::to_string(want));
}

Shape broadcast(const Call& call, int first, int end) {
  size_t rank = 0;
  for (int i = first; i < end; ++i) rank = std::max(rank, input(call, i).rank());
  Shape shape = Shape::filled(rank, 1);
  for (int i = first; i < end; ++i) {
    const Shape& other = input(call, i).shape();
    for (size_t d = 0; d < other.rank(); ++d) {
      std::int64_t& extent = shape[rank - other.rank() + d];
      if (other[d] == extent || other[d] == 1) continue;
      if (extent != 1)
        refuse(call, "extents " + std::to_string(extent) + " and " + std::to_string(other[d]) +
                         " do not broadcast");
      extent = other[d];
    }
  }
  return shape;
}

// All axes but the last one, which is there.
Shape without_last(const Call& call, int i) {
  require(call, input(call, i).rank() > 0, "a scalar has no last axis");
  Shape shape = input(call, i).shape();
  shape.erase(shape.rank() - 1);
  return shape;
}
std::int64_t last(const Tensor& t) { return t.shape()[t.rank() - 1]; }

}  // namespace

// ---- Elements -----------------------------------------------------------------------------------

void infer_elementwise(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  // Nearly always all inputs have one shape: nothing is built then.
  bool alike = true;
  for (int i = 1; i < call.input_count; ++i)
    alike = alike && input(call, i).shape() == input(call, 0).shape();
  outputs[0] = {alike ? input(call, 0).shape() : broadcast(call, 0, call.input_count), dtype};
}
void infer_compare(const Call& call, OutputSpec* outputs) {
  infer_elementwise(call, outputs);
  outputs[0].dtype = Dtype::boolean;
}
void infer_select(const Call& call, OutputSpec* outputs) {
  require(call, input(call, 0).dtype() == Dtype::boolean, "the condition is not bool");
  outputs[0] = {broadcast(call, 0, 3), real_type(call, 1)};
}

// ---- Moves --------------------------------------------------------------------------------------

void infer_copy(const Call& call, OutputSpec* outputs) {
  outputs[0] = {input(call, 0).shape(), input(call, 0).dtype()};
}
void infer_cast(const Call& call, OutputSpec* outputs) {
  const std::int64_t dtype = whole(call, 0, 0);
  require(call, dtype <= static_cast<std::int64_t>(Dtype::boolean), "there is no such type");
  outputs[0] = {input(call, 0).shape(), static_cast<Dtype>(dtype)};
}
void infer_fill(const Call& call, OutputSpec* outputs) {
  require(call, call.outputs[0].is_defined(), "the output must be given");
  outputs[0] = {call.outputs[0].shape(), call.outputs[0].dtype()};
}

void infer_gather(const Call& call, OutputSpec* outputs) {
  const Tensor &a = input(call, 0), &ids = input(call, 1);
  require(call, a.rank() > 0, "a scalar has no rows");
  require(call, ids.dtype() == Dtype::i32, "ids must be i32");
  require(call, ids.rank() + a.rank() - 1 <= kMaxRank, "the result would have more than 8 axes");
  Shape shape = ids.shape();
  for (size_t d = 1; d < a.rank(); ++d) shape.insert(shape.rank(), a.shape()[d]);
  outputs[0] = {shape, a.dtype()};
}

// ---- Reductions ---------------------------------------------------------------------------------

void infer_reduction(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  const Shape& shape = input(call, 0).shape();
  const std::int64_t axes = whole(call, 0, 0), keep = whole(call, 1, 0);
  require(call, axes >> shape.rank() == 0, "an axis of the mask is not there");
  Shape left;
  for (size_t d = 0; d < shape.rank(); ++d) {
    const bool is_reduced = axes >> d & 1;
    if (!is_reduced || keep != 0) left.insert(left.rank(), is_reduced ? 1 : shape[d]);
  }
  outputs[0] = {left, dtype};
}
void infer_argmax(const Call& call, OutputSpec* outputs) {
  real_type(call);
  outputs[0] = {without_last(call, 0), Dtype::i32};
  require(call, last(input(call, 0)) > 0, "there is no largest of no elements");
}

// ---- Products -----------------------------------------------------------------------------------

namespace {
// Of a product of inputs 0 and 1, which have one type: f32 where that is bf16 or f16.
Dtype type_of_product(const Call& call) {
  const Dtype dtype = input(call, 0).dtype();
  if (dtype != Dtype::bf16 && dtype != Dtype::f16) return real_type(call, 0, 2);
  require(call, input(call, 1).dtype() == dtype, "the types differ");
  return Dtype::f32;
}
}  // namespace

void infer_matmul(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = type_of_product(call);
  const Tensor &a = input(call, 0), &b = input(call, 1);
  require(call, a.rank() >= 2 && b.rank() >= 2, "both must have rank 2 or more");
  const std::int64_t inner = last(a), other = b.shape()[b.rank() - 2];
  if (inner != other)
    refuse(call,
           "inner extents " + std::to_string(inner) + " and " + std::to_string(other) + " differ");
  Shape shape;
  const size_t rank = std::max(a.rank(), b.rank());
  for (size_t d = 0; d + 2 < rank; ++d) {
    const auto of = [&](const Tensor& t) {
      return d + t.rank() < rank ? std::int64_t{1} : t.shape()[d + t.rank() - rank];
    };
    const std::int64_t left = of(a), right = of(b);
    if (left != right && left != 1 && right != 1)
      refuse(call, "extents " + std::to_string(left) + " and " + std::to_string(right) +
                       " do not broadcast");
    shape.insert(d, left == 1 ? right : left);
  }
  shape.insert(shape.rank(), a.shape()[a.rank() - 2]);
  shape.insert(shape.rank(), last(b));
  outputs[0] = {shape, dtype};
}
namespace {
// The shape of x w^T + bias, of which x is input `first`.
Shape shape_of_linear(const Call& call, int first) {
  const Tensor& w = input(call, first + 1);
  Shape shape = without_last(call, first);
  require_rank(call, first + 1, 2, "w");
  require_extent(call, "w's second extent", w.shape()[1], last(input(call, first)));
  if (input(call, first + 2).is_defined()) require_shape(call, first + 2, "bias", {w.shape()[0]});
  shape.insert(shape.rank(), w.shape()[0]);
  return shape;
}
}  // namespace

void infer_linear(const Call& call, OutputSpec* outputs) {
  outputs[0] = {shape_of_linear(call, 0), type_of_product(call)};
  const Tensor& bias = input(call, 2);
  if (bias.is_defined() && bias.dtype() != outputs[0].dtype)
    refuse(call, std::string("bias must be ") + name_of(outputs[0].dtype));
  require(call, whole(call, 0, 0) <= 4, "there is no such activation");
}
void infer_linear_grad_w(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  const Shape rows = without_last(call, 0);
  require(call, rows == without_last(call, 1), "grad_y and x have other rows");
  const std::int64_t out = last(input(call, 0)), in = last(input(call, 1));
  outputs[0] = {{out, in}, dtype};
  outputs[1] = {{out}, dtype};
}
void infer_gelu_linear_backward(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  const Shape shape = shape_of_linear(call, 1);
  require_shape(call, 0, "grad_y", shape);
  outputs[0] = {shape, dtype};
}

// ---- Rows and losses ----------------------------------------------------------------------------

void infer_rows(const Call& call, OutputSpec* outputs) {
  outputs[0] = {input(call, 0).shape(), real_type(call)};
  without_last(call, 0);
}
void infer_rows_backward(const Call& call, OutputSpec* outputs) {
  infer_rows(call, outputs);
  require_shape(call, 1, "y", input(call, 0).shape());
}
void infer_squared_error(const Call& call, OutputSpec* outputs) {
  outputs[0] = {{}, real_type(call)};
  require_shape(call, 1, "t", input(call, 0).shape());
}
void infer_squared_error_backward(const Call& call, OutputSpec* outputs) {
  outputs[0] = {input(call, 1).shape(), real_type(call)};
  require_shape(call, 0, "grad", {});
  require_shape(call, 2, "t", input(call, 1).shape());
}

namespace {
void require_labels(const Call& call, int logits) {
  require(call, input(call, logits + 1).dtype() == Dtype::i32, "labels must be i32");
  require_shape(call, logits + 1, "labels", without_last(call, logits));
}
}  // namespace

void infer_cross_entropy(const Call& call, OutputSpec* outputs) {
  outputs[0] = {{}, real_type(call, 0, 1)};
  require_labels(call, 0);
}
void infer_cross_entropy_backward(const Call& call, OutputSpec* outputs) {
  outputs[0] = {input(call, 1).shape(), real_type(call, 0, 2)};
  require_shape(call, 0, "grad", {});
  require_labels(call, 1);
}

// ---- Images -------------------------------------------------------------------------------------

namespace {

// How many windows fit along an axis.
std::int64_t windows(const Call& call, std::int64_t extent, std::int64_t window,
                     std::int64_t stride, std::int64_t pad) {
  if (window < 1 || extent + 2 * pad < window)
    refuse(call, "a window of " + std::to_string(window) + " does not fit " +
                     std::to_string(extent) + " with a padding of " + std::to_string(pad));
  return (extent + 2 * pad - window) / stride + 1;
}

// The maps of windows over images of `height` x `width`; attributes from `first` on: stride_y,
// stride_x, pad_y, pad_x.
struct Maps {
  std::int64_t rows, cols;
};
Maps maps_of(const Call& call, int first, std::int64_t height, std::int64_t width,
             std::int64_t window_y, std::int64_t window_x) {
  return {windows(call, height, window_y, whole(call, first, 1), whole(call, first + 2, 0)),
          windows(call, width, window_x, whole(call, first + 1, 1), whole(call, first + 3, 0))};
}

}  // namespace

void infer_conv2d(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  require_rank(call, 0, 4, "x"), require_rank(call, 1, 4, "w");
  const Shape &x = input(call, 0).shape(), &w = input(call, 1).shape();
  require_extent(call, "w's second extent", w[1], x[1]);
  if (input(call, 2).is_defined()) require_shape(call, 2, "bias", {w[0]});
  const Maps y = maps_of(call, 0, x[2], x[3], w[2], w[3]);
  outputs[0] = {{x[0], w[0], y.rows, y.cols}, dtype};
}
void infer_conv2d_grad_x(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  require_rank(call, 0, 4, "grad_y"), require_rank(call, 1, 4, "w");
  const Shape &y = input(call, 0).shape(), &w = input(call, 1).shape();
  const std::int64_t height = whole(call, 4, 0), width = whole(call, 5, 0);
  const Maps maps = maps_of(call, 0, height, width, w[2], w[3]);
  require_shape(call, 0, "grad_y", {y[0], w[0], maps.rows, maps.cols});
  outputs[0] = {{y[0], w[1], height, width}, dtype};
}
void infer_conv2d_grad_w(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  require_rank(call, 0, 4, "grad_y"), require_rank(call, 1, 4, "x");
  const Shape &y = input(call, 0).shape(), &x = input(call, 1).shape();
  const std::int64_t window_y = whole(call, 4, 1), window_x = whole(call, 5, 1);
  const Maps maps = maps_of(call, 0, x[2], x[3], window_y, window_x);
  require_shape(call, 0, "grad_y", {x[0], y[1], maps.rows, maps.cols});
  outputs[0] = {{y[1], x[1], window_y, window_x}, dtype};
  outputs[1] = {{y[1]}, dtype};
}
void infer_maxpool2d(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  require_rank(call, 0, 4, "x");
  const Shape& x = input(call, 0).shape();
  const std::int64_t window_y = whole(call, 0, 1), window_x = whole(call, 1, 1);
  const Maps y = maps_of(call, 2, x[2], x[3], window_y, window_x);
  require(call, whole(call, 4, 0) < window_y && whole(call, 5, 0) < window_x,
          "the padding must be smaller than the window");
  require(call, window_y * window_x <= 65536, "a window has 65536 cells at most");
  outputs[0] = {{x[0], x[1], y.rows, y.cols}, dtype};
  outputs[1] = {outputs[0].shape, Dtype::i32};
}
void infer_maxpool2d_backward(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call, 0, 1);
  require_rank(call, 0, 4, "grad_y");
  require(call, input(call, 1).dtype() == Dtype::i32, "argmax must be i32");
  const Shape& y = input(call, 0).shape();
  require_shape(call, 1, "argmax", y);
  const std::int64_t height = whole(call, 6, 0), width = whole(call, 7, 0);
  const Maps maps = maps_of(call, 2, height, width, whole(call, 0, 1), whole(call, 1, 1));
  require_shape(call, 0, "grad_y", {y[0], y[1], maps.rows, maps.cols});
  outputs[0] = {{y[0], y[1], height, width}, dtype};
}

// ---- Transformers -------------------------------------------------------------------------------

void infer_embedding(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call, 0, 1);
  require_rank(call, 0, 2, "table");
  require(call, input(call, 1).dtype() == Dtype::i32, "ids must be i32");
  Shape shape = input(call, 1).shape();
  shape.insert(shape.rank(), last(input(call, 0)));
  outputs[0] = {shape, dtype};
}
void infer_embedding_backward(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call, 0, 1);
  require(call, input(call, 1).dtype() == Dtype::i32, "ids must be i32");
  require_shape(call, 1, "ids", without_last(call, 0));
  outputs[0] = {{whole(call, 0, 0), last(input(call, 0))}, dtype};
}
void infer_layernorm(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  const Shape rows = without_last(call, 0);
  const Shape columns{last(input(call, 0))};
  const bool is_of_sum = call.input_count > 3;  // x + residual, which is the last output
  const int gain = is_of_sum ? 2 : 1;
  require(call, columns[0] > 0, "a row has no elements");
  if (is_of_sum) require_shape(call, 1, "residual", input(call, 0).shape());
  require_shape(call, gain, "gain", columns), require_shape(call, gain + 1, "bias", columns);
  require(call, call.attributes[0] >= 0, "eps must not be negative");
  outputs[0] = {input(call, 0).shape(), dtype};
  outputs[1] = outputs[2] = {rows, dtype};
  if (is_of_sum) outputs[3] = outputs[0];
}
void infer_layernorm_backward(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = real_type(call);
  const Shape rows = without_last(call, 1);
  const Shape columns{last(input(call, 1))};
  require(call, columns[0] > 0, "a row has no elements");
  require_shape(call, 0, "grad_y", input(call, 1).shape());
  require_shape(call, 2, "gain", columns);
  require_shape(call, 3, "mean", rows), require_shape(call, 4, "rstd", rows);
  if (input(call, 5).is_defined()) require_shape(call, 5, "grad_residual", input(call, 1).shape());
  outputs[0] = {input(call, 1).shape(), dtype};
  outputs[1] = outputs[2] = {columns, dtype};
}

namespace {
// q, k and v from input `first` on.
void require_heads(const Call& call, int first) {
  require_rank(call, first, 4, "q"), require_rank(call, first + 1, 4, "k");
  const Shape &q = input(call, first).shape(), &k = input(call, first + 1).shape();
  require_shape(call, first + 1, "k", {q[0], q[1], k[2], q[3]});
  require_shape(call, first + 2, "v", k);
  require(call, call.attributes[1] > 0, "scale must be above 0");
}
// The type of the inputs before `end`, which are rows of heads, all of one type.
Dtype type_of_heads(const Call& call, int end) {
  const Dtype dtype = input(call, 0).dtype();
  if (dtype != Dtype::bf16) return real_type(call);
  for (int i = 1; i < end; ++i) require(call, input(call, i).dtype() == dtype, "the types differ");
  return dtype;
}
}  // namespace

void infer_attention(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = type_of_heads(call, 3);
  require_heads(call, 0);
  const Shape& q = input(call, 0).shape();
  outputs[0] = {q, dtype};
  outputs[1] = {{q[0], q[1], q[2]}, dtype == Dtype::bf16 ? Dtype::f32 : dtype};
}
void infer_attention_backward(const Call& call, OutputSpec* outputs) {
  const Dtype dtype = type_of_heads(call, 5);
  if (dtype == Dtype::bf16) require(call, input(call, 5).dtype() == Dtype::f32, "lse must be f32");
  require_heads(call, 1);
  const Shape& q = input(call, 1).shape();
  require_shape(call, 0, "grad_out", q), require_shape(call, 4, "out", q);
  require_shape(call, 5, "lse", {q[0], q[1], q[2]});
  outputs[0] = {q, dtype};
  outputs[1] = outputs[2] = {input(call, 2).shape(), dtype};
}

}  // namespace framework
