// The reference of 7.6 in double: a block as a layer of step 5.5's model, and how far a float block
// is likely to be from it (double_numbers.h). Step 7.7's reference is made of such blocks. Plain
// C++.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "stage5_training/05_sequential/reference.h"
#include "stage7_transformer/06_transformer_block/double_numbers.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

using sequential::HostPass;
using sequential::Values;

// y = (x - mean) rstd gain + bias of each row of `channels` numbers of a sample.
class DoubleNorm : public sequential::DoubleLayer {
 public:
  explicit DoubleNorm(size_t channels) : channels_(channels) {}

  std::string description() const override;
  std::vector<sequential::Parameter> parameters() const override;
  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

 private:
  size_t channels_;
};

// A block. A sample is a sequence: T rows of C numbers. The parameters are those of Tensors. In
// bf16 it rounds what the version of that name stores with 16 bits.
class DoubleBlock : public sequential::DoubleLayer {
 public:
  // Sequences as shape.B of them has; a pass may have another number.
  explicit DoubleBlock(const Shape& shape, Precision precision = Precision::fp32)
      : shape_(shape), precision_(precision) {}

  std::string description() const override;
  std::vector<sequential::Parameter> parameters() const override;
  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

 private:
  Shape shape_;
  Precision precision_;
};

// y, grad_x and the parameters' gradients, in the order of Tensors.
struct Reference {
  Values y, grad_x;
  std::vector<Values> gradients;
};

// Forward and backward of x and grad_y (B, T, C); the errors are bounds.
Reference block_cpu(const std::vector<float>& x, const std::vector<float>& grad_y,
                    const std::vector<std::vector<float>>& p, const Shape& shape,
                    Precision precision = Precision::fp32);

}  // namespace transformer_block
