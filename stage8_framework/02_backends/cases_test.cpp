// The ingredients of every operation of kOps, for walk_test.cpp.
#include "stage8_framework/02_backends/cases_for_tests.h"

#include <map>

namespace backends_test {
namespace {

using Cook = Ingredients (*)(Maker&, Arrangement, const Backend&);

// ---- Elementwise operations ---------------------------------------------------------------------

// A shape of the extents, of rank 0 or 1 where few axes are asked for.
Shape any_shape(Maker& make, Arrangement arrangement) {
  if (arrangement == Arrangement::other_rank && !make.odd()) return {};
  if (arrangement == Arrangement::ones && make.odd()) return {1, 5, 1};
  return make.matrix();
}
// A shape that is broadcast to the other: without its first axis, or of one element there.
Shape narrower(const Shape& shape, bool odd) {
  Shape narrow = shape;
  if (narrow.rank() == 0) return narrow;
  if (odd)
    narrow.erase(0);
  else
    narrow[narrow.rank() - 1] = 1;
  return narrow;
}

Ingredients one(Maker& make, Arrangement arrangement, const Backend&) {
  return {{make.real(any_shape(make, arrangement))}};
}
Ingredients one_positive(Maker& make, Arrangement arrangement, const Backend&) {
  return {{make.positive(any_shape(make, arrangement))}};
}
Ingredients two(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  const bool broadcasts = arrangement != Arrangement::contiguous;
  return {{make.real(shape), make.real(broadcasts ? narrower(shape, make.odd()) : shape)}};
}
Ingredients two_narrow_first(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.real(narrower(shape, make.odd())), make.real(shape)}};
}
// Many of the two numbers are equal.
Ingredients two_alike(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.integer(shape, 1), make.integer(narrower(shape, make.odd()), 1)}};
}
Ingredients quotient(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.real(shape), make.positive(narrower(shape, make.odd()))}};
}
Ingredients power(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.positive(narrower(shape, make.odd())), make.real(shape)}};
}
Ingredients choice(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.truth(narrower(shape, make.odd())), make.real(shape), make.real(shape)}};
}
// A gradient and what the slope is computed from.
Ingredients grad_and_real(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.real(shape), make.real(shape)}};
}
Ingredients grad_and_share(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = any_shape(make, arrangement);
  return {{make.real(shape), make.share(shape)}};
}

// ---- Moves --------------------------------------------------------------------------------------

Ingredients to_other_type(Maker& make, Arrangement arrangement, const Backend&) {
  const Dtype types[] = {Dtype::i32, Dtype::f64,     Dtype::f16,
                         Dtype::u8,  Dtype::boolean, Dtype::bf16};
  const auto type = types[static_cast<size_t>(arrangement) % std::size(types)];
  return {{make.real(any_shape(make, arrangement))}, {static_cast<double>(type)}};
}
Ingredients number_into(Maker& make, Arrangement arrangement, const Backend&) {
  return {{}, {make.odd() ? 3 : 0.1}, {make.written(any_shape(make, arrangement))}};
}
// Ids in any strides, which not every backend takes, or in none; some arrangements have such as are
// no row.
Ingredients rows_and_ids(Maker& make, Arrangement arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  const bool strays = arrangement == Arrangement::blocks || arrangement == Arrangement::primes;
  const Input ids = make.whole(Maker::with(e.lead, {e.m}), strays ? -1 : 0, strays ? 9 : 7);
  const Shape row = arrangement == Arrangement::other_rank ? Shape{} : Shape{e.k, e.n};
  return {{make.real(Maker::with({7}, row)),
           make.odd() ? ids : dense(ids.layout.shape, ids.values(), ids.dtype)}};
}
Ingredients table_and_ids(Maker& make, Arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  return {{make.real({7, Maker::least_one(e.n)}), make.whole(Maker::with(e.lead, {e.m}), 0, 7)}};
}
Ingredients grad_and_ids(Maker& make, Arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  const Shape ids = Maker::with(e.lead, {e.m});
  return {{make.real(Maker::with(ids, {e.n})), make.whole(ids, 0, 7)}, {7}};
}

// ---- Rows and reductions ------------------------------------------------------------------------

