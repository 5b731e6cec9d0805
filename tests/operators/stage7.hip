// The operators of stage 7.
#include <cmath>
#include <memory>

#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// ---- Embedding --------------------------------------------------------------------------------

// Tokens outside [0, V) are allowed: the step says what becomes of them.
std::vector<std::int32_t> integers_of(const Array& tokens) {
  for (const float token : tokens.values)
    require(std::fabs(token) <= 16777216 && token == std::floor(token), "a token is no integer");
  return {tokens.values.begin(), tokens.values.end()};
}

// y[b, t] = token_table[tokens[b, t]] + position_table[t]: inputs tokens (B, T), token_table (V, C)
// and position_table (T_max, C); attribute offset; output y (B, T, C).
void run_embedding(const Case& c, Outputs& outputs) {
  const Array &tokens = c.input("tokens", 2), &table = c.input("token_table", 2);
  const Array& positions = c.input("position_table", 2);
  const embedding::Shape shape{tokens.extent(0), tokens.extent(1), table.extent(1), table.extent(0),
                               positions.extent(0)};
  require(positions.extent(1) == shape.C, "the tables have different columns");
  require(shape.T <= shape.T_max, "the position table has too few rows");
  const std::size_t at = offset(c);
  for (const auto& version : embedding::kVersions) {
    Guarded<std::int32_t> d_tokens(integers_of(tokens), at);
    Guarded<float> d_table(table.values, at), d_positions(positions.values, at);
    Guarded<float> y(shape.positions() * shape.C, at);
    version.launch.run(
        y.data(), {d_tokens.data(), d_table.data(), d_positions.data(), shape, nullptr}, nullptr);
    finish(version.name, d_tokens, d_table, d_positions, y);
    keep(outputs, version.name, "y", {shape.B, shape.T, shape.C}, y);
  }
}

// Sums of grad_y's rows: inputs grad_y (B, T, C) and tokens (B, T); attributes V, T_max (default:
// T) and offset; outputs grad_token (V, C) and grad_position (T_max, C).
void run_embedding_backward(const Case& c, Outputs& outputs) {
  const Array& grad_y = c.input("grad_y", 3);
  const std::size_t B = grad_y.extent(0), T = grad_y.extent(1), C = grad_y.extent(2);
  const Array& tokens = c.input("tokens", {B, T});
  const embedding::Shape shape{B, T, C, c.integer("V", 1), c.integer("T_max", T)};
  require(T <= shape.T_max, "T is more than T_max");
  const std::size_t at = offset(c);
  embedding::Workspace workspace(shape);
  for (const auto& version : embedding::kBackwardVersions) {
    Guarded<std::int32_t> d_tokens(integers_of(tokens), at);
    Guarded<float> d_grad_y(grad_y.values, at), grad_token(shape.V * C, at);
    Guarded<float> grad_position(shape.T_max * C, at);
    version.launch.run({grad_token.data(), grad_position.data(), d_grad_y.data(), d_tokens.data(),
                        shape, workspace.bad_token()},
                       workspace, nullptr);
    finish(version.name, d_tokens, d_grad_y, grad_token, grad_position);
    keep(outputs, version.name, "grad_token", {shape.V, C}, grad_token);
    keep(outputs, version.name, "grad_position", {shape.T_max, C}, grad_position);
  }
}

// ---- Layer normalization ----------------------------------------------------------------------

float epsilon_of(const Case& c) {
  const float eps = static_cast<float>(c.number("eps", 1e-5));
  require(eps >= 0, "eps is negative or NaN");
  return eps;
}

// Rows of x, or of x + residual where there is such an input: inputs x (rows, cols), gain and bias
// (cols); attributes eps (default 1e-5) and offset; outputs y, mean (rows), rstd (rows) and, with
// residual, sum.
void run_layernorm(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 2), &gain = c.input("gain", std::vector<std::size_t>{x.extent(1)});
  const Array& bias = c.input("bias", gain.shape);
  const std::size_t rows = x.extent(0), cols = x.extent(1), n = rows * cols, at = offset(c);
  require(cols > 0, "layernorm needs at least one column");
  const auto run_one = [&](const char* version, auto&& launch) {
    Guarded<float> d_x(x.values, at), d_gain(gain.values, at), d_bias(bias.values, at);
    Guarded<float> y(n, at), mean(rows, at), rstd(rows, at);
    launch(layernorm::Pass{y.data(), mean.data(), rstd.data(), d_gain.data(), d_bias.data(), rows,
                           cols, epsilon_of(c)},
           d_x.data());
    finish(version, d_x, d_gain, d_bias, y, mean, rstd);
    keep(outputs, version, "y", x.shape, y);
    keep(outputs, version, "mean", {rows}, mean);
    keep(outputs, version, "rstd", {rows}, rstd);
  };
  if (!c.has("residual")) {
    for (const auto& version : layernorm::kVersions)
      run_one(version.name, [&](const layernorm::Pass& pass, const float* d_x) {
        version.launch(pass, d_x, nullptr);
      });
    return;
  }
  const Array& residual = c.input("residual", x.shape);
  for (const auto& version : layernorm::kResidualVersions) {
    Guarded<float> d_residual(residual.values, at), sum(n, at);
    run_one(version.name, [&](const layernorm::Pass& pass, const float* d_x) {
      version.launch(sum.data(), pass, d_x, d_residual.data(), nullptr);
    });
    finish(version.name, d_residual, sum);
    keep(outputs, version.name, "sum", x.shape, sum);
  }
}

