// The network of the second ladder with random weights, and what it must return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/compare.h"
#include "stage8_framework/02_backends/backends.h"

namespace backends {

struct NetworkSizes {
  std::int64_t batch, inputs, hidden, outputs;

  std::string name() const;
};

// Everything random with mean zero, on the host; w1 (inputs, hidden) and w2 (hidden, outputs).
struct NetworkValues {
  NetworkValues(const NetworkSizes& sizes, std::uint64_t seed);

  TwoLayers on(framework::Device& device) const;  // with the weights uploaded
  Comparison compare(const std::vector<float>& y) const;

  NetworkSizes sizes;
  std::vector<float> x, w1, bias, w2;
  // y in double, and what a correct float result may be off: 4.2's bound of the logits, carried
  // through the softmax, and 3.2's of the softmax itself.
  std::vector<double> want, error;
};

}  // namespace backends
