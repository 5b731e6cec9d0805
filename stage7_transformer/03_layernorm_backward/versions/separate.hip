// separate: one kernel along the rows, one down the columns.
#include <algorithm>

#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/02_layernorm/detail/stored.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/03_layernorm_backward/problem.h"

namespace layernorm_backward {

// grad_x = rstd (g - mean of g - n mean of g n) + grad_residual    all (rows, cols), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : a team has a row to itself: two sums, for the row's mean and rstd, then the gradients.
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 2 reads of both inputs, of which the cache may serve one, and 1 write.
template <class Team, class G>
static __global__ void layernorm_grad_x(PassOf<G> pass) {
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols;
    const float mean = pass.mean[row], rstd = pass.rstd[row], count = static_cast<float>(cols);
    // exercise: the two sums over the row, then the gradients (about 15 lines)
    float sum = 0, sum_n = 0;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float g = gpu::to_float(pass.grad_y[begin + c]) * pass.gain[c];
      sum += g;
      sum_n += g * ((pass.x[begin + c] - mean) * rstd);
    }
    const float mean_g = Team::template sum<0>(sum) / count;
    const float mean_gn = Team::template sum<1>(sum_n) / count;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float g = gpu::to_float(pass.grad_y[begin + c]) * pass.gain[c];
      const float n = (pass.x[begin + c] - mean) * rstd;
      const float grad = rstd * (g - mean_g - n * mean_gn);
      const bool alone = pass.grad_residual == nullptr;
      pass.grad_x[begin + c] = alone ? grad : grad + pass.grad_residual[begin + c];
    }
    // end exercise
    if (pass.rounded != nullptr)
      for (size_t c = Team::rank(); c < cols; c += Team::size())
        layernorm::store_value(pass.rounded, begin + c, pass.grad_x[begin + c]);
  }
}

// partials[s, 0, c] = the sum of grad_y n, partials[s, 1, c] = of grad_y, over column c of slice s.
// Fixes : the sums of gain and bias run down the columns, those of grad_x along the rows.
// Idea  : a thread per column, so that neighbours read neighbours; in slices of the rows, so that
//         there are threads enough.
// Thread: t owns column blockIdx.x * blockDim.x + t of the `slice` rows from blockIdx.y * slice on.
// Costs : 8 rows cols bytes, which the kernel for grad_x reads once more.
template <class G>
static __global__ void layernorm_column_sums(float* partials, PassOf<G> pass, size_t slice) {
  const size_t c = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, pass.rows);
  if (c >= pass.cols) return;
  float sum_gain = 0, sum_bias = 0;
  for (size_t row = begin; row < end; ++row) {
    const float grad = gpu::to_float(pass.grad_y[row * pass.cols + c]);
    sum_gain += grad * ((pass.x[row * pass.cols + c] - pass.mean[row]) * pass.rstd[row]);
    sum_bias += grad;
  }
  partials[blockIdx.y * 2 * pass.cols + c] = sum_gain;
  partials[(blockIdx.y * 2 + 1) * pass.cols + c] = sum_bias;
}

constexpr unsigned kSumWidth = 8, kSumHeight = 32;  // threads of a block that adds parts
constexpr unsigned kColumnBlock = 64;

// Slices of at least kLeastSlice rows: each is a row of partials, twice.
static size_t count_slices(size_t parts, size_t rows) {
  return std::clamp(gpu::ceil_div(rows, kLeastSlice), size_t{1}, std::min(parts, gpu::kMaxGridY));
}