Ingredients rows(Maker& make, Arrangement, const Backend&) { return {{make.real(make.matrix())}}; }
Ingredients over_axes(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = make.matrix();
  const double all = std::pow(2.0, static_cast<double>(shape.rank())) - 1;
  const double last = std::pow(2.0, static_cast<double>(shape.rank()) - 1);
  const double masks[] = {last, 1, all, last / 2};
  const double mask = masks[static_cast<size_t>(arrangement) % 4];
  return {{make.real(shape)}, {mask, make.odd() ? 1.0 : 0.0}};
}
Ingredients grad_and_shares(Maker& make, Arrangement, const Backend&) {
  return {{make.real(make.matrix()), make.share(make.matrix())}};
}

// ---- Products -----------------------------------------------------------------------------------

Ingredients two_matrices(Maker& make, Arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  const Shape lead = make.odd() ? e.lead : Shape{};  // or one matrix for all
  return {{make.real(Maker::with(e.lead, {e.m, e.k})), make.real(Maker::with(lead, {e.k, e.n}))}};
}
Ingredients layer(Maker& make, Arrangement arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  const double activation = make.integers()
                                ? static_cast<double>(static_cast<size_t>(arrangement) % 2)
                                : static_cast<double>(static_cast<size_t>(arrangement) % 5);
  const Input bias = arrangement == Arrangement::primes ? absent() : make.real({e.n});
  return {{make.real(Maker::with(e.lead, {e.m, e.k})), make.real({e.n, e.k}), bias}, {activation}};
}

Ingredients two_of_rows(Maker& make, Arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  return {{make.real(Maker::with(e.lead, {e.m, e.n})), make.real(Maker::with(e.lead, {e.m, e.k}))}};
}
Ingredients back_through_layer(Maker& make, Arrangement arrangement, const Backend& witness) {
  Ingredients made = layer(make, arrangement, witness);
  const Maker::Extents e = make.extents();
  made.inputs.insert(made.inputs.begin(), make.real(Maker::with(e.lead, {e.m, e.n})));
  made.attributes.clear();
  return made;
}

// ---- Losses -------------------------------------------------------------------------------------

Ingredients prediction(Maker& make, Arrangement, const Backend&) {
  return {{make.real(make.matrix()), make.real(make.matrix())}};
}
Ingredients grad_and_prediction(Maker& make, Arrangement, const Backend&) {
  return {{make.scalar(), make.real(make.matrix()), make.real(make.matrix())}};
}
// Labels from -1 on, which is a row that does not count.
Ingredients logits(Maker& make, Arrangement arrangement, const Backend&) {
  const Maker::Extents e = make.extents();
  const std::int64_t rows = arrangement == Arrangement::nothing ? 0 : e.m;
  return {
      {make.real({rows, e.n}), make.whole({rows}, arrangement == Arrangement::ones ? 0 : -1, e.n)}};
}
Ingredients grad_and_logits(Maker& make, Arrangement arrangement, const Backend& witness) {
  Ingredients made = logits(make, arrangement, witness);
  made.inputs.insert(made.inputs.begin(), make.scalar());
  return made;
}

// ---- Windows ------------------------------------------------------------------------------------