// Inputs grad_y and x (rows, cols), gain (cols), mean and rstd (rows) and, unless there is none,
// grad_residual (rows, cols); attribute offset; outputs grad_x, grad_gain and grad_bias.
void run_layernorm_backward(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 2), &grad_y = c.input("grad_y", x.shape);
  const std::size_t rows = x.extent(0), cols = x.extent(1), at = offset(c);
  require(cols > 0, "layernorm needs at least one column");
  const Array &gain = c.input("gain", std::vector<std::size_t>{cols}),
              &mean = c.input("mean", std::vector<std::size_t>{rows});
  const Array& rstd = c.input("rstd", std::vector<std::size_t>{rows});
  const bool beside = c.has("grad_residual");
  const std::vector<float> residual =
      beside ? c.input("grad_residual", x.shape).values : std::vector<float>();
  layernorm_backward::Workspace workspace(rows, cols);
  for (const auto& version : layernorm_backward::kVersions) {
    Guarded<float> d_x(x.values, at), d_grad_y(grad_y.values, at), d_gain(gain.values, at);
    Guarded<float> d_mean(mean.values, at), d_rstd(rstd.values, at), d_residual(residual, at);
    Guarded<float> grad_x(rows * cols, at), grad_gain(cols, at), grad_bias(cols, at);
    version.launch(grad_gain.data(), grad_bias.data(),
                   {grad_x.data(), d_grad_y.data(), d_x.data(), d_gain.data(), d_mean.data(),
                    d_rstd.data(), beside ? d_residual.data() : nullptr, rows, cols},
                   workspace, nullptr);
    finish(version.name, d_x, d_grad_y, d_gain, d_mean, d_rstd, d_residual, grad_x, grad_gain,
           grad_bias);
    keep(outputs, version.name, "grad_x", x.shape, grad_x);
    keep(outputs, version.name, "grad_gain", {cols}, grad_gain);
    keep(outputs, version.name, "grad_bias", {cols}, grad_bias);
  }
}

// ---- Attention --------------------------------------------------------------------------------

