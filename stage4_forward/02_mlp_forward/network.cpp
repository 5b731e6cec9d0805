#include <stdexcept>
#include <string>

#include "stage4_forward/02_mlp_forward/mlp_forward.h"

namespace mlp_forward {

void check(const Network& network) {
  if (network.first.out != network.second.in)
    throw std::invalid_argument(
        "mlp_forward: the first layer makes " + std::to_string(network.first.out) +
        " values and the second takes " + std::to_string(network.second.in));
}

}  // namespace mlp_forward
