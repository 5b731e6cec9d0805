// 7.7  The reference in double: the model as layers of step 5.5's DoubleModel, without anything of
// the course's kernels, and the first steps of a training that versions are held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage7_transformer/06_transformer_block/reference.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"

namespace train_shakespeare {

using sequential::HostPass;
using sequential::Values;
using transformer_block::Precision;

// Pieces of text, one behind the other, and what comes next behind each character.
struct Batch {
  std::vector<std::uint8_t> tokens, labels;
};

// The pieces of the text that step `step` reads.
Batch batch_of(const Settings& settings, const std::vector<std::uint8_t>& text, std::uint64_t step);

// y[t] = token[x[t]] + position[t]. A sample is a piece of text, at most as long as there are
// positions: x has numbers of tokens, y (T, width).
class DoubleEmbedding : public sequential::DoubleLayer {
 public:
  DoubleEmbedding(size_t vocabulary, size_t positions, size_t width)
      : vocabulary_(vocabulary), positions_(positions), width_(width) {}

  std::string description() const override { return "Embedding"; }
  std::vector<sequential::Parameter> parameters() const override {
    return {{"token.weight", {vocabulary_, width_}}, {"position.weight", {positions_, width_}}};
  }
  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

 private:
  size_t vocabulary_, positions_, width_;
};

// logits = x w^T of each row of `width` numbers of a sample. In bf16 x, w, and the gradients of x
// and of the logits are rounded.
class DoubleHead : public sequential::DoubleLayer {
 public:
  DoubleHead(size_t vocabulary, size_t width, Precision precision)
      : vocabulary_(vocabulary), width_(width), precision_(precision) {}

  std::string description() const override { return "Head"; }
  std::vector<sequential::Parameter> parameters() const override {
    return {{"weight", {vocabulary_, width_}}};
  }
  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

 private:
  Values store(const Values& values) const;

  size_t vocabulary_, width_;
  Precision precision_;
};

// The layers of a model that reads pieces of `length` characters. Its tensors are in the order of
// Model::tensors().
class Layers {
 public:
  Layers(const ModelSizes& sizes, size_t vocabulary, size_t length,
         Precision precision = Precision::fp32);
  Layers(const ModelSizes& sizes, size_t vocabulary, Precision precision = Precision::fp32)
      : Layers(sizes, vocabulary, sizes.context, precision) {}

  // For a DoubleModel, which this object must outlive.
  sequential::DoubleNetwork network() const;

 private:
  size_t blocks_, length_;
  DoubleEmbedding embedding_;
  transformer_block::DoubleBlock block_;
  transformer_block::DoubleNorm norm_;
  DoubleHead head_;
};

// The tokens of pieces, as a model's x.
Values tokens_of(const std::vector<std::uint8_t>& tokens);
// The mean loss of the logits (pieces, T V), and its gradient; stores_floats as in step 5.5.
sequential::Loss loss_cpu(const Values& logits, const std::vector<std::uint8_t>& labels,
                          bool stores_floats = false);

// What the losses of the first kCheckedSteps steps may be off: a loss is a mean over all characters
// of a batch, each of which went through some hundred roundings, twice as many as in step 5.6; and
// ten times what two trainings drift apart whose weights are four roundings away.
inline train_toy::Twins twins() { return train_toy::Twins(10, 0, 2e-5); }
inline constexpr size_t kCheckedSteps = 3;

// What the first `steps` steps must do from these parameters, in double; it may end before.
train_toy::Trajectory trajectory_cpu(const Settings& settings,
                                     const std::vector<std::uint8_t>& text,
                                     const std::vector<std::vector<float>>& parameters,
                                     size_t steps, Precision precision = Precision::fp32);

}  // namespace train_shakespeare