Ingredients images(Maker& make, Arrangement arrangement, const Backend&) {
  const Sliding s = sliding(arrangement, make.odd());
  const Input bias = arrangement == Arrangement::primes ? absent() : make.real({s.K});
  return {{make.real(s.x()), make.real(s.w()), bias}, s.window()};
}
// What a gradient has the shape of can't be told from the others' shapes.
Ingredients back_to_images(Maker& make, Arrangement arrangement, const Backend&) {
  const Sliding s = sliding(arrangement, make.odd());
  Ingredients made{{make.real({s.N, s.K, s.P(), s.Q()}), make.real(s.w())}, s.window()};
  made.attributes.push_back(static_cast<double>(s.H));
  made.attributes.push_back(static_cast<double>(s.W));
  return made;
}
Ingredients back_to_filters(Maker& make, Arrangement arrangement, const Backend&) {
  const Sliding s = sliding(arrangement, make.odd());
  Ingredients made{{make.real({s.N, s.K, s.P(), s.Q()}), make.real(s.x())}, s.window()};
  made.attributes.push_back(static_cast<double>(s.R));
  made.attributes.push_back(static_cast<double>(s.S));
  return made;
}
std::vector<double> pooling_of(const Sliding& s) {
  std::vector<double> attributes = s.window();
  // A window holds a cell at least.
  attributes[2] = std::min(attributes[2], static_cast<double>(s.R / 2));
  attributes[3] = std::min(attributes[3], static_cast<double>(s.S / 2));
  attributes.insert(attributes.begin(), {static_cast<double>(s.R), static_cast<double>(s.S)});
  return attributes;
}
Ingredients pooling(Maker& make, Arrangement arrangement, const Backend&) {
  const Sliding s = sliding(arrangement, make.odd());
  return {{make.real(s.x())}, pooling_of(s)};
}
Ingredients back_to_cells(Maker& make, Arrangement arrangement, const Backend& witness) {
  const Sliding s = sliding(arrangement, make.odd());
  const TestCall forward{&framework::op_named("maxpool2d"), {make.real(s.x())}, pooling_of(s)};
  const std::vector<Output> pooled = witness.run(forward).outputs;
  Ingredients made{
      {make.real(pooled[0].shape), make.of(pooled[1].shape, pooled[1].values(), pooled[1].dtype)},
      pooling_of(s)};
  made.attributes.push_back(static_cast<double>(s.H));
  made.attributes.push_back(static_cast<double>(s.W));
  return made;
}

// ---- Layers of a transformer
// ----------------------------------------------------------------------

constexpr double kEpsilon = 1e-5;

Shape normalized_shape(Maker& make) {
  const Maker::Extents e = make.extents();
  return Maker::with(e.lead, {e.m, Maker::least_one(e.n)});
}
Ingredients normalization(Maker& make, Arrangement, const Backend&) {
  const Shape shape = normalized_shape(make);
  const Shape columns{shape[shape.rank() - 1]};
  return {{make.real(shape), make.real(columns), make.real(columns)}, {kEpsilon}};
}
Ingredients normalization_of_sum(Maker& make, Arrangement arrangement, const Backend& witness) {
  Ingredients made = normalization(make, arrangement, witness);
  made.inputs.insert(made.inputs.begin(), make.real(normalized_shape(make)));
  return made;
}
Ingredients back_through_normalization(Maker& make, Arrangement arrangement, const Backend&) {
  const Shape shape = normalized_shape(make);
  Shape rows = shape;
  rows.erase(shape.rank() - 1);
  return {{make.real(shape), make.real(shape), make.real({shape[shape.rank() - 1]}),
           make.share(rows), make.positive(rows),
           arrangement == Arrangement::primes ? absent() : make.real(shape)}};
}

Ingredients queries(Maker& make, Arrangement arrangement, const Backend&) {
  const Heads h = heads(arrangement, make.odd());
  return {{make.real({h.B, h.H, h.Tq, h.D}), make.real({h.B, h.H, h.Tk, h.D}),
           make.real({h.B, h.H, h.Tk, h.D})},
          {make.odd() ? 1.0 : 0.0, 0.25}};
}
Ingredients back_to_queries(Maker& make, Arrangement arrangement, const Backend& witness) {
  Ingredients made = queries(make, arrangement, witness);
  const TestCall forward{&framework::op_named("attention"), made.inputs, made.attributes};
  const std::vector<Output> outputs = witness.run(forward).outputs;
  const Shape shape = outputs[0].shape;
  made.inputs.insert(made.inputs.begin(), make.real(shape));
  made.inputs.push_back(dense(shape, outputs[0].values()));
  made.inputs.push_back(dense(outputs[1].shape, outputs[1].values()));
  return made;
}

// ---- In place -----------------------------------------------------------------------------------