// grad_gain[c], grad_bias[c] = sum over p of partials[p, 0 and 1, c]    partials (parts, 2, cols)
// Fixes : a block can't know when the others have left their sums. The next launch can.
// Idea  : few columns, many parts: kSumHeight threads share a column's parts, always in the same
//         order.
// Thread: (x, y) adds the parts y, y + kSumHeight, ... of column blockIdx.x * kSumWidth + x.
// Costs : 8 parts cols bytes, which the L2 cache still holds; 1 barrier.
static __global__ void layernorm_add_parts(float* grad_gain, float* grad_bias,
                                           const float* partials, size_t parts, size_t cols) {
  __shared__ float sums[kSumHeight][kSumWidth];
  const size_t c = size_t{blockIdx.x} * kSumWidth + threadIdx.x;
  float sum = 0;
  if (c < 2 * cols)
    sum = embedding::sum_of_rows<float>(partials, threadIdx.y, parts, kSumHeight, 2 * cols, c);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y == 0 && c < 2 * cols) {
    for (unsigned y = 1; y < kSumHeight; ++y) sum += sums[y][threadIdx.x];
    if (c < cols)
      grad_gain[c] = sum;
    else
      grad_bias[c - cols] = sum;
  }
}

void launch_add_parts(float* grad_gain, float* grad_bias, const float* partials, size_t parts,
                      size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, layernorm_add_parts,
            static_cast<unsigned>(gpu::ceil_div(2 * cols, size_t{kSumWidth})),
            dim3(kSumWidth, kSumHeight), 0, grad_gain, grad_bias, partials, parts, cols);
}

// The sums of gain and bias come first: grad_x may take the place of what they are made of.
template <class Team, class G>
void launch_by(float* grad_gain, float* grad_bias, const PassOf<G>& pass, Workspace& workspace,
               hipStream_t stream) {
  const size_t slices = count_slices(workspace.parts(pass.rows, pass.cols), pass.rows);
  const size_t slice = gpu::ceil_div(pass.rows, slices);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(pass.cols, size_t{kColumnBlock})),
                  static_cast<unsigned>(slices));
  LAUNCH_ON(stream, layernorm_column_sums<G>, grid, kColumnBlock, 0, workspace.partials.data(),
            pass, slice);
  launch_add_parts(grad_gain, grad_bias, workspace.partials.data(), slices, pass.cols, stream);
  if (pass.rows > 0)
    LAUNCH_ON(stream, (layernorm_grad_x<Team, G>), layernorm::team_blocks<Team>(pass.rows),
              Team::kBlockThreads, 0, pass);
}

void launch_separate(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
                     hipStream_t stream) {
  launch_by<layernorm::RowWave>(grad_gain, grad_bias, pass, workspace, stream);
}

// A team of one thread.
struct ThreadTeam {
  static constexpr unsigned kBlockThreads = layernorm::kBlock;
  static unsigned host_size() { return 1; }
  __device__ static unsigned size() { return 1; }
  __device__ static unsigned rank() { return 0; }
  __device__ static size_t first_row() { return size_t{blockIdx.x} * kBlockThreads + threadIdx.x; }
  __device__ static size_t rows_in_grid() { return size_t{gridDim.x} * kBlockThreads; }
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    return value;
  }
};

template <class G>
void launch_separate_by_threads(float* grad_gain, float* grad_bias, const PassOf<G>& pass,
                                Workspace& workspace, hipStream_t stream) {
  launch_by<ThreadTeam>(grad_gain, grad_bias, pass, workspace, stream);
}
template <class G>
void launch_separate_by_blocks(float* grad_gain, float* grad_bias, const PassOf<G>& pass,
                               Workspace& workspace, hipStream_t stream) {
  launch_by<layernorm::RowBlock<layernorm::kBlock>>(grad_gain, grad_bias, pass, workspace, stream);
}
using Bf16Pass = PassOf<gpu::bfloat16>;
template void launch_separate_by_threads(float*, float*, const Pass&, Workspace&, hipStream_t);
template void launch_separate_by_threads(float*, float*, const Bf16Pass&, Workspace&, hipStream_t);
template void launch_separate_by_blocks(float*, float*, const Pass&, Workspace&, hipStream_t);
template void launch_separate_by_blocks(float*, float*, const Bf16Pass&, Workspace&, hipStream_t);

}  // namespace layernorm_backward
