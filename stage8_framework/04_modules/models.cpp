#include "stage8_framework/04_modules/models.h"

#include <stdexcept>
#include <string>

namespace framework {

namespace {

constexpr std::int64_t kSide = 28, kPixels = kSide * kSide, kClasses = 10;
constexpr std::int64_t kExpansion = 4;  // fc makes so many times the width

// Layers for images that come as rows of pixels (N, 784): they see (N, 1, 28, 28), a view.
class OfImages : public Sequential {
 public:
  using Sequential::Sequential;
  Tensor forward(const Tensor& x) override {
    return Sequential::forward(x.reshape({x.shape()[0], 1, kSide, kSide}));
  }
};

}  // namespace

std::unique_ptr<Module> make_perceptron(Device& device, std::int64_t hidden) {
  return std::make_unique<Sequential>(std::make_unique<Linear>(device, kPixels, hidden),
                                      std::make_unique<ReLU>(),
                                      std::make_unique<Linear>(device, hidden, kClasses));
}

std::unique_ptr<Module> make_cnn(Device& device, std::int64_t hidden) {
  constexpr std::int64_t kFirst = 8, kSecond = 16, kFeatures = kSecond * kPixels / 16;
  // ReLU keeps the order of numbers: behind the pooling it has a quarter of the work.
  return std::make_unique<OfImages>(
      std::make_unique<Conv2d>(device, 1, kFirst, 3, 1, 1), std::make_unique<MaxPool2d>(2),
      std::make_unique<ReLU>(), std::make_unique<Conv2d>(device, kFirst, kSecond, 3, 1, 1),
      std::make_unique<MaxPool2d>(2), std::make_unique<ReLU>(), std::make_unique<Flatten>(),
      std::make_unique<Linear>(device, kFeatures, hidden), std::make_unique<ReLU>(),
      std::make_unique<Linear>(device, hidden, kClasses));
}

// ---- A transformer ------------------------------------------------------------------------------

TransformerBlock::TransformerBlock(Device& device, const TransformerSizes& s)
    : heads_(s.heads),
      norm1_(device, s.width),
      qkv_(device, s.width, 3 * s.width),
      proj_(device, s.width, s.width),
      norm2_(device, s.width),
      fc_(device, s.width, kExpansion * s.width),
      out_(device, kExpansion * s.width, s.width) {
  add_module("norm1", norm1_), add_module("qkv", qkv_), add_module("proj", proj_);
  add_module("norm2", norm2_), add_module("fc", fc_), add_module("out", out_);
}

namespace {
// The normalization of x + branch; and that sum.
Pair normalized(LayerNorm& norm, const Branched& in) {
  return in.branch.is_defined() ? norm.added(in.x, in.branch) : Pair{norm(in.x), in.x};
}
}  // namespace

Branched TransformerBlock::passed(const Branched& in) {
  const auto [a, x] = normalized(norm1_, in);
  const auto [b, y] =
      normalized(norm2_, {x, proj_(self_attention_for_linear(qkv_(a), heads_, true))});
  return {y, out_(fc_.activated(b, Activation::gelu))};
}
Tensor TransformerBlock::forward(const Tensor& x) {
  const Branched y = passed({x, {}});
  return y.x + y.branch;
}

CharacterModel::CharacterModel(Device& device, const TransformerSizes& s)
    : token_(device, s.vocabulary, s.width),
      position_(device, s.context, s.width),
      norm_(device, s.width),
      head_(device, s.width, s.vocabulary, false) {
  add_module("token", token_), add_module("position", position_);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    blocks_.push_back(std::make_unique<TransformerBlock>(device, s));
    add_module(std::to_string(i), *blocks_.back());
  }
  add_module("norm", norm_), add_module("head", head_);
}

Tensor CharacterModel::forward(const Tensor& characters) {
  const std::int64_t context = position_.weight.shape()[0];
  if (characters.rank() != 2 || characters.shape()[1] > context)
    throw std::invalid_argument("a character model of " + characters.text() +
                                ": it takes (B, T), " + std::to_string(context) +
                                " characters at most");
  const std::int64_t length = characters.shape()[1];
  const Tensor& all = position_.weight;
  Branched x{token_(characters) + (length == context ? all : all.slice(0, 0, length)), {}};
  for (const auto& block : blocks_) x = block->passed(x);
  return head_(normalized(norm_, x).first);
}

}  // namespace framework
