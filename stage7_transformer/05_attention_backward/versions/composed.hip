// composed: five products and two passes over the scores.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage7_transformer/04_attention/composed.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/05_attention_backward/problem.h"

namespace attention_backward {

using namespace attention;  // views, sizes, and the launches of its composed.h

// gradients = probabilities (gradients - delta)    all (B, H, Tq, Tk); delta (B, H, T), of which
//                                                  the last Tq of each head are meant.
// Fixes : a product knows nothing of softmax, and nothing of the mask.
// Idea  : a probability falls where others of its row rise: on average, weighted, by delta.
// Thread: t owns key t of the queries blockIdx.y, blockIdx.y + gridDim.y, ..., and so with heads.
// Costs : 12 bytes per score.
static __global__ void score_gradients(float* gradients, const float* probabilities,
                                       const float* delta, size_t T, Problem p) {
  const size_t key = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (key >= p.Tk) return;
  for (size_t head = blockIdx.z; head < p.B * p.H; head += gridDim.z)
    for (size_t query = blockIdx.y; query < p.Tq; query += gridDim.y) {
      const size_t i = (head * p.Tq + query) * p.Tk + key;
      const float slope = gradients[i] - delta[head * T + (T - p.Tq) + query];
      gradients[i] = key < visible_keys(p, query) ? probabilities[i] * slope : 0;
    }
}

// delta[row] = sum over d of grad_out[row,d] out[row,d]    delta (B, H, Tq).
// Fixes : the sum over a row of P grad_P needs the whole row.
// Idea  : it is the same number as grad_out . out, which are D numbers each.
// Thread: `lanes` neighbours per row, a power of two, own its columns: a wave as in 3.2's
//         wave_per_row, or a part of one where rows are shorter.
// Costs : 8 D bytes per row.
static __global__ void row_products(float* delta, ConstView grad_out, ConstView out, Problem p,
                                    int lanes) {
  const size_t rows_of_wave = static_cast<size_t>(gpu::wave_size() / lanes);
  const size_t waves = blockDim.x / static_cast<size_t>(gpu::wave_size());
  const size_t rows = p.B * p.H * p.Tq;
  const int lane = gpu::lane_id() % lanes;
  for (size_t first = (blockIdx.x * waves + static_cast<size_t>(gpu::wave_id())) * rows_of_wave;
       first < rows; first += gridDim.x * waves * rows_of_wave) {
    const size_t row = first + static_cast<size_t>(gpu::lane_id() / lanes);
    float sum = 0;
    if (row < rows) {
      const size_t head = row / p.Tq, batch = head / p.H, of_batch = head % p.H;
      const float* a = grad_out.head(batch, of_batch) + row % p.Tq * grad_out.stride_row;
      const float* b = out.head(batch, of_batch) + row % p.Tq * out.stride_row;
      for (size_t d = static_cast<size_t>(lane); d < p.D; d += static_cast<size_t>(lanes))
        sum += a[d] * b[d];
    }
    sum = dot::wave_sum(sum, lanes);
    if (row < rows && lane == 0) delta[row] = sum;
  }
}

void launch_row_products(float* delta, const ConstView& grad_out, const ConstView& out,
                         const Problem& p, hipStream_t stream) {
  const size_t rows = p.heads() * p.Tq;
  const unsigned wave = gpu::device_wave_size();
  unsigned lanes = 1;  // with two numbers each, where a wave has so many
  while (lanes < wave && 2 * lanes < p.D) lanes *= 2;
  if (rows > 0)
    LAUNCH_ON(stream, row_products,
              softmax::row_blocks(rows, vector_add::kBlock / lanes, vector_add::kBlock),
              vector_add::kBlock, 0, delta, grad_out, out, p, static_cast<int>(lanes));
}

// Five products and two passes over Tq x Tk numbers, of which there are two; with a mask, one more
// launch mends what is not finite.
void launch_composed(const View& grad_q, const View& grad_k, const View& grad_v,
                     const ConstView& grad_out, const ConstView& out, const float* lse,
                     const ConstView& q, const ConstView& k, const ConstView& v,
                     const Problem& problem, float* memory, hipStream_t stream) {
  check_backward(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, problem, memory);
  const size_t blind = blind_queries(problem);
  launch_fill_rows(grad_q, problem, blind, problem.D, 0, stream);
  const Problem p = seeing(problem);
  if (p.heads() * p.Tq == 0) {
    launch_fill_rows(grad_k, p, p.Tk, p.D, 0, stream);
    launch_fill_rows(grad_v, p, p.Tk, p.D, 0, stream);
    return;
  }
  const ConstView seeing_q = from_row(q, blind), seeing_grad = from_row(grad_out, blind);
  float* const delta = memory;
  float* const probabilities = delta + problem.heads() * problem.Tq;
  float* const gradients = probabilities + p.heads() * p.Tq * p.Tk;
  const View of_p = matrix(probabilities, p), of_scores = matrix(gradients, p);
  launch_probabilities(probabilities, nullptr, problem.Tq, seeing_q, k, p, stream);
  launch_row_products(delta, grad_out, out, problem, stream);
  multiply(gemm::Layout::TN, p.Tk, p.D, p.Tq, 1, of_p, seeing_grad, grad_v, p, stream);
  multiply(gemm::Layout::NT, p.Tq, p.Tk, p.D, 1, seeing_grad, v, of_scores, p, stream);
  LAUNCH_ON(stream, score_gradients, grid_of_scores(p), vector_add::kBlock, 0, gradients,
            probabilities, delta, problem.Tq, p);
  const View seeing_grad_q = from_row(grad_q, blind);
  multiply(gemm::Layout::NN, p.Tq, p.D, p.Tk, p.scale, of_scores, k, seeing_grad_q, p, stream);
  multiply(gemm::Layout::TN, p.Tk, p.D, p.Tq, p.scale, of_scores, seeing_q, grad_k, p, stream);
  launch_repeat_sums({{grad_v, probabilities, seeing_grad, 1, true},
                      {seeing_grad_q, gradients, k, p.scale, false},
                      {grad_k, gradients, seeing_q, p.scale, true}},
                     p, stream);
}

}  // namespace attention_backward
