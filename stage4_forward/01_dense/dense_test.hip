// Layers with a mistake that dense_test.cpp must see fail, and one without.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense_test {

using activations::Relu;
using dense::Layer;

void launch_right(float* y, const float* x, size_t batch, const Layer& layer,
                  const gemv::Workspace& workspace, hipStream_t stream);
void launch_bias_of_row(float* y, const float* x, size_t batch, const Layer& layer,
                        const gemv::Workspace& workspace, hipStream_t stream);
void launch_no_bias(float* y, const float* x, size_t batch, const Layer& layer,
                    const gemv::Workspace& workspace, hipStream_t stream);
void launch_bias_behind_activation(float* y, const float* x, size_t batch, const Layer& layer,
                                   const gemv::Workspace& workspace, hipStream_t stream);
void launch_reads_old_y(float* y, const float* x, size_t batch, const Layer& layer,
                        const gemv::Workspace& workspace, hipStream_t stream);
void launch_swapped_weights(float* y, const float* x, size_t batch, const Layer& layer,
                            const gemv::Workspace& workspace, hipStream_t stream);
void launch_without_last_input(float* y, const float* x, size_t batch, const Layer& layer,
                               const gemv::Workspace& workspace, hipStream_t stream);

enum class Kind { right, bias_of_row, no_bias, bias_behind_activation, reads_old_y };

// Epilogues of step 2.3's kernel.
struct Epilogue {
  const float* bias;
  Kind kind;
  __device__ float operator()(float sum, size_t row, size_t col, const float* before) const {
    switch (kind) {
      case Kind::right:
        return Relu{}(sum + bias[col]);
      case Kind::bias_of_row:
        return Relu{}(sum + bias[row]);
      case Kind::no_bias:
        return Relu{}(sum);
      case Kind::bias_behind_activation:
        return Relu{}(sum) + bias[col];
      case Kind::reads_old_y:
        return Relu{}(sum + bias[col] + 0 * *before);
    }
    return 0;
  }
};

static void launch(const gemm::Product& product, const Layer& layer, Kind kind,
                   hipStream_t stream) {
  using Both = gemm::Layouts<gemm::Layout::NT, gemm::Layout::NN>;
  gemm::best<Both>(product, Epilogue{layer.bias, kind}, stream);
}

void launch_right(float* y, const float* x, size_t batch, const Layer& layer,
                  const gemv::Workspace&, hipStream_t stream) {
  launch(dense::product(y, x, batch, layer), layer, Kind::right, stream);
}

void launch_bias_of_row(float* y, const float* x, size_t batch, const Layer& layer,
                        const gemv::Workspace&, hipStream_t stream) {
  launch(dense::product(y, x, batch, layer), layer, Kind::bias_of_row, stream);
}

void launch_no_bias(float* y, const float* x, size_t batch, const Layer& layer,
                    const gemv::Workspace&, hipStream_t stream) {
  launch(dense::product(y, x, batch, layer), layer, Kind::no_bias, stream);
}

void launch_bias_behind_activation(float* y, const float* x, size_t batch, const Layer& layer,
                                   const gemv::Workspace&, hipStream_t stream) {
  launch(dense::product(y, x, batch, layer), layer, Kind::bias_behind_activation, stream);
}

void launch_reads_old_y(float* y, const float* x, size_t batch, const Layer& layer,
                        const gemv::Workspace&, hipStream_t stream) {
  launch(dense::product(y, x, batch, layer), layer, Kind::reads_old_y, stream);
}

// W in place of W^T: the same sizes where w is square.
void launch_swapped_weights(float* y, const float* x, size_t batch, const Layer& layer,
                            const gemv::Workspace&, hipStream_t stream) {
  gemm::Product p = dense::product(y, x, batch, layer);
  p.layout = gemm::Layout::NN;
  launch(p, layer, Kind::right, stream);
}

void launch_without_last_input(float* y, const float* x, size_t batch, const Layer& layer,
                               const gemv::Workspace&, hipStream_t stream) {
  gemm::Product p = dense::product(y, x, batch, layer);
  --p.K;
  launch(p, layer, Kind::right, stream);
}

}  // namespace dense_test
