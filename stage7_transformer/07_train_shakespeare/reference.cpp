#include "stage7_transformer/07_train_shakespeare/reference.h"

#include <algorithm>
#include <cmath>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage7_transformer/07_train_shakespeare/pieces.h"

namespace train_shakespeare {

// ---- The parts of the model -------------------------------------------------------------------

namespace {

// c (M, N) += a (M, K) b (K, N), in an order that compilers make vector instructions of.
void add_product(Numbers& c, const Numbers& a, const Numbers& b, size_t M, size_t N, size_t K) {
  for (size_t i = 0; i < M; ++i)
    for (size_t k = 0; k < K; ++k) {
      const double factor = a[i * K + k];
      const double* from = b.data() + k * N;
      double* to = c.data() + i * N;
      for (size_t j = 0; j < N; ++j) to[j] += factor * from[j];
    }
}

Numbers transposed(const Numbers& a, size_t rows, size_t cols) {
  Numbers result(a.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j) result[j * rows + i] = a[i * cols + j];
  return result;
}

// y (rows, out) = x (rows, in) w^T + bias, for w (out, in); without a bias where that is empty.
Numbers affine(const Numbers& x, const Numbers& w, const Numbers& bias, size_t rows) {
  const size_t in = x.size() / rows, out = w.size() / in;
  Numbers y(rows * out);
  for (size_t i = 0; i < y.size() && !bias.empty(); ++i) y[i] = bias[i % out];
  add_product(y, x, transposed(w, out, in), rows, out, in);
  return y;
}

// The gradients of x, w and bias.
Numbers affine_backward(Numbers& grad_w, Numbers* grad_bias, const Numbers& grad_y,
                        const Numbers& x, const Numbers& w, size_t rows) {
  const size_t in = x.size() / rows, out = grad_y.size() / rows;
  add_product(grad_w, transposed(grad_y, rows, out), x, out, in, rows);
  for (size_t i = 0; i < grad_y.size() && grad_bias != nullptr; ++i)
    (*grad_bias)[i % out] += grad_y[i];
  Numbers grad_x(x.size());
  add_product(grad_x, grad_y, w, rows, in, out);
  return grad_x;
}

Numbers normalize(Hat& kept, const Numbers& x, const Numbers& gain, const Numbers& bias) {
  const size_t cols = gain.size(), rows = x.size() / cols;
  const double n = static_cast<double>(cols);
  kept = {Numbers(x.size()), Numbers(rows)};
  Numbers y(x.size());
  for (size_t row = 0; row < rows; ++row) {
    const double* from = x.data() + row * cols;
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) mean += from[c] / n;
    for (size_t c = 0; c < cols; ++c) variance += (from[c] - mean) * (from[c] - mean) / n;
    kept.rstd[row] = 1 / std::sqrt(variance + static_cast<double>(1e-5f));
    for (size_t c = 0; c < cols; ++c) {
      kept.hat[row * cols + c] = (from[c] - mean) * kept.rstd[row];
      y[row * cols + c] = kept.hat[row * cols + c] * gain[c] + bias[c];
    }
  }
  return y;
}
Numbers normalize_backward(Numbers& grad_gain, Numbers& grad_bias, const Numbers& grad_y,
                           const Hat& kept, const Numbers& gain) {
  const size_t cols = gain.size();
  Numbers grad_x(grad_y.size());
  for (size_t row = 0; row < kept.rstd.size(); ++row) {
    const double *grad = grad_y.data() + row * cols, *hat = kept.hat.data() + row * cols;
    double mean = 0, slope = 0;
    for (size_t c = 0; c < cols; ++c) {
      mean += grad[c] * gain[c] / static_cast<double>(cols);
      slope += grad[c] * gain[c] * hat[c] / static_cast<double>(cols);
      grad_gain[c] += grad[c] * hat[c], grad_bias[c] += grad[c];
    }
    for (size_t c = 0; c < cols; ++c)
      grad_x[row * cols + c] = kept.rstd[row] * (grad[c] * gain[c] - mean - hat[c] * slope);
  }
  return grad_x;
}

}  // namespace

// ---- The model --------------------------------------------------------------------------------

Reference::Reference(const ModelSizes& sizes, const std::vector<std::vector<float>>& parameters,
                     unsigned twin)
    : sizes_(sizes), vocabulary_(parameters[0].size() / sizes.width), twin_(twin) {
  for (const std::vector<float>& values : parameters) {
    p_.emplace_back(values.begin(), values.end());
    elements_.emplace_back(values.size());
    for (size_t i = 0; i < values.size(); ++i) elements_.back()[i].w = p_.back()[i];
  }
}

