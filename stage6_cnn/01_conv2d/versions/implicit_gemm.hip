// implicit_gemm: a matrix product whose columns are made in shared memory, where they are used.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/any_window.h"
#include "stage6_cnn/01_conv2d/detail/window_sums.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

// y = f(x * w + bias), as sums over windows    any sizes.
// Fixes : im2col writes and reads R S times what there is to read of x.
// Idea  : a block of the matrix product makes the tiles of columns that it needs from x itself, in
//         shared memory; while one is multiplied the next one is on its way, as in step 2.3.
// Thread: brings the lines of kTileN / kThreads pixels; owns the kThreadM x kThreadN sums (map,
//         pixel) that Places names.
// Costs : 1 barrier per tile; two of them in shared memory. x is read once per R S / (strides)
//         uses, which the first-level cache serves.
template <class Shape, class Activation>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    conv2d_implicit_gemm(Windows p, BiasActivation<Activation> epilogue) {
  __shared__ gemm::Tiles<Shape> tiles[2];
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned down = static_cast<unsigned>(gpu::ceil_div(p.maps, Shape::kTileM));
  const int first_map = static_cast<int>(blockIdx.x % down) * Shape::kTileM;
  const int first_pixel = static_cast<int>(blockIdx.x / down) * Shape::kTileN;
  const gemm::ThreadTile own = Places<Shape>::of(thread);
  Loader<Shape, AnyWindow> loader(p, first_map, first_pixel, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  const int steps = loader.tiles();
  if (steps > 0) {
    loader.load();
    loader.store(tiles[0], thread);
  }
  __syncthreads();  // the first tiles are in shared memory
  for (int step = 0; step < steps; ++step) {
    // exercise: fetch the next tiles, multiply these ones' lines (about 10 lines)
    const gemm::Tiles<Shape>& current = tiles[step % 2];
    const bool more = step + 1 < steps;
    if (more) loader.load();
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      gemm::load_fragment(held_a, &current.a[k][own.row], own.row_step);
      gemm::load_fragment(held_b, &current.b[k][own.col], own.col_step);
      gemm::add_outer_product(sums, held_a, held_b);
    }
    if (more) loader.store(tiles[(step + 1) % 2], thread);
    __syncthreads();  // the next tiles are in shared memory, and all lines of these were read
    // end exercise
  }
  store_sums<Shape>(p, epilogue, first_map, first_pixel, own, sums);
}

template <class Activation>
void launch_implicit_gemm(float* y, const float* x, const float* w, const float* bias,
                          const Problem& problem, Workspace&, hipStream_t stream) {
  using Shape = Large::Shape<8>;
  check_forward(y, x, w, problem);
  for_images<Shape>(windows_of(y, x, w, problem), problem.N,
                    [&](const Windows& part, unsigned blocks) {
                      LAUNCH_ON(stream, (conv2d_implicit_gemm<Shape, Activation>), blocks,
                                Shape::kThreads, 0, part, BiasActivation<Activation>{bias});
                    });
}

template void launch_implicit_gemm<dense::Linear>(float*, const float*, const float*, const float*,
                                                  const Problem&, Workspace&, hipStream_t);
template void launch_implicit_gemm<activations::Relu>(float*, const float*, const float*,
                                                      const float*, const Problem&, Workspace&,
                                                      hipStream_t);

}  // namespace conv2d
