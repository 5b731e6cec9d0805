#include "stage7_transformer/07_train_shakespeare/writer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"
#include "stage7_transformer/07_train_shakespeare/pass.h"

namespace train_shakespeare {

Writer::Writer(const Model& model)
    : model_(model),
      tokens_(model.sizes().context),
      x_(model.sizes().context * model.sizes().width),
      h_(x_.size()),
      norm_(x_.size()),
      attended_(x_.size()),
      hidden_(transformer_block::kExpansion * x_.size()),
      logits_(model.vocabulary()) {
  for (size_t layer = 0; layer < model.sizes().layers; ++layer) qkv_.emplace_back(3 * x_.size());
}

void Writer::advance_block(size_t layer, size_t count) {
  const size_t C = model_.sizes().width, H = model_.sizes().heads, D = C / H, first = cached_;
  const transformer_block::Parameters& p = model_.parameters().blocks[layer];
  const transformer_block::Layers layers = transformer_block::layers({1, count, C, H}, p);
  const auto norm = [&](const float* from, const float* gain, const float* bias) {
    layernorm::forward(norm_.data(), nullptr, nullptr, from, gain, bias, count, C,
                       transformer_block::kEpsilon);
  };
  float* const x = x_.data();
  const float* const qkv = qkv_[layer].data();
  float* const rows = qkv_[layer].data() + first * 3 * C;
  norm(x, p.norm1_gain, p.norm1_bias);
  dense::forward<dense::Linear>(rows, norm_.data(), count, layers.qkv);
  attention::forward(attention::rows_first(attended_.data(), count, H, D), nullptr,
                     attention::rows_first(qkv + first * 3 * C, count, H, D, 3, 0),
                     attention::rows_first(qkv, first + count, H, D, 3, 1),
                     attention::rows_first(qkv, first + count, H, D, 3, 2),
                     {1, H, count, first + count, D, true, 1 / std::sqrt(static_cast<float>(D))});
  transformer_block::linear_beside(h_.data(), x, attended_.data(), count, layers.proj,
                                   transformer_block::kBest, nullptr);
  norm(h_.data(), p.norm2_gain, p.norm2_bias);
  dense::forward<activations::GeluTanh>(hidden_.data(), norm_.data(), count, layers.fc);
  transformer_block::linear_beside(x, h_.data(), hidden_.data(), count, layers.out,
                                   transformer_block::kBest, nullptr);
}

void Writer::advance(size_t count) {
  const size_t C = model_.sizes().width, V = model_.vocabulary();
  const Tensors<const float*>& p = model_.parameters();
  const std::vector<std::int32_t> tokens(history_.end() - static_cast<std::ptrdiff_t>(count),
                                         history_.end());
  tokens_.to_device(tokens.data(), count);
  embedding::forward(x_.data(), tokens_.data(), p.token, p.position + cached_ * C,
                     {1, count, C, V});
  for (size_t layer = 0; layer < qkv_.size(); ++layer) advance_block(layer, count);
  layernorm::forward(norm_.data(), nullptr, nullptr, x_.data() + (count - 1) * C, p.norm_gain,
                     p.norm_bias, 1, C, transformer_block::kEpsilon);
  gemm::best(head_product(logits_.data(), norm_.data(), p.head, 1, C, V));
  cached_ += count;
}

std::vector<float> Writer::read(const std::vector<std::uint8_t>& tokens) {
  if (tokens.empty()) throw std::invalid_argument("there is no character to read");
  for (const std::uint8_t token : tokens)
    if (token >= model_.vocabulary())
      throw std::invalid_argument("token " + std::to_string(token) + " is not in [0, " +
                                  std::to_string(model_.vocabulary()) + ")");
  const size_t context = model_.sizes().context;
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  if (history_.size() > context) {
    const size_t kept = std::max(context / 2, size_t{1});
    history_.erase(history_.begin(), history_.end() - static_cast<std::ptrdiff_t>(kept));
    cached_ = 0;
  }
  advance(history_.size() - cached_);
  return logits_.to_host();
}

std::string write(const Model& model, const shakespeare::Vocabulary& vocabulary,
                  const std::string& prompt, size_t count, const Sampling& sampling) {
  Writer writer(model);
  std::string text;
  std::vector<std::uint8_t> next = vocabulary.encode(prompt);
  for (size_t i = 0; i < count; ++i) {
    const size_t token = choose(writer.read(next), sampling, i);
    next = {static_cast<std::uint8_t>(token)};
    text += vocabulary.decode(token);
  }
  return text;
}

}  // namespace train_shakespeare
