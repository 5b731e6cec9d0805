// What the two files of rules share: the rules of whole layers and losses, and a few helpers.
#pragma once

#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/03_autograd/rules.h"

namespace framework {

Tensor scalar_like(const Tensor& like, double value);  // of its type, on its device
Tensor scaled(const Tensor& a, double factor);
// The same elements in row-major order under another shape, copied where no view shows them so.
inline Tensor reshaped(const Tensor& a, const Shape& shape) {
  return a.contiguous().reshape(shape);
}

void matmul_rule(Backward& b);
void linear_rule(Backward& b);
std::uint32_t needs_of_activation(const Call& call);
void softmax_rule(Backward& b);
void log_softmax_rule(Backward& b);
void squared_error_rule(Backward& b);
void cross_entropy_rule(Backward& b);
void conv2d_rule(Backward& b);
void maxpool2d_rule(Backward& b);
void embedding_rule(Backward& b);
void layernorm_rule(Backward& b);
void attention_rule(Backward& b);

}  // namespace framework
