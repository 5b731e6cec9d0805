// The table of rules. A rule that its formula does not explain has it in a comment: g is the
// gradient of the result y, and what is added to an input's gradient stands on the right.
#include "stage8_framework/03_autograd/rules.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/detail/layer_rules.h"

namespace framework {

Tensor scalar_like(const Tensor& like, double value) {
  return full(like.device(), {}, value, like.dtype());
}
Tensor scaled(const Tensor& a, double factor) { return mul(a, scalar_like(a, factor)); }

Tensor unbroadcast(const Tensor& grad, const Shape& shape, const Tensor& home) {
  if (grad.shape() == shape) return grad;
  const size_t in_front = grad.rank() - shape.rank();
  Shape axes, left;
  for (size_t d = 0; d < grad.rank(); ++d)
    if (d < in_front || shape[d - in_front] != grad.shape()[d])
      axes.insert(axes.rank(), static_cast<std::int64_t>(d));
    else
      left.insert(left.rank(), grad.shape()[d]);
  return sum(grad, axes, false, home.is_defined() ? home.reshape(left) : home).reshape(shape);
}

namespace {

// ---- Of one element -----------------------------------------------------------------------------

void neg_rule(WayBack& b) { b.give(0, neg(b.grad())); }
void abs_rule(WayBack& b) {  // g sign(a), 0 at 0
  const Tensor &g = b.grad(), &a = b.input(0), zero = scalar_like(g, 0);
  b.give(0, select(less(zero, a), g, select(less(a, zero), neg(g), zero)));
}
void square_rule(WayBack& b) { b.give(0, b.grad() * (b.input(0) + b.input(0))); }
void sqrt_rule(WayBack& b) { b.give(0, b.grad() / (b.output() + b.output())); }
void rsqrt_rule(WayBack& b) {  // -g y^3 / 2
  b.give(0, b.grad() * scaled(b.output() * square(b.output()), -0.5));
}
void reciprocal_rule(WayBack& b) { b.give(0, neg(b.grad() * square(b.output()))); }
void exp_rule(WayBack& b) { b.give(0, b.grad() * b.output()); }
void log_rule(WayBack& b) { b.give(0, b.grad() / b.input(0)); }
void tanh_rule(WayBack& b) { b.give(0, tanh_backward(b.grad(), b.output())); }
void sigmoid_rule(WayBack& b) { b.give(0, sigmoid_backward(b.grad(), b.output())); }
// By the output: it is above 0 where the input is, and whoever reads it next saves it, too.
void relu_rule(WayBack& b) { b.give(0, relu_backward(b.grad(), b.output())); }
void gelu_rule(WayBack& b) { b.give(0, gelu_backward(b.grad(), b.input(0))); }

// ---- Of two and three ---------------------------------------------------------------------------

void add_rule(WayBack& b) {
  if (b.wants(0)) b.give(0, b.grad());
  if (b.wants(1)) b.give(1, b.grad());
}
void sub_rule(WayBack& b) {
  if (b.wants(0)) b.give(0, b.grad());
  if (b.wants(1)) b.give(1, neg(b.grad()));
}
void mul_rule(WayBack& b) {
  if (b.wants(0)) b.give(0, b.grad() * b.input(1));
  if (b.wants(1)) b.give(1, b.grad() * b.input(0));
}
void div_rule(WayBack& b) {  // by b: -g a / b^2 = -g y / b
  if (b.wants(0)) b.give(0, b.grad() / b.input(1));
  if (b.wants(1)) b.give(1, neg(b.grad() * b.output() / b.input(1)));
}
// g where input i is the result; half of it where both are.
void give_to_winner(WayBack& b, int i, const Tensor& smaller, const Tensor& larger) {
  if (!b.wants(i)) return;
  const Tensor ties =
      select(equal(smaller, larger), scaled(b.grad(), 0.5), scalar_like(b.grad(), 0));
  b.give(i, select(less(smaller, larger), b.grad(), ties));
}
void maximum_rule(WayBack& b) {
  give_to_winner(b, 0, b.input(1), b.input(0));
  give_to_winner(b, 1, b.input(0), b.input(1));
}
void minimum_rule(WayBack& b) {
  give_to_winner(b, 0, b.input(0), b.input(1));
  give_to_winner(b, 1, b.input(1), b.input(0));
}
void pow_rule(WayBack& b) {
  const Tensor &g = b.grad(), &a = b.input(0), &e = b.input(1);
  const Tensor zero = scalar_like(g, 0), one = scalar_like(g, 1);
  if (b.wants(0))  // g e a^(e - 1), and 0 for e = 0 even if a is 0
    b.give(0, select(equal(e, zero), zero, g * e * pow(a, e - one)));
  if (b.wants(1)) {  // g y log a; 0^e is flat for e >= 0
    const Tensor base = select(equal(a, zero), select(less(e, zero), a, one), a);
    b.give(1, g * b.output() * log(base));
  }
}
void select_rule(WayBack& b) {
  const Tensor zero = scalar_like(b.grad(), 0);
  if (b.wants(1)) b.give(1, select(b.input(0), b.grad(), zero));
  if (b.wants(2)) b.give(2, select(b.input(0), zero, b.grad()));
}

// ---- Moves and reductions -----------------------------------------------------------------------

// Of another type, or on another device.
void cast_rule(WayBack& b) { b.give(0, to(b.grad().to(b.grad_dtype()), b.device())); }

// The axes of the attribute, and a reduction's result with an extent of 1 for each.
Shape axes_of(const WayBack& b) {
  Shape axes;
  for (size_t d = 0; d < b.shape(0).rank(); ++d)
    if ((b.whole(0) >> d & 1) != 0) axes.insert(axes.rank(), static_cast<std::int64_t>(d));
  return axes;
}
Tensor with_axes(const WayBack& b, const Tensor& reduced) {
  Shape shape = b.shape(0);
  for (const std::int64_t axis : axes_of(b)) shape[static_cast<size_t>(axis)] = 1;
  return reshaped(reduced, shape);
}
void sum_rule(WayBack& b) { b.give(0, with_axes(b, b.grad()).expand(b.shape(0))); }
void mean_rule(WayBack& b) {
  double count = 1;
  for (const std::int64_t axis : axes_of(b))
    count *= static_cast<double>(b.shape(0)[static_cast<size_t>(axis)]);
  b.give(0, with_axes(b, scaled(b.grad(), 1 / count)).expand(b.shape(0)));
}
void max_rule(WayBack& b) {  // in equal parts to all that are the largest
  const Shape axes = axes_of(b);
  const Tensor g = with_axes(b, b.grad());
  const Tensor is_largest = equal(b.input(0), with_axes(b, b.output()));
  const Tensor ones = cast(is_largest, g.dtype());
  const Tensor count = axes.rank() == 0 ? ones : sum(ones, axes, true);
  b.give(0, select(is_largest, g / count, scalar_like(g, 0)));
}

// ---- The table ----------------------------------------------------------------------------------

constexpr std::uint32_t A = input_bit(0), B = input_bit(1), C = input_bit(2);
constexpr std::uint32_t Y = output_bit(0), Y1 = output_bit(1), Y2 = output_bit(2),
                        Y3 = output_bit(3);

constexpr Rule flat(const char* name, const char* reason = "its result is flat") {
  return {name, nullptr, {}, reason, true};
}
constexpr Rule once(const char* name) {
  return {name, nullptr, {}, "being a part of one: a gradient is differentiated once"};
}

// clang-format off
constexpr Rule kRules[] = {
    {"neg", neg_rule, {}, ""},
    {"abs", abs_rule, {A}, ""},
    {"square", square_rule, {A}, ""},
    {"sqrt", sqrt_rule, {Y}, ""},
    {"rsqrt", rsqrt_rule, {Y}, ""},
    {"reciprocal", reciprocal_rule, {Y}, ""},
    {"exp", exp_rule, {Y}, ""},
    {"log", log_rule, {A}, ""},
    {"tanh", tanh_rule, {Y}, ""},
    {"sigmoid", sigmoid_rule, {Y}, ""},
    {"relu", relu_rule, {Y}, ""},
    {"gelu", gelu_rule, {A}, ""},
    {"add", add_rule, {}, ""},
    {"sub", sub_rule, {}, ""},
    {"mul", mul_rule, {B, A}, ""},
    {"div", div_rule, {B, B | Y}, ""},
    {"maximum", maximum_rule, {A | B, A | B}, ""},
    {"minimum", minimum_rule, {A | B, A | B}, ""},
    {"pow", pow_rule, {A | B, A | B | Y}, ""},
    flat("equal"),
    flat("less"),
    flat("less_equal"),
    {"select", select_rule, {0, A, A}, ""},
    {"copy", cast_rule, {}, ""},
    {"cast", cast_rule, {}, ""},
    flat("fill", "it has no inputs"),
    {"gather", nullptr, {}, "for it fetches data and embedding passes gradients on"},
    {"sum", sum_rule, {}, ""},
    {"mean", mean_rule, {}, ""},
    {"max", max_rule, {A | Y}, ""},
    flat("argmax"),
    {"matmul", matmul_rule, {B, A}, ""},
    {"linear", linear_rule, {B, A}, "", false, needs_of_activation},
    once("linear_grad_w"),
    once("gelu_linear_backward"),
    {"softmax", softmax_rule, {Y}, ""},
    {"log_softmax", log_softmax_rule, {Y}, ""},
    once("softmax_backward"),
    {"squared_error", squared_error_rule, {A | B, A | B}, ""},
    once("squared_error_backward"),
    {"cross_entropy", cross_entropy_rule, {A | B}, ""},
    once("cross_entropy_backward"),
    once("relu_backward"),
    once("gelu_backward"),
    once("sigmoid_backward"),
    once("tanh_backward"),
    {"conv2d", conv2d_rule, {B, A}, ""},
    once("conv2d_grad_x"),
    once("conv2d_grad_w"),
    {"maxpool2d", maxpool2d_rule, {Y1}, ""},
    once("maxpool2d_backward"),
    {"embedding", embedding_rule, {B}, ""},
    once("embedding_backward"),
    {"layernorm", layernorm_rule, {A | B | Y1 | Y2, A | B | Y1 | Y2, A | B | Y1 | Y2}, ""},
    {"add_layernorm", add_layernorm_rule, {Y1 | Y2 | Y3 | C, Y1 | Y2 | Y3 | C, Y1 | Y2 | Y3 | C, Y1 | Y2 | Y3 | C}, ""},
    once("layernorm_backward"),
    {"attention", attention_rule, {A | B | C | Y | Y1, A | B | C | Y | Y1, A | B | C | Y | Y1}, ""},
    once("attention_backward"),
    {"optimizer_step", nullptr, {}, "for it works in place, on what has its gradient already"},
    flat("dropout_mask", "it has no inputs"),
    flat("count_up", "it has no inputs"),
};
// clang-format on

// ---- Views --------------------------------------------------------------------------------------

void reshape_rule(WayBack& b) { b.give(0, reshaped(b.grad(), b.shape(0))); }
void permute_rule(WayBack& b) {
  const size_t rank = b.shape(0).rank();
  Shape inverse = Shape::filled(rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    const std::int64_t axis = b.whole(static_cast<int>(d));
    inverse[axis < 0 ? rank - static_cast<size_t>(-axis) : static_cast<size_t>(axis)] =
        static_cast<std::int64_t>(d);
  }
  b.give(0, b.grad().permute(inverse));
}
void transpose_rule(WayBack& b) { b.give(0, b.grad().transpose(b.whole(0), b.whole(1))); }
// Zeros of the input's shape, and the gradient where `part` sees them.
template <class Part>
void give_part(WayBack& b, Part part) {
  const Tensor all = full(b.grad().device(), b.shape(0), 0, b.grad().dtype());
  part(all).copy_from(b.grad());
  b.give(0, all);
}
void slice_rule(WayBack& b) {
  give_part(b, [&](const Tensor& all) {
    return all.slice(b.whole(0), b.whole(1), b.whole(2), b.whole(3));
  });
}
void select_index_rule(WayBack& b) {
  give_part(b, [&](const Tensor& all) { return all.select(b.whole(0), b.whole(1)); });
}
void expand_rule(WayBack& b) { b.give(0, b.grad()); }  // give() sums
// The gradients of an unbind() as one tensor, if they lie at equal distances in one storage and
// have come for every part; else undefined.
Tensor as_one(const WayBack& b, std::int64_t axis, std::int64_t count) {
  if (count < 2 || !b.has_grad(0)) return {};
  const Layout& first = b.grad(0).layout();
  std::int64_t distance = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    const int output = static_cast<int>(i);
    if (!b.has_grad(output) || !b.grad(output).shares_storage(b.grad(0))) return {};
    const Layout& part = b.grad(output).layout();
    if (i == 1) distance = part.offset - first.offset;
    if (!(part.strides == first.strides) || part.offset != first.offset + i * distance) return {};
  }
  Layout all = first;
  all.shape.insert(static_cast<size_t>(axis), count);
  all.strides.insert(static_cast<size_t>(axis), distance);
  return b.grad(0).view(all);
}
void unbind_rule(WayBack& b) {  // each part's gradient, 0 where none has come
  const std::int64_t axis = b.whole(0), count = b.shape(0)[static_cast<size_t>(axis)];
  if (const Tensor one = as_one(b, axis, count); one.is_defined()) return b.give(0, one);
  const Tensor all = Tensor::empty(b.device(), b.shape(0), b.grad_dtype());
  for (std::int64_t i = 0; i < count; ++i) {
    const int output = static_cast<int>(i);
    all.select(axis, i).copy_from(b.has_grad(output) ? b.grad(output) : scalar_like(all, 0));
  }
  b.give(0, all);
}

constexpr Rule kViewRules[] = {
    // as Derivation::Kind counts
    {"reshape", reshape_rule, {}, ""},     {"permute", permute_rule, {}, ""},
    {"transpose", transpose_rule, {}, ""}, {"slice", slice_rule, {}, ""},
    {"select", select_index_rule, {}, ""}, {"expand", expand_rule, {}, ""},
    {"copy", cast_rule, {}, ""},           {"unbind", unbind_rule, {}, ""},
};

// The rules in the order of kOps.
std::array<const Rule*, 128> rules_by_row() {
  std::array<const Rule*, 128> rows{};
  for (const Rule& rule : kRules) rows[static_cast<size_t>(row_of(op_named(rule.name)))] = &rule;
  return rows;
}

}  // namespace

int rule_count() { return static_cast<int>(std::size(kRules)); }

const Rule& rule_of(const Op& op) {
  static const std::array<const Rule*, 128> rows = rules_by_row();
  return *rows[static_cast<size_t>(row_of(op))];
}
const Rule& rule_of(Derivation::Kind kind) { return kViewRules[kind]; }

}  // namespace framework
