// The three models that the course trains by hand in stages 5 to 7, as modules. Their tensors have
// the names and shapes of those stages' checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stage8_framework/04_modules/layers.h"

namespace framework {

// 5.8: images (N, 784) -> logits (N, 10), of one layer of hidden units.
std::unique_ptr<Module> make_perceptron(Device& device, std::int64_t hidden);

// 6.4: images (N, 784) -> logits (N, 10), of two convolutions and a layer of hidden units.
std::unique_ptr<Module> make_cnn(Device& device, std::int64_t hidden);

// 7.7: characters i32 (B, T) -> logits (B, T, V): learned positions, blocks with the normalization
// in front, GELU, and a head without a bias.
struct TransformerSizes {
  std::int64_t layers, heads, width, context, vocabulary;
};

// What goes past a branch, and what the branch adds to it; undefined: nothing. The normalization
// that comes next adds them while it reads them.
struct Branched {
  Tensor x, branch;
};

class TransformerBlock : public Module {
 public:
  TransformerBlock(Device& device, const TransformerSizes& sizes);
  Tensor forward(const Tensor& x) override;
  Branched passed(const Branched& in);

 private:
  std::int64_t heads_;
  LayerNorm norm1_;
  Linear qkv_, proj_;
  LayerNorm norm2_;
  Linear fc_, out_;
};

class CharacterModel : public Module {
 public:
  CharacterModel(Device& device, const TransformerSizes& sizes);
  // Of at most `context` characters each.
  Tensor forward(const Tensor& characters) override;

 private:
  Embedding token_, position_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  LayerNorm norm_;
  Linear head_;
};

}  // namespace framework