// Inputs q (B, H, Tq, D), k and v (B, H, Tk, D); attributes causal (0 or 1), scale (default
// 1 / sqrt(D)) and offset; outputs out and lse (B, H, Tq). With the input grad_out (B, H, Tq, D)
// also grad_q, grad_k and grad_v, from the same version's out and lse, of versions that have a way
// back.
void run_attention(const Case& c, Outputs& outputs) {
  const Array &q = c.input("q", 4), &k = c.input("k", 4);
  const attention::Problem p{
      q.extent(0),
      q.extent(1),
      q.extent(2),
      k.extent(2),
      q.extent(3),
      c.integer("causal", 0) != 0,
      static_cast<float>(c.number("scale", 1 / std::sqrt(static_cast<double>(q.extent(3)))))};
  c.input("k", {p.B, p.H, p.Tk, p.D});
  const Array& v = c.input("v", k.shape);
  require(p.D >= 1 && p.D <= 256, "a head must have 1 to 256 numbers");
  require(p.scale > 0 && std::isfinite(p.scale), "the scale must be above 0 and finite");
  const std::size_t at = offset(c);
  const bool back = c.has("grad_out");
  const std::vector<float> grad_out =
      back ? c.input("grad_out", q.shape).values : std::vector<float>();
  const auto heads = [&](auto* data, std::size_t rows) {
    return attention::heads_first(data, p.H, rows, p.D);
  };
  for (const auto& version : attention::kVersions) {
    Guarded<float> d_q(q.values, at), d_k(k.values, at), d_v(v.values, at);
    Guarded<float> out(q.values.size(), at), lse(p.heads() * p.Tq, at);
    gpu::DeviceBuffer<float> memory(version.launch.memory(p));
    version.launch.run(heads(out.data(), p.Tq), lse.data(), heads(d_q.data(), p.Tq),
                       heads(d_k.data(), p.Tk), heads(d_v.data(), p.Tk), p, memory.data(), nullptr);
    finish(version.name, d_q, d_k, d_v, out, lse);
    keep(outputs, version.name, "out", q.shape, out);
    keep(outputs, version.name, "lse", {p.B, p.H, p.Tq}, lse);
    if (!back) continue;
    for (const auto& way_back : attention_backward::kVersions) {
      if (std::string(way_back.name) != version.name) continue;
      Guarded<float> d_grad_out(grad_out, at), grad_q(q.values.size(), at);
      Guarded<float> grad_k(k.values.size(), at), grad_v(v.values.size(), at);
      gpu::DeviceBuffer<float> beside(way_back.launch.memory(p));
      way_back.launch.run(heads(grad_q.data(), p.Tq), heads(grad_k.data(), p.Tk),
                          heads(grad_v.data(), p.Tk), heads(d_grad_out.data(), p.Tq),
                          heads(out.data(), p.Tq), lse.data(), heads(d_q.data(), p.Tq),
                          heads(d_k.data(), p.Tk), heads(d_v.data(), p.Tk), p, beside.data(),
                          nullptr);
      finish(version.name, d_q, d_k, d_v, out, lse, d_grad_out, grad_q, grad_k, grad_v);
      keep(outputs, version.name, "grad_q", q.shape, grad_q);
      keep(outputs, version.name, "grad_k", k.shape, grad_k);
      keep(outputs, version.name, "grad_v", v.shape, grad_v);
    }
  }
}

// ---- Transformer block ------------------------------------------------------------------------

// Inputs x and grad_y (B, T, C) and the parameters by their names, such as qkv.weight (3 C, C);
// attributes heads and offset; outputs y, grad_x and, by the parameters' names, their gradients.
void run_transformer_block(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 3), &grad_y = c.input("grad_y", x.shape);
  const transformer_block::Shape shape{x.extent(0), x.extent(1), x.extent(2),
                                       c.integer("heads", 1)};
  require(shape.B > 0 && shape.T > 0 && shape.C > 0 && shape.H > 0 && shape.C % shape.H == 0,
          "B, T and C must be at least 1, and C a multiple of heads");
  require(shape.D() <= 256, "a head must have 1 to 256 numbers");
  const auto tensors = transformer_block::parameter_shapes(shape.C);
  const std::size_t at = offset(c);
  for (const auto& version : transformer_block::kVersions) {
    Guarded<float> d_x(x.values, at), d_grad_y(grad_y.values, at), y(x.values.size(), at);
    Guarded<float> grad_x(x.values.size(), at);
    std::vector<std::unique_ptr<Guarded<float>>> values, gradients;
    std::vector<const float*> from;
    std::vector<float*> to;
    for (const auto& tensor : tensors) {
      const Array& given = c.input(tensor.name, tensor.shape);
      values.push_back(std::make_unique<Guarded<float>>(given.values, at));
      gradients.push_back(std::make_unique<Guarded<float>>(given.values.size(), at));
      from.push_back(values.back()->data()), to.push_back(gradients.back()->data());
    }
    const auto parameters = transformer_block::tensors_of<const float*>(from);
    transformer_block::SavedActivations kept(shape, version.launch);
    transformer_block::Workspace workspace(shape);
    transformer_block::forward(y.data(), d_x.data(), parameters, shape, kept, version.launch);
    transformer_block::backward(transformer_block::tensors_of<float*>(to), grad_x.data(),
                                d_grad_y.data(), d_x.data(), parameters, shape, kept, workspace,
                                version.launch);
    finish(version.name, d_x, d_grad_y, y, grad_x);
    keep(outputs, version.name, "y", x.shape, y);
    keep(outputs, version.name, "grad_x", x.shape, grad_x);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      finish(version.name, *values[i], *gradients[i]);
      keep(outputs, version.name, tensors[i].name, tensors[i].shape, *gradients[i]);
    }
  }
}

}  // namespace

std::vector<Operator> stage7() {
  return {{"embedding", run_embedding}, {"embedding_backward", run_embedding_backward},
          {"layernorm", run_layernorm}, {"layernorm_backward", run_layernorm_backward},
          {"attention", run_attention}, {"transformer_block", run_transformer_block}};
}

}  // namespace operators
