#include "stage7_transformer/06_transformer_block/problem.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace transformer_block {

void check(const Shape& shape) {
  if (shape.B == 0 || shape.T == 0 || shape.C == 0 || shape.H == 0)
    throw std::invalid_argument("transformer_block: B, T, C and H must be at least 1");
  if (shape.C % shape.H != 0)
    throw std::invalid_argument("transformer_block: " + std::to_string(shape.C) +
                                " channels are no multiple of " + std::to_string(shape.H) +
                                " heads");
  if (shape.D() > attention::kMostDepth)
    throw std::invalid_argument("transformer_block: heads of " + std::to_string(shape.D()) +
                                " channels; attention takes up to " +
                                std::to_string(attention::kMostDepth));
}

attention::Problem attention_problem(const Shape& shape) {
  const float scale = 1 / std::sqrt(static_cast<float>(shape.D()));
  return {shape.B, shape.H, shape.T, shape.T, shape.D(), true, scale};
}

std::vector<ParameterShape> parameter_shapes(size_t C) {
  const size_t wide = kExpansion * C;
  return {{"norm1.weight", {C}}, {"norm1.bias", {C}},       {"qkv.weight", {3 * C, C}},
          {"qkv.bias", {3 * C}}, {"proj.weight", {C, C}},   {"proj.bias", {C}},
          {"norm2.weight", {C}}, {"norm2.bias", {C}},       {"fc.weight", {wide, C}},
          {"fc.bias", {wide}},   {"out.weight", {C, wide}}, {"out.bias", {C}}};
}
Layers layers(const Shape& shape, const Parameters& p) {
  const size_t C = shape.C, wide = kExpansion * C;
  return {{C, 3 * C, p.qkv_w, p.qkv_bias},
          {C, C, p.proj_w, p.proj_bias},
          {C, wide, p.fc_w, p.fc_bias},
          {wide, C, p.out_w, p.out_bias}};
}

}  // namespace transformer_block
