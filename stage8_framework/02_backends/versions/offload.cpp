// The network with a fast routine for each operation, and host memory between them: each operation
// sends its inputs to the device and fetches its result.
//
// Costs: an upload of all operands, weights included, and a download for each operation. Each waits
//        until its bytes have arrived, so the device is idle while the host copies, and the other
//        way around.
#include "stage8_framework/02_backends/backends.h"
#include "stage8_framework/02_backends/functions.h"

namespace backends {

void forward_offload(float* y, const float* x, const TwoLayers& network) {
  using namespace framework;
  using Floats = std::vector<float>;
  const auto upload = [&](const Floats& values, const Shape& shape) {
    return Tensor::from_host(network.device, values, shape);
  };
  const Shape hidden{network.batch, network.hidden}, output{network.batch, network.outputs};
  const Tensor input =
      Tensor::from_host(network.device, x, {network.batch, network.inputs}, Dtype::f32);
  const Floats product =
      matmul(input, upload(network.w1, {network.inputs, network.hidden})).to_host<float>();
  const Floats sum =
      add(upload(product, hidden), upload(network.bias, {network.hidden})).to_host<float>();
  const Floats positive = relu(upload(sum, hidden)).to_host<float>();
  const Floats logits =
      matmul(upload(positive, hidden), upload(network.w2, {network.hidden, network.outputs}))
          .to_host<float>();
  softmax(upload(logits, output)).to_host(y);
}

}  // namespace backends
