// The model's parameters, their gradients and the optimizer's states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/half.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/layer.h"
#include "stage7_transformer/06_transformer_block/problem.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"

namespace train_shakespeare {

using gpu::DeviceBuffer;
using sequential::NamedTensor;

inline constexpr double kDeviation = 0.02;  // of the first weights

// All tensors of a model, or their gradients.
template <class Pointer>
struct Tensors {
  Pointer token, position;  // (V, C), (context, C)
  std::vector<transformer_block::Tensors<Pointer>> blocks;
  Pointer norm_gain, norm_bias;  // (C), (C)
  Pointer head;                  // (V, C)
};

// Four arrays of the same length, as in step 5.5's Sequential: tensor behind tensor, each at a
// multiple of 8 elements, which are 16 bytes even in a copy of bf16, with zeros in the gaps. It is
// no Sequential: an embedding reads numbers of tokens instead of floats, and fused gradients run
// beside the blocks on streams of their own.
class Model {
 public:
  // Throws std::invalid_argument where there is no such model. All parameters are 0.
  Model(const ModelSizes& sizes, size_t vocabulary);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // "Transformer(layers 2, heads 4, width 64, context 128, vocabulary 65)"
  std::string description() const;
  size_t parameter_count() const;
  const ModelSizes& sizes() const { return sizes_; }
  size_t vocabulary() const { return vocabulary_; }

  // Begins a training, with the same bits on every backend: versions/first_values.hip. Matrices get
  // normal numbers of deviation kDeviation, those that end a residual box that over sqrt(2 layers),
  // so that the sum over all boxes stays of one size (GPT-2); gains get 1, biases 0. Waits for the
  // device.
  void initialize(std::uint64_t seed);

  const optimizers::ParameterArena& arena() const { return arena_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const Tensors<const float*>& parameters() const { return parameters_; }
  const Tensors<float*>& gradients() const { return gradients_; }
  // The tensors of a copy of the arena's parameters. The head is the last one.
  Tensors<const gpu::bfloat16*> pointers_into(const gpu::bfloat16* copy) const;

 private:
  template <class Pointer, class Array>
  Tensors<Pointer> pointers(Array array) const;

  ModelSizes sizes_;
  size_t vocabulary_;
  std::vector<NamedTensor> tensors_;
  DeviceBuffer<float> memory_;
  optimizers::ParameterArena arena_;
  Tensors<const float*> parameters_;
  Tensors<float*> gradients_;
};

// The parameters on the host, in the order of tensors().
std::vector<std::vector<float>> parameters_of(const Model& model);

// Of the products of so many steps: two operations per weight and token forwards and four
// backwards; and those of attention, half of which the mask spares.
double operations_of(const Model& model, double steps);

}  // namespace train_shakespeare
