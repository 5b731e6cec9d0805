// split_columns: A^T x, slices of rows, and loads of several rows in flight.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = alpha A^T x + beta y    A (rows, cols), x (rows), y (cols), any sizes. With several slices of
//                             rows (gridDim.y): partials[s, j] = column j of A times x in slice s.
// Fixes : thread_per_column has too few threads, each with one 4-byte load in flight.
// Idea  : slices of rows give every multiprocessor work; a thread owns a Value's columns, float4 or
//         float, and has loads of several rows in flight; the block adds its rows' sums.
// Thread: (x, y) of block (b, s) sums the Value b * blockDim.x + x of rows y, y + blockDim.y, ...
// Costs : 4 rows cols bytes; 1 barrier; 5 kColumnLoads registers for what is in flight.
template <class Value>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    gemv_split_columns(Product p, float* partials) {
  __shared__ Value sums[kBlock];
  constexpr unsigned kWidth = sizeof(Value) / sizeof(float),
                     kLoads = loads_in_flight(kWidth, kColumnLoads);
  const unsigned height = blockDim.y;
  const size_t values = p.cols / kWidth, stride = p.lda / kWidth;
  const size_t value = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t slice = gpu::ceil_div(p.rows, gridDim.y);
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, p.rows);

  Value sum = {};
  if (value < values) {
    const Value* column = reinterpret_cast<const Value*>(p.a) + value;
    // exercise: rounds of kLoads rows, the rows left over (about 11 lines)
    size_t row = begin + threadIdx.y;
    for (; row + (kLoads - 1) * height < end; row += kLoads * height) {
      Value held[kLoads];
      float held_x[kLoads];
      for (unsigned k = 0; k < kLoads; ++k) {
        held[k] = column[(row + k * height) * stride];
        held_x[k] = p.x[row + k * height];
      }
      for (unsigned k = 0; k < kLoads; ++k) scale_add(sum, held[k], held_x[k]);
    }
    for (; row < end; row += height) scale_add(sum, column[row * stride], p.x[row]);
    // end exercise
  }
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's rows are in shared memory
  if (threadIdx.y == 0 && value < values) {
    for (unsigned y = 1; y < height; ++y) scale_add(sum, sums[y * blockDim.x + threadIdx.x], 1.0f);
    const float* elements = reinterpret_cast<const float*>(&sum);
    for (unsigned k = 0; k < kWidth; ++k)
      deliver(p, partials, p.cols, value * kWidth + k, elements[k]);
  }
}

void launch_columns(const Product& p, const Workspace& workspace, const ColumnPlan& plan,
                    hipStream_t stream) {
  if (p.cols == 0) return;
  const dim3 block(plan.block_width, kBlock / plan.block_width);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(p.cols / plan.width, plan.block_width)),
                  plan.slices);
  if (plan.width == 4)
    LAUNCH_ON(stream, gemv_split_columns<float4>, grid, block, 0, p, workspace.partials);
  else
    LAUNCH_ON(stream, gemv_split_columns<float>, grid, block, 0, p, workspace.partials);
  launch_add_slices(p, workspace.partials, p.cols, plan.slices, stream);
}

// The columns that float4s take, and then the one to three (or all) that they do not.
void launch_split_columns(const Product& product, const Workspace& workspace, hipStream_t stream) {
  const Product p = checked(product, true);
  const size_t vectors = float4_columns(p);
  const Product wide = some_columns(p, 0, vectors);
  const Product single = some_columns(p, vectors, p.cols - vectors);
  launch_columns(wide, workspace, plan_columns(wide, 4), stream);
  launch_columns(single, workspace, plan_columns(single, 1), stream);
}

}  // namespace gemv