double Reference::step(const Batch& batch, optimizers::Kind kind,
                       const optimizers::Hyperparameters& hyper, std::uint64_t t, bool update) {
  const double loss = loss_of(batch);
  if (!update) return loss;
  backward(batch);
  for (size_t k = 0; k < p_.size(); ++k) {
    optimizers::step_cpu(kind, hyper, t, {grad_[k].begin(), grad_[k].end()}, elements_[k]);
    train_toy::Twins::move(elements_[k], twin_, t, static_cast<std::uint32_t>(k));
    for (size_t i = 0; i < p_[k].size(); ++i) p_[k][i] = elements_[k][i].w;
  }
  return loss;
}

double Reference::loss_of(const Batch& batch) {
  const size_t C = sizes_.width, rows = batch.tokens.size();
  kept_.assign(sizes_.layers, {});
  x_.assign(1, Numbers(rows * C));
  for (size_t i = 0; i < rows * C; ++i)
    x_[0][i] = p_[0][batch.tokens[i / C] * C + i % C] + p_[1][i / C % sizes_.context * C + i % C];
  for (size_t layer = 0; layer < sizes_.layers; ++layer)
    x_.push_back(block(x_[layer], layer, kept_[layer]));
  const size_t last = p_.size() - 3;
  norm_ = normalize(hat_, x_.back(), p_[last], p_[last + 1]);
  grad_logits_ = affine(norm_, p_[last + 2], {}, rows);  // logits; from here on their gradients
  double loss = 0;
  for (size_t row = 0; row < rows; ++row) {
    double* logits = grad_logits_.data() + row * vocabulary_;
    const double max = *std::max_element(logits, logits + vocabulary_);
    double sum = 0;
    for (size_t c = 0; c < vocabulary_; ++c) sum += std::exp(logits[c] - max);
    const size_t label = batch.labels[row];
    loss += (std::log(sum) + max - logits[label]) / static_cast<double>(rows);
    for (size_t c = 0; c < vocabulary_; ++c) {
      const double p = std::exp(logits[c] - max) / sum;
      logits[c] =
          (train_toy::Twins::stored(p, twin_) - (c == label ? 1 : 0)) / static_cast<double>(rows);
    }
  }
  return loss;
}

Numbers Reference::block(const Numbers& x, size_t layer, Block& kept) const {
  const Numbers* p = p_.data() + 2 + 12 * layer;
  const size_t rows = x.size() / sizes_.width;
  kept.norm1 = normalize(kept.hat1, x, p[0], p[1]);
  kept.qkv = affine(kept.norm1, p[2], p[3], rows);
  kept.attended = attend(kept.qkv);
  Numbers h = affine(kept.attended, p[4], p[5], rows);
  for (size_t i = 0; i < h.size(); ++i) h[i] += x[i];
  kept.norm2 = normalize(kept.hat2, h, p[6], p[7]);
  kept.sums = affine(kept.norm2, p[8], p[9], rows);
  kept.hidden = kept.sums;
  for (double& value : kept.hidden) value = activations::GeluTanh::cpu(value);
  Numbers y = affine(kept.hidden, p[10], p[11], rows);
  for (size_t i = 0; i < y.size(); ++i) y[i] += h[i];
  return y;
}

// Calls row(q, first, weights) for each query of each head: where in qkv it lies, where the first
// key of its piece lies, and its probabilities of the keys up to itself.
template <class Row>
void Reference::for_each_query(const Numbers& qkv, Row row) const {
  const size_t C = sizes_.width, D = C / sizes_.heads, T = sizes_.context;
  for (size_t i = 0; i < qkv.size() / (3 * C); ++i)
    for (size_t head = 0; head < sizes_.heads; ++head) {
      const size_t q = i * 3 * C + head * D, first = (i - i % T) * 3 * C + head * D;
      Numbers weights;
      double max = -1e300, sum = 0;
      for (size_t j = 0; j <= i % T; ++j) {
        double score = 0;
        for (size_t d = 0; d < D; ++d) score += qkv[q + d] * qkv[first + j * 3 * C + C + d];
        weights.push_back(score / std::sqrt(static_cast<double>(D)));
        max = std::max(max, weights.back());
      }
      for (double& weight : weights) weight = std::exp(weight - max), sum += weight;
      for (double& weight : weights) weight /= sum;
      row(q, first, weights);
    }
}

Numbers Reference::attend(const Numbers& qkv) const {
  const size_t C = sizes_.width, D = C / sizes_.heads;
  Numbers y(qkv.size() / 3);
  for_each_query(qkv, [&](size_t q, size_t first, const Numbers& weights) {
    double* to = y.data() + q / (3 * C) * C + q % (3 * C);
    for (size_t j = 0; j < weights.size(); ++j)
      for (size_t d = 0; d < D; ++d) to[d] += weights[j] * qkv[first + j * 3 * C + 2 * C + d];
  });
  return y;
}