// Numbers of every day from the first step on, or such that each of them changes much.
Ingredients step_of(int kind, Maker& make, Arrangement arrangement) {
  const Shape shape = any_shape(make, arrangement);
  const Shape state = Maker::with({kind < 2 ? kind : 2}, shape);
  const auto rounded = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  std::vector<double> attributes{static_cast<double>(kind)};
  for (const double number : {0.9, 0.9, 0.999, 1e-8, 1e-2}) attributes.push_back(rounded(number));
  if (make.odd()) attributes = {static_cast<double>(kind), 0.5, 0.75, 0.875, 0.5, 0.25};
  const Input grad = make.real(shape), w = make.real(shape);
  std::vector<double> states = make.real(shape).values(), v = make.positive(shape).values();
  states.insert(states.end(), v.begin(), v.end());
  states.resize(static_cast<size_t>(Layout::contiguous(state).elements()));
  if (!make.odd()) std::fill(states.begin(), states.end(), 0);
  const Input steps = dense({}, {make.odd() ? 2.0 : 0.0}, Dtype::i64);
  return {{grad, dense({}, {0.125})},
          attributes,
          {make.held(w), make.held(dense(state, states)), make.held(steps)}};
}
Ingredients step(Maker& make, Arrangement arrangement, const Backend&) {
  const int kind = (static_cast<int>(arrangement) + (make.odd() ? 1 : 3)) % 4;
  return step_of(kind, make, arrangement);
}
Ingredients count(Maker& make, Arrangement, const Backend&) {
  return {{}, {}, {make.held(dense({}, {make.odd() ? 3e9 : 4}, Dtype::i64))}};
}
Ingredients mask(Maker& make, Arrangement arrangement, const Backend&) {
  const Input steps = dense({}, {make.odd() ? 3e9 : 4}, Dtype::i64);
  return {{},
          {make.odd() ? 0.5 : 0.1, make.odd() ? 0x1p53 : 7},
          {make.written(any_shape(make, arrangement)), make.held(steps)}};
}

const std::map<std::string, Cook>& cooks() {
  static const std::map<std::string, Cook> all = {
      {"neg", one},
      {"abs", one},
      {"square", one},
      {"sqrt", one_positive},
      {"rsqrt", one_positive},
      {"reciprocal", one_positive},
      {"exp", one},
      {"log", one_positive},
      {"tanh", one},
      {"sigmoid", one},
      {"relu", one},
      {"gelu", one},
      {"add", two},
      {"sub", two_narrow_first},
      {"mul", two},
      {"div", quotient},
      {"maximum", two_narrow_first},
      {"minimum", two},
      {"pow", power},
      {"equal", two_alike},
      {"less", two_narrow_first},
      {"less_equal", two_alike},
      {"select", choice},
      {"copy", one},
      {"cast", to_other_type},
      {"fill", number_into},
      {"gather", rows_and_ids},
      {"sum", over_axes},
      {"mean", over_axes},
      {"max", over_axes},
      {"argmax", rows},
      {"matmul", two_matrices},
      {"linear", layer},
      {"linear_grad_w", two_of_rows},
      {"gelu_linear_backward", back_through_layer},
      {"softmax", rows},
      {"log_softmax", rows},
      {"softmax_backward", grad_and_shares},
      {"squared_error", prediction},
      {"squared_error_backward", grad_and_prediction},
      {"cross_entropy", logits},
      {"cross_entropy_backward", grad_and_logits},
      {"relu_backward", grad_and_real},
      {"gelu_backward", grad_and_real},
      {"sigmoid_backward", grad_and_share},
      {"tanh_backward", grad_and_share},
      {"conv2d", images},
      {"conv2d_grad_x", back_to_images},
      {"conv2d_grad_w", back_to_filters},
      {"maxpool2d", pooling},
      {"maxpool2d_backward", back_to_cells},
      {"embedding", table_and_ids},
      {"embedding_backward", grad_and_ids},
      {"layernorm", normalization},
      {"add_layernorm", normalization_of_sum},
      {"layernorm_backward", back_through_normalization},
      {"attention", queries},
      {"attention_backward", back_to_queries},
      {"optimizer_step", step},
      {"dropout_mask", mask},
      {"count_up", count},
  };
  return all;
}

}  // namespace

bool has_ingredients(const std::string& op) { return cooks().count(op) > 0; }

Ingredients ingredients_of(const std::string& op, Arrangement arrangement, std::uint64_t seed,
                           const Backend& witness) {
  Maker make(arrangement, seed);
  return cooks().at(op)(make, arrangement, witness);
}

TestCall optimizer_call(int kind, Arrangement arrangement, std::uint64_t seed) {
  Maker make(arrangement, seed);
  const Ingredients made = step_of(kind, make, arrangement);
  return {&framework::op_named("optimizer_step"), made.inputs, made.attributes, false, made.given};
}

}  // namespace backends_test
