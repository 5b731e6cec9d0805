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

void matmul_rule(WayBack& b);
void linear_rule(WayBack& b);
std::uint32_t needs_of_activation(const Call& call);
void softmax_rule(WayBack& b);
void log_softmax_rule(WayBack& b);
void squared_error_rule(WayBack& b);
void cross_entropy_rule(WayBack& b);
void conv2d_rule(WayBack& b);
void maxpool2d_rule(WayBack& b);
void embedding_rule(WayBack& b);
void layernorm_rule(WayBack& b);
void add_layernorm_rule(WayBack& b);
void attention_rule(WayBack& b);

}  // namespace framework