Numbers Reference::attend_backward(const Numbers& grad_y, const Numbers& qkv) const {
  const size_t C = sizes_.width, D = C / sizes_.heads;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Numbers grad(qkv.size());
  for_each_query(qkv, [&](size_t q, size_t first, const Numbers& weights) {
    const double* from = grad_y.data() + q / (3 * C) * C + q % (3 * C);
    Numbers grad_weights(weights.size());
    double mean = 0;
    for (size_t j = 0; j < weights.size(); ++j) {
      const size_t v = first + j * 3 * C + 2 * C;
      for (size_t d = 0; d < D; ++d) {
        grad_weights[j] += from[d] * qkv[v + d];
        grad[v + d] += weights[j] * from[d];
      }
      mean += weights[j] * grad_weights[j];
    }
    for (size_t j = 0; j < weights.size(); ++j) {
      const size_t k = first + j * 3 * C + C;
      const double grad_score = weights[j] * (grad_weights[j] - mean) * scale;
      for (size_t d = 0; d < D; ++d) {
        grad[q + d] += grad_score * qkv[k + d];
        grad[k + d] += grad_score * qkv[q + d];
      }
    }
  });
  return grad;
}

// The gradient of what went into the block; leaves those of its parameters in grad_.
Numbers Reference::block_backward(const Numbers& grad_y, size_t layer) {
  const size_t rows = grad_y.size() / sizes_.width;
  const Numbers* p = p_.data() + 2 + 12 * layer;
  Numbers* g = grad_.data() + 2 + 12 * layer;
  const Block& kept = kept_[layer];
  Numbers grad_sums = affine_backward(g[10], &g[11], grad_y, kept.hidden, p[10], rows);
  for (size_t i = 0; i < grad_sums.size(); ++i)
    grad_sums[i] *= activations::GeluTanh::derivative_cpu(kept.sums[i]);
  const Numbers grad_norm2 = affine_backward(g[8], &g[9], grad_sums, kept.norm2, p[8], rows);
  Numbers grad_h = normalize_backward(g[6], g[7], grad_norm2, kept.hat2, p[6]);
  for (size_t i = 0; i < grad_h.size(); ++i) grad_h[i] += grad_y[i];
  const Numbers grad_qkv =
      attend_backward(affine_backward(g[4], &g[5], grad_h, kept.attended, p[4], rows), kept.qkv);
  const Numbers grad_norm1 = affine_backward(g[2], &g[3], grad_qkv, kept.norm1, p[2], rows);
  Numbers grad_x = normalize_backward(g[0], g[1], grad_norm1, kept.hat1, p[0]);
  for (size_t i = 0; i < grad_x.size(); ++i) grad_x[i] += grad_h[i];
  return grad_x;
}

void Reference::backward(const Batch& batch) {
  const size_t C = sizes_.width, rows = batch.tokens.size(), last = p_.size() - 3;
  grad_.clear();
  for (const Numbers& tensor : p_) grad_.emplace_back(tensor.size());
  const Numbers grad_norm =
      affine_backward(grad_[last + 2], nullptr, grad_logits_, norm_, p_[last + 2], rows);
  Numbers grad = normalize_backward(grad_[last], grad_[last + 1], grad_norm, hat_, p_[last]);
  for (size_t layer = sizes_.layers; layer-- > 0;) grad = block_backward(grad, layer);
  for (size_t i = 0; i < rows * C; ++i) {
    grad_[0][batch.tokens[i / C] * C + i % C] += grad[i];
    grad_[1][i / C % sizes_.context * C + i % C] += grad[i];
  }
}

// ---- A training -------------------------------------------------------------------------------

Batch batch_of(const Settings& settings, const std::vector<std::uint8_t>& text,
               std::uint64_t step) {
  Batch batch;
  const size_t T = settings.sizes.context;
  for (size_t b = 0; b < settings.sizes.batch; ++b) {
    const size_t place =
        Drawn::place(settings.seed, step, settings.sizes.batch, b, text.size() - T);
    for (size_t t = 0; t < T; ++t) {
      batch.tokens.push_back(text[place + t]);
      batch.labels.push_back(text[place + t + 1]);
    }
  }
  return batch;
}

train_toy::Trajectory trajectory_cpu(const Settings& settings,
                                     const std::vector<std::uint8_t>& text,
                                     const std::vector<std::vector<float>>& parameters,
                                     size_t steps) {
  const std::vector<Schedule> list = schedules(settings);
  return train_toy::follow(
      steps, 1, twins(),
      [&](unsigned twin) {
        return Reference(settings.sizes, train_toy::Twins::beside(parameters, twin), twin);
      },
      [&](Reference& run, std::uint64_t t) {
        const bool update = t == 1 || t < steps;  // the gradient of the first is compared
        return run.step(batch_of(settings, text, t - 1), settings.kind, list[t - 1].hyper, t,
                        update);
      });
}

}  // namespace train_shakespeare
