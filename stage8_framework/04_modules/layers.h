// The layers that models are made of, with PyTorch's names, shapes and first values. Each is a few
// operations of 8.2; no gradient is written here. All tensors lie on the device that a layer is
// given. First values follow from the layer's seed alone, the same bits everywhere. Errors:
// std::invalid_argument, one line, for a size that is not positive; else those of the operations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/04_modules/module.h"

namespace framework {

// Layers that are given no seed get the next one of a sequence, which begins anew here. A program
// that makes the same layers in the same order gets the same values.
void manual_seed(std::uint64_t seed);
std::uint64_t next_seed();  // up to 2^53

// x (..., in) -> x weight^T + bias (..., out).
class Linear : public Module {
 public:
  Linear(Device& device, std::int64_t in, std::int64_t out, bool has_bias = true,
         std::uint64_t seed = next_seed());
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  // The same, and a function of each element behind it.
  Tensor activated(const Tensor& x, Activation f) const { return linear(x, weight, bias, f); }
  Tensor weight, bias;  // (out, in), (out): uniform in +-1 / sqrt(in)
};

// x (N, in, H, W) -> (N, out, P, Q): windows of kernel x kernel.
class Conv2d : public Module {
 public:
  Conv2d(Device& device, std::int64_t in, std::int64_t out, std::int64_t kernel,
         std::int64_t stride = 1, std::int64_t padding = 0, bool has_bias = true,
         std::uint64_t seed = next_seed());
  Tensor forward(const Tensor& x) override { return conv2d(x, weight, bias, at_); }
  Tensor weight, bias;  // (out, in, kernel, kernel), (out): uniform in +-1 / sqrt(in kernel^2)

 private:
  Sliding at_;
};

// Each channel of x (N, C, H, W) with mean 0 and variance 1, then times weight plus bias. In
// training by the mean and variance of x, which move the running ones by `momentum` of the way;
// else by the running ones (Ioffe and Szegedy: Batch normalization, arXiv:1502.03167).
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(Device& device, std::int64_t channels, double eps = 1e-5, double momentum = 0.1);
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias, running_mean, running_var;  // (C): 1, 0, 0, 1
  Tensor num_batches_tracked;                      // i64 ()

 private:
  void track(const Tensor& of_mean, const Tensor& var, std::int64_t count);
  double eps_, momentum_;
};

// Each row of x (..., C) with mean 0 and variance 1, then times weight plus bias.
class LayerNorm : public Module {
 public:
  LayerNorm(Device& device, std::int64_t channels, double eps = 1e-5);
  Tensor forward(const Tensor& x) override { return layernorm(x, weight, bias, eps_).first; }
  // The same of x + branch; and that sum.
  Pair added(const Tensor& x, const Tensor& branch) const;
  Tensor weight, bias;  // (C): 1, 0

 private:
  double eps_;
};

// ids i32 (...) -> rows of weight (..., C).
class Embedding : public Module {
 public:
  Embedding(Device& device, std::int64_t rows, std::int64_t channels,
            std::uint64_t seed = next_seed());
  Tensor forward(const Tensor& ids) override { return embedding(weight, ids); }
  Tensor weight;  // (rows, C): of mean 0 and variance 1
};

// qkv (B, T, 3 C): queries, keys and values, of each of which a head has C / heads channels ->
// softmax(q k^T / sqrt(C / heads)) v of each head, side by side (B, T, C).
Tensor self_attention(const Tensor& qkv, std::int64_t heads, bool is_causal);
// The same for a linear layer that comes next: where an Autocast has attention made in bf16, what
// that layer multiplies is bf16 already.
Tensor self_attention_for_linear(const Tensor& qkv, std::int64_t heads, bool is_causal);

// x (B, T, C) -> (B, T, C): self-attention between two linear layers.
class MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(Device& device, std::int64_t channels, std::int64_t heads,
                     bool is_causal = false, std::uint64_t seed = next_seed());
  Tensor forward(const Tensor& x) override {
    return out_proj(
        self_attention_for_linear(linear(x, in_proj_weight, in_proj_bias), heads_, is_causal_));
  }
  Tensor in_proj_weight, in_proj_bias;  // (3 C, C), (3 C)
  Linear out_proj;

 private:
  std::int64_t heads_;
  bool is_causal_;
};

// In training a number of x is 0 with probability p, else x / (1 - p). Another choice for each
// call, which follows from the seed and the number of calls before it.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5, std::uint64_t seed = next_seed());
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
  std::uint64_t seed_;
  Tensor calls_;  // i64 (), on the device of the first x
};

// The largest of each window of size x size.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(std::int64_t size, std::int64_t stride = 0, std::int64_t padding = 0);
  Tensor forward(const Tensor& x) override { return maxpool2d(x, window_, at_).first; }

 private:
  Rectangle window_;
  Sliding at_;
};

// The mean of each window of size x size, side by side; what does not fill a window is left out.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(std::int64_t size);
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t size_;
};

// (N, ...) -> (N, n).
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override;
};

// Functions of each element whose gradient reads their result alone: what they are given need not
// be stored, so a linear layer can be one operation with them.
class OfElements : public Module {
 public:
  explicit OfElements(Activation f) : activation(f) {}
  const Activation activation;
};
class ReLU : public OfElements {
 public:
  ReLU() : OfElements(Activation::relu) {}
  Tensor forward(const Tensor& x) override { return relu(x); }
};
class Tanh : public OfElements {
 public:
  Tanh() : OfElements(Activation::tanh) {}
  Tensor forward(const Tensor& x) override { return tanh(x); }
};
class Sigmoid : public OfElements {
 public:
  Sigmoid() : OfElements(Activation::sigmoid) {}
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};
class GELU : public Module {  // with tanh, as torch.nn.GELU("tanh")
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
};

// One after the other; their names are 0, 1, 2, ... A Linear and what is OfElements behind it are
// one operation.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class... Layers>
  explicit Sequential(std::unique_ptr<Layers>... layers) {
    (add(std::move(layers)), ...);
  }
  void add(std::unique_ptr<Module> layer);
  size_t size() const { return layers_.size(); }
  Module& operator[](size_t i) { return *layers_.at(i); }
  Tensor forward(const Tensor& x) override;

 private:
  // A layer, or two that are one operation: then `linear` and what follows it.
  struct Part {
    Module* layer;
    const Linear* linear;
    Activation activation;
  };
  std::vector<std::unique_ptr<Module>> layers_;
  std::vector<Part> parts_;
};

}  // namespace framework
