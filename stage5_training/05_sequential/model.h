// A model of layers, and who owns which of its memory for how long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "stage5_training/01_dense_backward/branches.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/layer.h"

namespace sequential {

using gpu::DeviceBuffer;

// How a model runs its steps.
struct Mode {
  bool keep_memory;  // from one step to the next
  bool fuse;         // layers do some of their neighbours' work
};

// Four arrays of the same length in one piece of memory, parameter behind parameter; each begins at
// a multiple of 16 bytes, with zeros in the gaps:
//
//   w     | 0.weight |0.bias  0| 2.weight ... | 2.bias 0 |
//   grad  | ...                                            what one backward pass overwrites
//   m, v  | ...                                            what the optimizer keeps
//
// A step's own memory, for Linear, ReLU, Linear: an output per layer until the backward pass has
// read it, and the gradients of two outputs, of which one is read while the other is written.
//
//   forward    x -> Linear -> [0] -> ReLU -> [1] -> Linear -> [2] = y
//   backward        Linear <- <A> <- ReLU <- <B> <- Linear <- grad_y
class Sequential {
 public:
  // Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}. Throws std::invalid_argument where there is
  // no layer, a layer takes another number of values than the one before it makes, or the first
  // takes as many as come.
  template <class... Layers, class = std::enable_if_t<(std::is_base_of_v<Layer, Layers> && ...)>>
  explicit Sequential(Layers... layers) : Sequential(list(std::move(layers)...)) {}
  explicit Sequential(std::vector<std::unique_ptr<Layer>> layers);

  // It can be moved, and what has been moved away from can only be destroyed or assigned to.

  size_t inputs() const { return widths_.front(); }
  size_t outputs() const { return widths_.back(); }
  size_t layers() const { return layers_.size(); }
  const Layer& layer(size_t i) const { return *layers_[i]; }
  size_t width(size_t i) const { return widths_[i + 1]; }  // values that layer i makes per sample
  size_t parameter_count() const;
  // "Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}"
  std::string description() const;

  // Begins a training: parameter k of the model becomes random_numbers::uniform(seed, k, i) times
  // the bound of its Initial, the same bits on every backend; gradients, m and v become 0. Waits
  // for the device.
  void initialize(std::uint64_t seed);

  // Allocates what a step of up to so many samples needs. Graphs that were captured before a model
  // has grown must be captured anew. Throws std::invalid_argument where the sizes overflow.
  void reserve(size_t max_batch);

  // x (batch, inputs) to y (batch, outputs), queued on `stream`. y is the model's memory, there
  // until the next forward pass; x must be left as it is until the backward pass has run.
  // reserve()s where the batch is larger than ever before.
  const float* forward(const float* x, size_t batch, hipStream_t stream = nullptr);

  // The gradients of the last forward pass: overwrites those of all parameters, and of x where
  // grad_x (batch, inputs) is not nullptr. Throws std::logic_error where there was no such pass.
  void backward(const float* grad_y, hipStream_t stream = nullptr) {
    backward(grad_y, nullptr, stream);
  }
  void backward(const float* grad_y, float* grad_x, hipStream_t stream);

  // From now on the layers compute gradients that do not need one another at the same time, on
  // these branches of the stream; nullptr: one after the other, as at first. In a graph a fork
  // costs nothing; launched one by one, small layers take longer with it.
  void use_branches(const dense_backward::Branches* branches) {
    for (const auto& layer : layers_) layer->use_branches(branches);
  }

  // All parameters as one, with zeros in the gaps; for optimizers::step.
  const optimizers::ParameterArena& arena() const { return arena_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

  // Bytes of device memory: of parameters, gradients, m and v; and of a step's outputs and
  // gradients as far as they are reserved.
  size_t parameter_bytes() const { return parameters_.bytes(); }
  size_t step_bytes() const { return step_memory_.bytes(); }
  // How often the memory of a step was given back: a graph that was captured before does not know
  // where the new one is.
  size_t moves() const { return moves_; }

  // One of kVersions' modes; a new model has the last. Ends a step that has begun.
  void set_mode(const Mode& mode);

 private:
  template <class... Layers>
  static std::vector<std::unique_ptr<Layer>> list(Layers... layers) {
    std::vector<std::unique_ptr<Layer>> result;
    (result.push_back(std::make_unique<Layers>(std::move(layers))), ...);
    return result;
  }
  static size_t aligned(size_t floats) { return (floats + 3) / 4 * 4; }
  void connect();
  void lay_out_parameters();
  void clear();    // parameters_
  void release();  // step_memory_
  const float* input(size_t i) const { return i == 0 ? x_ : outputs_[i - 1]; }

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<size_t>
      widths_;  // values per sample: into layer 0, out of layer 0, out of layer 1...
  std::vector<Parameter> specifications_;  // of tensors_, ByNext resolved
  std::vector<NamedTensor> tensors_;
  size_t first_trained_ = 0;  // the first layer with parameters
  DeviceBuffer<float> parameters_;
  optimizers::ParameterArena arena_;

  Mode mode_{};
  std::vector<char> fused_;      // whether layer i does the work of layer i + 1
  std::vector<size_t> back_to_;  // layer i's backward() does that of the layers from here on
  DeviceBuffer<float> step_memory_;
  size_t moves_ = 0;
  std::vector<float*> outputs_;  // of the layers
  float* gradients_[2] = {};
  size_t max_batch_ = 0, max_batch_of_layers_ = 0;  // reserved here, and in the layers

  const float* x_ = nullptr;  // of the last forward pass
  size_t batch_ = 0;
  bool forward_done_ = false;
};

}  // namespace sequential
