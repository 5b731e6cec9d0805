// 7.4  attention: every query looks at all keys and takes their values, by how well they fit:
//
//   out = softmax(scale Q K^T + mask) V      for each of B sequences and H heads on its own
//
//   q, out (B, H, Tq, D)     k, v (B, H, Tk, D)     lse (B, H, Tq)
//
// The scores, Tq x Tk for each head, are the largest array by far: with T = 4096 they are 64 times
// as large as Q. The ladder gets rid of them: first they are stored, then kept in shared memory,
// then no more than a tile of them is ever there, forwards and backwards.
//
// Where heads lie is the caller's business: a View says how far apart batches, heads and rows are;
// the D numbers of a row are neighbours. Q, K and V of one matrix product, (B, T, 3, H, D), are
// three such views. Any Tq and Tk (0 too), D from 1 to 256, aligned to 4 bytes; outputs overlap no
// input. A causal query i sees the keys j <= i + Tk - Tq: the last query sees all, so that one new
// query, Tq = 1, can look back at a cache of Tk keys. lse is the logarithm of a row's sum of
// exponentials; a row that sees no key gets 0, lse = -infinity and gradients of 0. All versions
// give the same bits on every run of one device, and launch on `stream` without waiting.
//
// A pair of a query and a key that it does not see adds nothing to out or to a gradient, whatever
// the rows of q, k, v and grad_out hold: 0 times NaN is not computed. So NaN or an infinity reaches
// a row of out only from its own query or from a key that it sees, and a row of a gradient only
// through such pairs; no other row changes by a bit (with composed: by more than its error). A key
// that a query sees with a weight that has become 0 may add nothing either.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"

namespace attention {

using dense::Values;
using device_matrix::DeviceBuffer;

struct Problem {
  size_t B, H, Tq, Tk, D;
  bool causal;
  float scale;  // above 0; usually 1 / sqrt(D)

  size_t heads() const { return B * H; }
};

// Element d of row t of head h of sequence b is data[b stride_batch + h stride_head + t stride_row
// + d].
struct View {
  float* data;
  size_t stride_batch, stride_head, stride_row;

  __host__ __device__ float* head(size_t batch, size_t number) const {
    return data + (batch * stride_batch + number * stride_head);
  }
};
struct ConstView {
  const float* data = nullptr;
  size_t stride_batch = 0, stride_head = 0, stride_row = 0;

  ConstView() = default;
  ConstView(const float* first, size_t batch, size_t head_of_batch, size_t row)
      : data(first), stride_batch(batch), stride_head(head_of_batch), stride_row(row) {}
  ConstView(const View& v) : ConstView(v.data, v.stride_batch, v.stride_head, v.stride_row) {}

  __host__ __device__ const float* head(size_t batch, size_t number) const {
    return data + (batch * stride_batch + number * stride_head);
  }
};

// An array (B, H, T, D).
inline View heads_first(float* data, size_t H, size_t T, size_t D) {
  return {data, H * T * D, T * D, D};
}
inline ConstView heads_first(const float* data, size_t H, size_t T, size_t D) {
  return {data, H * T * D, T * D, D};
}
// Part `part` of an array (B, T, parts, H, D): of Q, K and V side by side, say; or of (B, T, H, D).
inline View rows_first(float* data, size_t T, size_t H, size_t D, size_t parts = 1,
                       size_t part = 0) {
  return {data + part * H * D, T * parts * H * D, D, parts * H * D};
}
inline ConstView rows_first(const float* data, size_t T, size_t H, size_t D, size_t parts = 1,
                            size_t part = 0) {
  return {data + part * H * D, T * parts * H * D, D, parts * H * D};
}

// How many keys, from key 0 on, query `query` sees.
__host__ __device__ inline size_t visible_keys(const Problem& p, size_t query) {
  if (!p.causal) return p.Tk;
  const size_t end = query + p.Tk + 1;
  return end <= p.Tq ? 0 : end - p.Tq < p.Tk ? end - p.Tq : p.Tk;
}

// So many queries, from query 0 on, see no key.
__host__ __device__ inline size_t blind_queries(const Problem& p) {
  return p.Tk == 0 ? p.Tq : p.causal && p.Tq > p.Tk ? p.Tq - p.Tk : 0;
}

// ---- Reference and bound ----------------------------------------------------------------------

// What an element of the two sums of a row, of exponentials and of exponentials times values, goes
// through in a version, and what matrix units do differently.
struct Roundings {
  double exponentials;    // as whose product it is computed, at most
  double additions;       // of float
  double of_product = 1;  // that each term of a sum of products may lose
  double of_stored = 0;   // relative, of what is stored with fewer bits than a float has
};

// A row of one head: the queries' row, and all keys and values, (Tk, D) without gaps.
struct RowOf {
  const float *q, *k, *v;
};

// What becomes of a row in double, and how far a float version may be off.
struct ExpectedRow {
  std::vector<double> out, out_error;                      // (D)
  std::vector<double> probability, relative, score_error;  // of the keys that are seen
  double lse = -std::numeric_limits<double>::infinity(), lse_error = 0;
};

// a . b of D floats, and what their sum in float may be off.
struct Sum {
  double value = 0, absolute = 0;
  double error(size_t n, const Roundings& roundings) const {
    const double terms = roundings.of_product * static_cast<double>(n);
    return rounding::worst_case(terms, terms, absolute);
  }
};
inline Sum dot_row(const float* a, const float* b, size_t D) {
  Sum sum;
  for (size_t d = 0; d < D; ++d) {
    const double product = static_cast<double>(a[d]) * static_cast<double>(b[d]);
    sum.value += product, sum.absolute += std::fabs(product);
  }
  return sum;
}

// Let x be the scores times scale and p = exp(x - m), with any m that all keys of the row share.
// To first order in u = 2^-24 a float's p is off by a relative
//
//   a = |scale| rounding::worst_case(scores) + 2 u |x|   scale (and log2(e)) and their product are
//   rounded
//       + u (3 (max x - x) + 5 exponentials)   as in step 3.2's bounds
//
// or by r = exp(a) - 1 where a is not small. The row's sum l = sum of p is off by R = (sum of p r)
// / l and by the additions; out = (sum of p v) / l by what both are off, which is at most sum of
// p |v| (r + R) / (1 - R), by the additions of the products (rounding::worst_case) and by 4
// roundings of the quotient and of p, if it is stored. lse = log l + m inherits R, and rounds m and
// the logarithm.
inline ExpectedRow row_cpu(const RowOf& row, size_t visible, const Problem& p,
                           const Roundings& roundings) {
  ExpectedRow want;
  want.out.assign(p.D, 0), want.out_error.assign(p.D, 0);
  if (visible == 0) return want;
  const double u = kFloatRoundoff, scale = static_cast<double>(p.scale);
  std::vector<double> x(visible);
  want.probability.resize(visible), want.relative.resize(visible);
  want.score_error.resize(visible);
  double max = -std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < visible; ++j) {
    const Sum score = dot_row(row.q, row.k + j * p.D, p.D);
    x[j] = scale * score.value;
    want.score_error[j] = scale * score.error(p.D, roundings) + 2 * u * std::fabs(x[j]);
    max = std::max(max, x[j]);
  }
  double sum = 0;
  for (size_t j = 0; j < visible; ++j) sum += want.probability[j] = std::exp(x[j] - max);
  double of_sum = u * roundings.additions;
  for (size_t j = 0; j < visible; ++j) {
    want.probability[j] /= sum;
    want.relative[j] =
        std::expm1(want.score_error[j] + u * (3 * (max - x[j]) + 5 * roundings.exponentials));
    of_sum += want.probability[j] * want.relative[j];
  }
  const double spread = of_sum < 1 ? 1 / (1 - of_sum) : std::numeric_limits<double>::infinity();
  std::vector<double> absolute(p.D, 0), inherited(p.D, 0), tiny(p.D, softmax::kTiny);
  for (size_t j = 0; j < visible; ++j) {
    want.relative[j] = (want.relative[j] + of_sum) * spread;
    for (size_t d = 0; d < p.D; ++d) {
      const double value = static_cast<double>(row.v[j * p.D + d]);
      const double size = want.probability[j] * std::fabs(value);
      want.out[d] += want.probability[j] * value;
      absolute[d] += size;
      inherited[d] += size * (want.relative[j] + roundings.of_stored * (1 + want.relative[j]));
      tiny[d] += softmax::kTiny * std::fabs(value);
    }
  }
  const double n = roundings.of_product * roundings.additions + 4;
  for (size_t d = 0; d < p.D; ++d) {
    const double error =
        inherited[d] + rounding::worst_case(n, n, absolute[d] + inherited[d]) + tiny[d];
    want.out_error[d] = error + roundings.of_stored * (std::fabs(want.out[d]) + error);
  }
  want.lse = max + std::log(sum);
  want.lse_error = of_sum * spread +
                   u * (5 * std::fabs(max) + std::fabs(want.lse) + 4 * std::fabs(std::log(sum)));
  return want;
}

// The rows `rows`, numbers in (B, H, Tq), of out and lse; arrays (B, H, T, D) on the host.
struct Expected {
  Values out, lse;
};
inline Expected forward_cpu(const std::vector<float>& q, const std::vector<float>& k,
                            const std::vector<float>& v, const Problem& p,
                            const Roundings& roundings, const std::vector<size_t>& rows) {
  Expected expected;
  for (const size_t row : rows) {
    const size_t keys = row / p.Tq * p.Tk * p.D;
    const ExpectedRow want = row_cpu({q.data() + row * p.D, k.data() + keys, v.data() + keys},
                                     visible_keys(p, row % p.Tq), p, roundings);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(expected.out.value, want.out), append(expected.out.error, want.out_error);
    append(expected.lse.value, {want.lse}), append(expected.lse.error, {want.lse_error});
  }
  return expected;
}

// The gradients of one head, from grad_out: rows `queries` of grad_q, rows `keys` of grad_k and
// grad_v, row behind row. With P the probabilities and S the scores before they are scaled:
//
//   grad_v = P^T grad_out      grad_P = grad_out V^T      grad_q = scale grad_S K
//   grad_S = P (grad_P - delta)       with delta = sum over the row of P grad_P
//                                                = sum over the row of out grad_out
//   grad_k = scale grad_S^T Q
//
// Each product inherits what its factors are off and adds rounding::worst_case, as in step 5.5. P
// comes from the row's lse where it was not kept, so it may be off by what lse is off, and by the
// rounding of lse and of the difference.
struct Head {
  const float *q, *k, *v, *grad_out;  // (Tq, D), (Tk, D), (Tk, D), (Tq, D)
};
struct ExpectedGradients {
  Values q, k, v;
};
inline ExpectedGradients backward_cpu(const Head& head, const Problem& p,
                                      const Roundings& roundings,
                                      const std::vector<size_t>& queries,
                                      const std::vector<size_t>& keys) {
  const double u = kFloatRoundoff, scale = static_cast<double>(p.scale);
  const size_t D = p.D;
  struct Gradient {
    Values values;
    std::vector<double> absolute;
    explicit Gradient(size_t n)
        : values{std::vector<double>(n), std::vector<double>(n)}, absolute(n) {}
    // value * x, where value is off by error.
    void add(size_t i, double value, double error, double x) {
      values.value[i] += value * x;
      values.error[i] += error * std::fabs(x);
      absolute[i] += (std::fabs(value) + error) * std::fabs(x);
    }
    // Of sums of n products, times `factor`.
    Values finish(double n, double factor, const Roundings& roundings) {
      n = roundings.of_product * (n + 1);
      for (size_t i = 0; i < absolute.size(); ++i) {
        values.value[i] *= factor;
        const double error = factor * (values.error[i] + rounding::worst_case(n, n, absolute[i]));
        values.error[i] =
            error + roundings.of_stored * (std::fabs(values.value[i]) + error) + softmax::kTiny;
      }
      return values;
    }
  };
  Gradient grad_q(queries.size() * D), grad_k(keys.size() * D), grad_v(keys.size() * D);
  size_t next_query = 0;
  for (size_t i = 0; i < p.Tq; ++i) {
    const size_t visible = visible_keys(p, i);
    const bool wanted = next_query < queries.size() && queries[next_query] == i;
    const float *q = head.q + i * D, *grad_out = head.grad_out + i * D;
    if (visible > 0) {
      const ExpectedRow row = row_cpu({q, head.k, head.v}, visible, p, roundings);
      double delta = 0, delta_error = 0, absolute = 0;
      for (size_t d = 0; d < D; ++d) {
        const double size = std::fabs(static_cast<double>(grad_out[d]));
        delta += static_cast<double>(grad_out[d]) * row.out[d];
        delta_error += size * row.out_error[d];
        absolute += size * (std::fabs(row.out[d]) + row.out_error[d]);
      }
      delta_error += rounding::worst_case(double(D), double(D), absolute);
      const auto add = [&](size_t j, auto use) {
        const double probability = row.probability[j];
        const double difference = -std::log(std::max(probability, softmax::kTiny));
        const double off = std::expm1(row.relative[j] + row.lse_error +
                                      u * (3 * std::fabs(row.lse) + 3 * difference + 5));
        const double error = probability * (off + roundings.of_stored * (1 + off)) + softmax::kTiny;
        const Sum of_p = dot_row(grad_out, head.v + j * D, D);
        const double slope = of_p.value - delta;
        double slope_error = of_p.error(D, roundings) + delta_error;
        slope_error += u * (std::fabs(slope) + slope_error);
        const double grad = probability * slope;
        double grad_error = error * (std::fabs(slope) + slope_error) + probability * slope_error;
        grad_error += (u + roundings.of_stored) * (std::fabs(grad) + grad_error) + softmax::kTiny;
        use(probability, error, grad, grad_error);
      };
      if (wanted)
        for (size_t j = 0; j < visible; ++j)
          add(j, [&](double, double, double grad, double error) {
            for (size_t d = 0; d < D; ++d)
              grad_q.add(next_query * D + d, grad, error, static_cast<double>(head.k[j * D + d]));
          });
      for (size_t n = 0; n < keys.size(); ++n)
        if (keys[n] < visible)
          add(keys[n], [&](double probability, double error, double grad, double grad_error) {
            for (size_t d = 0; d < D; ++d) {
              grad_v.add(n * D + d, probability, error, static_cast<double>(grad_out[d]));
              grad_k.add(n * D + d, grad, grad_error, static_cast<double>(q[d]));
            }
          });
    }
    if (wanted) ++next_query;
  }
  const double Tq = static_cast<double>(p.Tq), Tk = static_cast<double>(p.Tk);
  return {grad_q.finish(Tk, scale, roundings), grad_k.finish(Tq, scale, roundings),
          grad_v.finish(Tq, 1, roundings)};
}

// ---- What all versions share ------------------------------------------------------------------

// Throws std::invalid_argument where the arrays can't be what the sizes say.
inline void check(const Problem& p) {
  if (p.D == 0 || p.D > 256)
    throw std::invalid_argument("attention: a head of " + std::to_string(p.D) +
                                " numbers; it must have 1 to 256");
  if (!(p.scale > 0) || std::isinf(p.scale))
    throw std::invalid_argument("attention: the scale must be above 0 and finite");
}
inline void check_array(const char* name, const float* data, size_t elements) {
  if (elements == 0) return;
  if (data == nullptr) throw std::invalid_argument("attention: " + std::string(name) + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
    throw std::invalid_argument("attention: " + std::string(name) + " is not aligned to 4 bytes");
}
inline void check_forward(const View& out, const ConstView& q, const ConstView& k,
                          const ConstView& v, const Problem& p) {
  check(p);
  const size_t queries = p.heads() * p.Tq, keys = p.heads() * p.Tk;
  check_array("out", out.data, queries);
  if (queries == 0 || keys == 0) return;
  check_array("q", q.data, queries), check_array("k", k.data, keys);
  check_array("v", v.data, keys);
}
inline void check_backward(const View& grad_q, const View& grad_k, const View& grad_v,
                           const ConstView& grad_out, const ConstView& out, const float* lse,
                           const ConstView& q, const ConstView& k, const ConstView& v,
                           const Problem& p) {
  check(p);
  const size_t queries = p.heads() * p.Tq, keys = p.heads() * p.Tk;
  check_array("grad_q", grad_q.data, queries), check_array("grad_k", grad_k.data, keys);
  check_array("grad_v", grad_v.data, keys);
  if (queries == 0 || keys == 0) return;
  check_array("grad_out", grad_out.data, queries), check_array("out", out.data, queries);
  check_array("lse", lse, queries), check_array("q", q.data, queries);
  check_array("k", k.data, keys), check_array("v", v.data, keys);
}

// Throws std::invalid_argument where a grid can't have so many blocks.
inline unsigned grid_of(size_t blocks) {
  if (blocks > static_cast<size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument("attention: too many rows for one launch");
  return static_cast<unsigned>(blocks);
}

// Which matrices a version keeps in device memory, (B, H, Tq, Tk) each, beside what is a row's.
enum class Keeps { rows, one_matrix, two_matrices };

// Device memory that a launch needs beside its arrays, for problems of at most these sizes.
struct Workspace {
  explicit Workspace(const Problem& p, Keeps keeps = Keeps::rows)
      : delta(p.heads() * p.Tq),
        probabilities(keeps != Keeps::rows ? p.heads() * p.Tq * p.Tk : 0),
        gradients(keeps == Keeps::two_matrices ? p.heads() * p.Tq * p.Tk : 0) {}

  DeviceBuffer<float> delta;          // (B, H, Tq) for the backward pass
  DeviceBuffer<float> probabilities;  // (B, H, Tq, Tk)
  DeviceBuffer<float> gradients;      // (B, H, Tq, Tk) of the scores
};

// Throws std::invalid_argument where the workspace has less than the launch needs.
inline void check_workspace(const Workspace& workspace, const Problem& p, Keeps keeps) {
  const size_t rows = p.heads() * p.Tq, matrix = rows * p.Tk;
  if (workspace.delta.size() < rows ||
      (keeps != Keeps::rows && workspace.probabilities.size() < matrix) ||
      (keeps == Keeps::two_matrices && workspace.gradients.size() < matrix))
    throw std::invalid_argument("attention: the workspace was made for a smaller problem");
}

inline constexpr unsigned kBlock = dot::kBlock;  // threads per block where nothing else is said

// rows[b,h,t,d] = value    rows (B, H, T, D).
// Fixes : no product and no softmax knows what to do with a row without keys.
// Idea  : as device_matrix::fill_flat, through a view.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 4 bytes per element.
static __global__ void fill_rows(View rows, size_t B, size_t H, size_t T, size_t D, float value) {
  const size_t threads = size_t{gridDim.x} * blockDim.x, n = B * H * T * D;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t row = i / D, head = row / T;
    rows.head(head / H, head % H)[row % T * rows.stride_row + i % D] = value;
  }
}

inline void launch_fill_rows(const View& rows, const Problem& p, size_t T, size_t D, float value,
                             hipStream_t stream) {
  const size_t n = p.heads() * T * D;
  if (n == 0) return;
  LAUNCH_ON(stream, fill_rows, vector_add::grid_stride_blocks(n), kBlock, 0, rows, p.B, p.H, T, D,
            value);
}

template <class V>
V from_row(V view, size_t row) {
  view.data += row * view.stride_row;
  return view;
}

// ---- Composed of what is there ----------------------------------------------------------------

// (B, H) products of step 2.3: one launch where all heads of all three arrays lie equally far
// apart, else one per sequence.
inline void multiply(gemm::Layout layout, size_t M, size_t N, size_t K, float alpha,
                     const ConstView& a, const ConstView& b, const View& c, const Problem& p,
                     hipStream_t stream) {
  gemm::Product product;
  product.layout = layout, product.M = M, product.N = N, product.K = K, product.alpha = alpha;
  product.lda = a.stride_row, product.ldb = b.stride_row, product.ldc = c.stride_row;
  product.stride_a = a.stride_head, product.stride_b = b.stride_head;
  product.stride_c = c.stride_head;
  const auto even = [&](size_t batch, size_t head) { return batch == p.H * head; };
  const bool all = even(a.stride_batch, a.stride_head) && even(b.stride_batch, b.stride_head) &&
                   even(c.stride_batch, c.stride_head);
  product.batch = all ? p.heads() : p.H;
  for (size_t batch = 0; batch < (all ? 1 : p.B); ++batch) {
    product.a = a.head(batch, 0), product.b = b.head(batch, 0), product.c = c.head(batch, 0);
    gemm::best(product, stream);
  }
}

// scores = scale scores where the query sees the key, else -infinity    scores (B, H, Tq, Tk).
// Fixes : a product knows nothing of a mask.
// Idea  : one pass over the scores, in place; softmax makes 0 of -infinity.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 8 bytes per score.
static __global__ void mask_scores(float* scores, Problem p) {
  const size_t threads = size_t{gridDim.x} * blockDim.x, n = p.B * p.H * p.Tq * p.Tk;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    // exercise: scale what the query sees, hide what it does not (about 2 lines)
    const bool seen = i % p.Tk < visible_keys(p, i / p.Tk % p.Tq);
    scores[i] = seen ? p.scale * scores[i] : -INFINITY;
    // end exercise
  }
}

// What step 3.2's softmax stores: the probabilities, and of each row lse. Its row r is one of p.Tq
// rows, the last ones of lse's T. A row with NaN is NaN, but not where the query sees no key.
struct ProbabilitiesAndLogSum {
  float* lse;
  size_t T;
  Problem p;

  struct Row {
    float* lse;
    size_t seen;
    __device__ void finish(softmax::MaxSum whole) const {
      if (lse != nullptr) *lse = whole.max + logf(whole.sum);
    }
    __device__ float operator()(size_t key, float probability) const {
      return key < seen ? probability : 0;
    }
  };
  __device__ Row row(size_t r) const {
    const size_t query = r % p.Tq;
    return {lse == nullptr ? nullptr : lse + (r / p.Tq * T + (T - p.Tq) + query),
            visible_keys(p, query)};
  }
};

}  // namespace attention

// Every `extern template` is compiled once, in attention_instances.hip, and not in every program
// that includes this file.
namespace softmax {

extern template void launch_online(float*, const float*, size_t, size_t,
                                   attention::ProbabilitiesAndLogSum, hipStream_t);
extern template bool launch_row_in_registers(float*, const float*, size_t, size_t,
                                             attention::ProbabilitiesAndLogSum, hipStream_t);
extern template bool launch_row_in_shared(float*, const float*, size_t, size_t,
                                          attention::ProbabilitiesAndLogSum, hipStream_t);

}  // namespace softmax
namespace attention {

// The problem without the queries that see no key.
inline Problem seeing(Problem p) {
  p.Tq -= blind_queries(p);
  return p;
}
inline View matrix(float* data, const Problem& p) { return heads_first(data, p.H, p.Tq, p.Tk); }

// probabilities (B, H, Tq, Tk) and lse (unless it is null) of a problem in which all queries see.
inline void launch_probabilities(float* probabilities, float* lse, size_t Tq, const ConstView& q,
                                 const ConstView& k, const Problem& p, hipStream_t stream) {
  const size_t rows = p.heads() * p.Tq;
  multiply(gemm::Layout::NT, p.Tq, p.Tk, p.D, 1, q, k, matrix(probabilities, p), p, stream);
  LAUNCH_ON(stream, mask_scores, vector_add::grid_stride_blocks(rows * p.Tk), kBlock, 0,
            probabilities, p);
  softmax::launch_best(probabilities, probabilities, rows, p.Tk, ProbabilitiesAndLogSum{lse, Tq, p},
                       stream);
}

// Of sums[t,d] = factor sum over the others s of m(t,s) rows[s,d], which a product has made, those
// that are not finite once more: over the s that t sees, or of a key those that see it.
//                     sums (B, H, T, D)  rows (B, H, S, D)  m, or its transpose, (B, H, Tq, Tk)
// Fixes : the product multiplies zeros of m, too, and 0 times NaN or infinity is NaN.
// Idea  : where no row holds such numbers, reading the sums once is all that it costs.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 4 bytes per element; 8 more per pair and element that is computed again.
template <bool kOfKeys>
static __global__ void repeat_sums(View sums, const float* m, ConstView rows, float factor,
                                   Problem p) {
  const size_t threads = size_t{gridDim.x} * blockDim.x, T = kOfKeys ? p.Tk : p.Tq;
  const size_t n = p.B * p.H * T * p.D;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t d = i % p.D, t = i / p.D % T, head = i / p.D / T;
    float& stored = sums.head(head / p.H, head % p.H)[t * sums.stride_row + d];
    if (stored - stored == 0) continue;  // it is finite
    const float* of_m = m + head * p.Tq * p.Tk;
    const float* column = rows.head(head / p.H, head % p.H) + d;
    const size_t begin = kOfKeys && t + p.Tq > p.Tk ? t + p.Tq - p.Tk : 0;
    const size_t end = kOfKeys ? p.Tq : visible_keys(p, t);
    float sum = 0;
    for (size_t s = begin; s < end; ++s)
      sum += of_m[kOfKeys ? s * p.Tk + t : t * p.Tk + s] * column[s * rows.stride_row];
    stored = factor * sum;
  }
}

// The same after a product of a causal problem in which all queries see.
template <bool kOfKeys>
inline void launch_repeat_sums(const View& sums, const float* m, const ConstView& rows,
                               float factor, const Problem& p, hipStream_t stream) {
  const size_t n = p.heads() * (kOfKeys ? p.Tk : p.Tq) * p.D;
  if (p.causal && n > 0)
    LAUNCH_ON(stream, (repeat_sums<kOfKeys>), vector_add::grid_stride_blocks(n), kBlock, 0, sums, m,
              rows, factor, p);
}

// Four launches and, with a mask, one that mends what is not finite: the product of step 2.3, the
// mask, step 3.2's softmax, the other product. Each score goes to memory three times and comes back
// three times. Needs Keeps::one_matrix.
inline void launch_composed(const View& out, float* lse, const ConstView& q, const ConstView& k,
                            const ConstView& v, const Problem& problem, Workspace& workspace,
                            hipStream_t stream = nullptr) {
  check_forward(out, q, k, v, problem);
  check_workspace(workspace, problem, Keeps::one_matrix);
  const size_t blind = blind_queries(problem);
  launch_fill_rows(out, problem, blind, problem.D, 0, stream);
  if (lse != nullptr)
    launch_fill_rows(heads_first(lse, problem.H, problem.Tq, 1), problem, blind, 1, -INFINITY,
                     stream);
  const Problem p = seeing(problem);
  if (p.heads() * p.Tq == 0) return;
  float* probabilities = workspace.probabilities.data();
  launch_probabilities(probabilities, lse, problem.Tq, from_row(q, blind), k, p, stream);
  const View seeing_out = from_row(out, blind);
  multiply(gemm::Layout::NN, p.Tq, p.D, p.Tk, 1, matrix(probabilities, p), v, seeing_out, p,
           stream);
  launch_repeat_sums<false>(seeing_out, probabilities, v, 1, p, stream);
}

// ---- Rows of scores in shared memory ----------------------------------------------------------

inline constexpr int kFusedRows = 8;    // queries of a block, where their scores fit
inline constexpr int kLoads = 8;        // keys or values that a thread has on their way
inline constexpr int kLanesPerKey = 8;  // neighbours that share a key's numbers: 32 bytes at a time

// The sum of `value` over the kLanesPerKey neighbours, in all of them.
__device__ inline float sum_of_key(float value) {
  for (int distance = kLanesPerKey / 2; distance > 0; distance /= 2)
    value += gpu::wave_shfl_xor(value, distance);
  return value;
}

inline size_t fused_bytes(size_t rows, const Problem& p) {
  return rows * (p.D + p.Tk + kBlock) * sizeof(float);
}

// out = softmax(scale Q K^T + mask) V    kRows queries of one head per block.
// Fixes : composed stores Tq x Tk scores, and each goes through memory six times.
// Idea  : a row of scores needs no other row: a block keeps kRows of them in shared memory from the
//         first product to the second.
// Thread: scores: kLanesPerKey neighbours share a key; softmax: a wave has rows; out: thread t owns
//         column t % D of the keys t / D, t / D + kBlock / D, ...
// Costs : K and V once per kRows queries; kRows (Tk + D + kBlock) floats of shared memory.
template <int kRows>
static __global__ void __launch_bounds__(kBlock)
    fused_forward(View out, float* lse, ConstView q, ConstView k, ConstView v, Problem p) {
  DYNAMIC_SHARED(float, rows_q);               // (kRows, D)
  float* const scores = rows_q + kRows * p.D;  // (kRows, Tk), of which `seen` are used
  float* const parts = scores + kRows * p.Tk;  // (kRows, slices, D)
  __shared__ float of_sum[kRows];              // 1 / the sum of the row's exponentials
  const size_t blocks = gpu::ceil_div(p.Tq, kRows);
  const size_t head = blockIdx.x / blocks, query0 = blockIdx.x % blocks * kRows;
  const size_t batch = head / p.H, of_batch = head % p.H;
  const size_t count = p.Tq - query0 < kRows ? p.Tq - query0 : kRows;
  const size_t seen = visible_keys(p, query0 + count - 1);
  const float *head_q = q.head(batch, of_batch) + query0 * q.stride_row,
              *head_k = k.head(batch, of_batch), *head_v = v.head(batch, of_batch);
  const size_t thread = threadIdx.x;

  for (size_t i = thread; i < kRows * p.D; i += kBlock)
    rows_q[i] = i / p.D < count ? head_q[i / p.D * q.stride_row + i % p.D] : 0;
  __syncthreads();  // the queries are in shared memory

  const size_t lane = thread % kLanesPerKey;
  constexpr size_t kTeams = kBlock / kLanesPerKey;
  // All lanes of a wave go round as often: they meet in the shuffles.
  for (size_t first = 0; first < seen; first += kTeams * kLoads) {
    const size_t key0 = first + thread / kLanesPerKey;
    float sums[kLoads][kRows] = {};
    for (size_t d = lane; d < p.D; d += kLanesPerKey) {
      float held[kLoads];
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = key0 + static_cast<size_t>(n) * kTeams;
        held[n] = key < seen ? head_k[key * k.stride_row + d] : 0;
      }
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float x = rows_q[static_cast<size_t>(r) * p.D + d];
        GPU_UNROLL
        for (int n = 0; n < kLoads; ++n) sums[n][r] += held[n] * x;
      }
    }
    GPU_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const size_t key = key0 + static_cast<size_t>(n) * kTeams;
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float score = sum_of_key(sums[n][r]);
        const size_t query = query0 + static_cast<size_t>(r);
        if (lane == 0 && key < seen)
          scores[static_cast<size_t>(r) * p.Tk + key] =
              query < p.Tq && key < visible_keys(p, query) ? p.scale * score : -INFINITY;
      }
    }
  }
  __syncthreads();  // the scores are in shared memory

  // exercise: a wave per row: exponentials in place, 1 / their sum, lse (about 16 lines)
  for (int r = gpu::wave_id(); r < kRows; r += static_cast<int>(kBlock) / gpu::wave_size()) {
    float* const row = scores + static_cast<size_t>(r) * p.Tk;
    const size_t lanes = static_cast<size_t>(gpu::wave_size());
    float max = -FLT_MAX, sum = 0;
    for (size_t j = static_cast<size_t>(gpu::lane_id()); j < seen; j += lanes)
      max = fmaxf(max, row[j]);
    max = softmax::wave_max(max);
    for (size_t j = static_cast<size_t>(gpu::lane_id()); j < seen; j += lanes)
      sum += row[j] = softmax::exponential(row[j] - max);
    sum = dot::wave_sum(sum);
    if (gpu::lane_id() > 0) continue;
    of_sum[r] = sum == 0 ? 0 : 1 / sum;
    if (lse != nullptr && static_cast<size_t>(r) < count)
      lse[head * p.Tq + query0 + static_cast<size_t>(r)] = sum == 0 ? -INFINITY : max + logf(sum);
  }
  // end exercise
  __syncthreads();  // the exponentials and their sums are in shared memory

  const size_t slices = kBlock / p.D, slice = thread / p.D, column = thread % p.D;
  if (slice < slices) {
    float sums[kRows] = {};
    for (size_t first = slice; first < seen; first += slices * kLoads) {
      float held[kLoads];
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = first + static_cast<size_t>(n) * slices;
        held[n] = key < seen ? head_v[key * v.stride_row + column] : 0;
      }
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = first + static_cast<size_t>(n) * slices;
        if (key >= seen) break;
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          // Not all of several rows see all keys: 0 times NaN would be NaN.
          const float weight = scores[static_cast<size_t>(r) * p.Tk + key];
          if (kRows == 1 || weight != 0) sums[r] += weight * held[n];
        }
      }
    }
    for (int r = 0; r < kRows; ++r)
      parts[(static_cast<size_t>(r) * slices + slice) * p.D + column] = sums[r];
  }
  __syncthreads();  // each slice's sums are in shared memory
  for (size_t i = thread; i < count * p.D; i += kBlock) {
    const size_t r = i / p.D, d = i % p.D;
    float sum = 0;
    for (size_t s = 0; s < slices; ++s) sum += parts[(r * slices + s) * p.D + d];
    out.head(batch, of_batch)[(query0 + r) * out.stride_row + d] = sum * of_sum[r];
  }
}

template <int kRows>
bool launch_fused_rows(const View& out, float* lse, const ConstView& q, const ConstView& k,
                       const ConstView& v, const Problem& p, hipStream_t stream) {
  const size_t bytes = fused_bytes(kRows, p);
  if (bytes + kRows * sizeof(float) > gpu::max_shared_bytes()) return false;
  gpu::allow_shared_bytes(fused_forward<kRows>, bytes);
  LAUNCH_ON(stream, (fused_forward<kRows>), grid_of(p.heads() * gpu::ceil_div(p.Tq, kRows)), kBlock,
            bytes, out, lse, q, k, v, p);
  return true;
}
extern template bool launch_fused_rows<1>(const View&, float*, const ConstView&, const ConstView&,
                                          const ConstView&, const Problem&, hipStream_t);
extern template bool launch_fused_rows<kFusedRows>(const View&, float*, const ConstView&,
                                                   const ConstView&, const ConstView&,
                                                   const Problem&, hipStream_t);

// ---- Tiles of scores --------------------------------------------------------------------------

// A block owns kOwn rows (queries, or keys) and walks along the others, kOther at a time. Its
// threads come in groups of kLanes, each with kDown kRows of the own rows:
//
//   lane   0  1  4  5  8  9 12 13     Lane (r, c) of a group owns the own rows r, r + kDown, ...
//   and
//          2  3  6  7 10 11 14 15     the other rows c, c + kAcross, ..: kRows x kColumns scores.
//          Its
//         16 17 20 21 24 25 28 29     part of the result are the same own rows and kOut columns.
//         18 19 22 23 26 27 30 31
//
// As in step 2.3 a group is a wave on most devices, half a wave where waves have 64 lanes.
inline constexpr int kDown = gemm::kLanesM, kAcross = gemm::kLanesN, kLanes = gemm::kLanes;

// Rows in shared memory are kPad floats longer than needed: neighbours begin in different banks.
using gemm::kPad;

template <int head, int rows, int columns, int groups, int resident_blocks>
struct Tile {
  static constexpr int kHead = head;                      // D or more
  static constexpr int kRows = rows, kColumns = columns;  // scores of a thread
  static constexpr int kOut = head / kAcross;             // columns of a thread's results
  static constexpr int kThreads = groups * kLanes;
  static constexpr int kOwn = groups * kDown * rows, kOther = kAcross * columns;
  static constexpr int kResidentBlocks = resident_blocks;  // so many shall fit a multiprocessor
  static constexpr int kStride = head + kPad;              // between rows in shared memory
  static_assert(rows % 4 == 0, "a thread's own rows are read as float4s");
};

struct Lane {
  int row, column;  // the first of each
  int group;
};
__device__ inline Lane lane_of(int thread) {
  const int lane = thread % kLanes;
  return {lane / 2 % 2 + lane / (2 * kAcross) * 2, lane % 2 + lane / 4 % (kAcross / 2) * 2,
          thread / kLanes};
}

// The largest value, and the sum, of the kAcross lanes that share own rows, in all of them.
__device__ inline float max_across(float value) {
  value = fmaxf(value, gpu::wave_shfl_xor(value, 1));
  value = fmaxf(value, gpu::wave_shfl_xor(value, 4));
  return fmaxf(value, gpu::wave_shfl_xor(value, 8));
}
__device__ inline float sum_across(float value) {
  value += gpu::wave_shfl_xor(value, 1);
  value += gpu::wave_shfl_xor(value, 4);
  return value + gpu::wave_shfl_xor(value, 8);
}

// The own rows of the wave that a thread is in: the same for all of its lanes, which therefore meet
// in the shuffles or leave them out together.
template <class Tile>
__device__ inline size_t first_row_of_wave() {
  return static_cast<size_t>(gpu::wave_id() * (gpu::wave_size() / kLanes) * kDown * Tile::kRows);
}
template <class Tile>
__device__ inline size_t rows_of_wave() {
  return static_cast<size_t>(gpu::wave_size() / kLanes * kDown * Tile::kRows);
}

// How many of the `count` rows from row `first` on there are, of n.
__device__ inline int rows_left(size_t n, size_t first, int count) {
  return first >= n                               ? 0
         : n - first < static_cast<size_t>(count) ? static_cast<int>(n - first)
                                                  : count;
}

// Brings rows of one head from global memory into registers, load(), and on to shared memory,
// store(); kCount at a time, one time after the other. Zeros stand for rows from T on and numbers
// from D on. kAligned: each float4 is at a multiple of 16 bytes and in its row as a whole or not at
// all.
template <class Tile, int kCount, bool kAligned>
class RowLoader {
  // A round of the threads covers kRound rows, or a row takes kSplits rounds.
  static constexpr int kPerRow = Tile::kHead / 4;
  static constexpr int kRound = Tile::kThreads < kPerRow ? 1 : Tile::kThreads / kPerRow;
  static constexpr int kSplits = Tile::kThreads < kPerRow ? kPerRow / Tile::kThreads : 1;
  static constexpr int kRounds = kCount / kRound;
  static_assert(kRound * kPerRow == Tile::kThreads * kSplits && kRounds * kRound == kCount,
                "every thread carries as much");

 public:
  __device__ RowLoader(const float* head, size_t stride_row, size_t T, size_t D, size_t first)
      : step_(kRound * stride_row),
        T_(T),
        next_(first),
        row_(static_cast<int>(threadIdx.x) * kSplits / kPerRow),
        column_(static_cast<int>(threadIdx.x) % (kPerRow / kSplits) * 4),
        inside_(static_cast<int>(D) - column_),
        from_(head + (first + static_cast<size_t>(row_)) * stride_row + column_) {}

  __device__ void load() {
    const int left = rows_left(T_, next_, kCount) - row_;
    GPU_UNROLL
    for (int n = 0; n < kRounds; ++n) {
      GPU_UNROLL
      for (int split = 0; split < kSplits; ++split) {
        constexpr int kWidth = 4 * kPerRow / kSplits;
        float4& held = held_[n * kSplits + split];
        const int inside = n * kRound < left ? inside_ - split * kWidth : 0;
        const float* from = from_ + split * kWidth;
        if constexpr (kAligned) {
          held = make_float4(0, 0, 0, 0);
          if (inside > 0) held = *reinterpret_cast<const float4*>(from);
        } else {
          held = make_float4(inside > 0 ? from[0] : 0, inside > 1 ? from[1] : 0,
                             inside > 2 ? from[2] : 0, inside > 3 ? from[3] : 0);
        }
      }
      from_ += step_;
    }
    next_ += kCount;
  }
  __device__ void store(float (&tile)[kCount][Tile::kStride]) const {
    GPU_UNROLL
    for (int n = 0; n < kRounds; ++n) {
      GPU_UNROLL
      for (int split = 0; split < kSplits; ++split)
        *reinterpret_cast<float4*>(
            &tile[row_ + n * kRound][column_ + split * (4 * kPerRow / kSplits)]) =
            held_[n * kSplits + split];
    }
  }

 private:
  size_t step_;  // between the rows of two rounds
  size_t T_, next_;
  int row_, column_, inside_;
  const float* from_;  // where the next round begins
  float4 held_[kRounds * kSplits];
};

// sums[i][j] += a[i] . b[j]: `a` is the first of this thread's rows, kDown apart, and `b` the first
// of its others, kAcross apart. Four numbers of every row at a time.
//
//   shared memory      a[0] ....====........      kRows + kColumns float4s are read for
//                      a[1] ....====........      4 kRows kColumns products
//                      b[0] ....====........
//                      b[1] ....====........
template <int kHead, int kBegin, int kEnd, int kRows, int kColumns>
__device__ inline void add_dots(float (&sums)[kRows][kColumns], const float* a, const float* b) {
  constexpr int kStride = kHead + kPad;
  for (int d = 0; d < kHead; d += 4) {
    // exercise: hold a float4 of each other row, multiply each own row by them (about 20 lines)
    float held[4][kColumns];
    GPU_UNROLL
    for (int j = kBegin; j < kEnd; ++j) {
      const float4 four = *reinterpret_cast<const float4*>(b + j * kAcross * kStride + d);
      held[0][j] = four.x, held[1][j] = four.y, held[2][j] = four.z, held[3][j] = four.w;
    }
    float4 next = *reinterpret_cast<const float4*>(a + d);
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float4 four = next;
      if (i + 1 < kRows) next = *reinterpret_cast<const float4*>(a + (i + 1) * kDown * kStride + d);
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.x * held[0][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.y * held[1][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.z * held[2][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.w * held[3][j];
    }
    // end exercise
  }
}

// Of a tile's others, a wave needs those that one of its own rows sees, or is seen by: the others
// [begin, end) of the tile, all of them but on the diagonal of a causal mask. whole: each own row
// of the block goes with every other row of the tile.
struct Needed {
  int begin, end;
  bool whole;
};

// The same for the others that are needed, or a few more: for one half of them, or for all.
template <int kHead, int kRows, int kColumns>
__device__ inline void add_dots(float (&sums)[kRows][kColumns], const float* a, const float* b,
                                const Needed& needed) {
  constexpr int kHalf = kColumns / 2;
  if constexpr (kHalf > 0) {
    if (needed.end <= kHalf * kAcross) return add_dots<kHead, 0, kHalf>(sums, a, b);
    if (needed.begin >= kHalf * kAcross) return add_dots<kHead, kHalf, kColumns>(sums, a, b);
  }
  add_dots<kHead, 0, kColumns>(sums, a, b);
}

// A thread's columns of a row of kAcross kCount: groups of four, or its one pair.
template <int kCount>
__device__ inline int first_column(const Lane& lane) {
  return (kCount < 4 ? kCount : 4) * lane.column;
}
template <int kCount>
__device__ inline void read_columns(float (&held)[kCount], const float* first) {
  if constexpr (kCount == 2) {
    const float2 two = *reinterpret_cast<const float2*>(first);
    held[0] = two.x, held[1] = two.y;
  } else {
    gemm::load_fragment(held, first, 4 * kAcross);
  }
}
// The column of element c, seen from the thread's first.
template <int kCount>
__device__ constexpr int column_of(int c) {
  return kCount == 2 ? c : c / 4 * 4 * kAcross + c % 4;
}

// Scores go from the lanes that made them to those that multiply by them through shared memory:
// line j has what all own rows make with the other row j, a thread's kRows side by side.
template <class Tile>
using Lines = float[Tile::kOther][Tile::kOwn + kPad];

template <class Tile>
__device__ inline int place_in_line(const Lane& lane) {
  return (lane.group * kDown + lane.row) * Tile::kRows;
}
template <class Tile>
__device__ inline void store_lines(Lines<Tile>& lines, const Lane& lane,
                                   const float (&scores)[Tile::kRows][Tile::kColumns]) {
  const int place = place_in_line<Tile>(lane);
  GPU_UNROLL
  for (int j = 0; j < Tile::kColumns; ++j) {
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; i += 4)
      *reinterpret_cast<float4*>(&lines[lane.column + j * kAcross][place + i]) =
          make_float4(scores[i][j], scores[i + 1][j], scores[i + 2][j], scores[i + 3][j]);
  }
}

// sums[i][c] += sum over the lines k that are needed, or a few more, of lines[k][row i]
// rows[k][column c]: step 2.3's product. Where a tile is not whole, pairs that don't see each other
// have a 0 in their line, and zeros are not multiplied: 0 times NaN would be NaN.
template <class Tile, bool kWhole>
__device__ inline void add_lines(float (&sums)[Tile::kRows][Tile::kOut], const Lines<Tile>& lines,
                                 const float (&rows)[Tile::kOther][Tile::kStride], const Lane& lane,
                                 const Needed& needed) {
  const float* line = &lines[0][place_in_line<Tile>(lane)];
  const float* row = &rows[0][first_column<Tile::kOut>(lane)];
  constexpr int kAtOnce = 8;  // as far as the loop is unrolled
  static_assert(Tile::kOther % kAtOnce == 0, "no line is beyond the tile");
  for (int first = needed.begin / kAtOnce * kAtOnce; first < needed.end; first += kAtOnce) {
    GPU_UNROLL
    for (int k = first; k < first + kAtOnce; ++k) {
      float held_line[Tile::kRows], held_row[Tile::kOut];
      gemm::load_fragment(held_line, line + k * (Tile::kOwn + kPad), 4);
      read_columns(held_row, row + k * Tile::kStride);
      if constexpr (kWhole) {
        gemm::add_outer_product(sums, held_line, held_row);
      } else {
        GPU_UNROLL
        for (int i = 0; i < Tile::kRows; ++i) {
          if (held_line[i] == 0) continue;
          GPU_UNROLL_INNER
          for (int c = 0; c < Tile::kOut; ++c) sums[i][c] += held_line[i] * held_row[c];
        }
      }
    }
  }
}
template <class Tile>
__device__ inline void add_lines(float (&sums)[Tile::kRows][Tile::kOut], const Lines<Tile>& lines,
                                 const float (&rows)[Tile::kOther][Tile::kStride], const Lane& lane,
                                 const Needed& needed) {
  if (needed.whole)
    add_lines<Tile, true>(sums, lines, rows, lane, needed);
  else
    add_lines<Tile, false>(sums, lines, rows, lane, needed);
}

// Stores factor(i) sums[i][c] to the rows that there are; 16 bytes at a time where they may be.
template <class Tile, bool kAligned, class Factor>
__device__ inline void store_rows(float* head, size_t stride_row, size_t T, size_t D, size_t own0,
                                  const Lane& lane, const float (&sums)[Tile::kRows][Tile::kOut],
                                  Factor factor) {
  const size_t first = own0 + static_cast<size_t>(lane.group * kDown * Tile::kRows + lane.row);
  const size_t column = static_cast<size_t>(first_column<Tile::kOut>(lane));
  GPU_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    const size_t row = first + static_cast<size_t>(i * kDown);
    if (row >= T) continue;
    float* to = head + row * stride_row + column;
    const float scale = factor(i);
    if constexpr (kAligned && Tile::kOut >= 4) {
      GPU_UNROLL
      for (int c = 0; c < Tile::kOut; c += 4)
        if (column + static_cast<size_t>(c * kAcross) < D)
          *reinterpret_cast<float4*>(to + c * kAcross) =
              make_float4(scale * sums[i][c], scale * sums[i][c + 1], scale * sums[i][c + 2],
                          scale * sums[i][c + 3]);
    } else {
      GPU_UNROLL
      for (int c = 0; c < Tile::kOut; ++c)
        if (column + static_cast<size_t>(column_of<Tile::kOut>(c)) < D)
          to[column_of<Tile::kOut>(c)] = scale * sums[i][c];
    }
  }
}

// ---- Which tile -------------------------------------------------------------------------------

template <class... Tiles>
struct Candidates {};

// Calls run(tile) for the first of the tiles whose memory fits a block and which make a block for
// each multiprocessor of `rows` rows of `heads` heads; else for the last that fits.
template <template <class> class Memory, class Run, class First, class... Rest>
void with_tile(Candidates<First, Rest...>, size_t heads, size_t rows, Run&& run) {
  if constexpr (sizeof...(Rest) == 0) {
    run(First{});
  } else {
    const bool fits = sizeof(Memory<First>) <= gpu::max_shared_bytes();
    const size_t blocks = heads * gpu::ceil_div(rows, First::kOwn);
    if (fits && blocks >= gpu::multiprocessors())
      run(First{});
    else
      with_tile<Memory>(Candidates<Rest...>{}, heads, rows, run);
  }
}
template <class First, class... Rest>
constexpr auto last_of(Candidates<First, Rest...>) {
  if constexpr (sizeof...(Rest) == 0)
    return Candidates<First>{};
  else
    return last_of(Candidates<Rest...>{});
}

// Calls run(constant) with the size that a head of D numbers is computed with.
template <class Run>
void with_head(size_t D, Run&& run) {
  if (D <= 16)
    run(std::integral_constant<int, 16>{});
  else if (D <= 32)
    run(std::integral_constant<int, 32>{});
  else if (D <= 64)
    run(std::integral_constant<int, 64>{});
  else if (D <= 128)
    run(std::integral_constant<int, 128>{});
  else
    run(std::integral_constant<int, 256>{});
}

// Does each float4 of a head's rows lie at a multiple of 16 bytes, in the row as a whole or not at
// all?
template <class V>
bool is_aligned(const V& view, size_t D) {
  return reinterpret_cast<std::uintptr_t>(view.data) % sizeof(float4) == 0 &&
         (view.stride_batch | view.stride_head | view.stride_row | D) % 4 == 0;
}

// Calls run(tile, aligned) for heads of `head` numbers. What is not aligned has one tile only, the
// last, which fits everywhere.
template <template <class> class Memory, class List, class Run>
void with_kernel(List candidates, bool aligned, size_t heads, size_t rows, Run&& run) {
  if (aligned)
    with_tile<Memory>(candidates, heads, rows, [&](auto tile) { run(tile, std::true_type{}); });
  else
    with_tile<Memory>(last_of(candidates), heads, rows,
                      [&](auto tile) { run(tile, std::false_type{}); });
}

// ---- Flash: no row of scores anywhere ---------------------------------------------------------

// What a block keeps in shared memory: its queries, a tile of keys and one of values, and the
// probabilities on their way from lane to lane.
template <class Tile>
struct alignas(16) ForwardTiles {
  float q[Tile::kOwn][Tile::kStride];
  float k[Tile::kOther][Tile::kStride], v[Tile::kOther][Tile::kStride];
  Lines<Tile> probabilities;
};

// (numbers of a head, rows and keys of a thread, groups of threads, blocks per multiprocessor)
template <int kHead>
struct ForwardCandidates;
template <>
struct ForwardCandidates<16> {
  using List = Candidates<Tile<16, 4, 8, 4, 4>>;
};
template <>
struct ForwardCandidates<32> {
  using List = Candidates<Tile<32, 8, 8, 4, 2>, Tile<32, 4, 8, 4, 3>>;
};
template <>
struct ForwardCandidates<64> {
  using List = Candidates<Tile<64, 8, 8, 4, 2>, Tile<64, 4, 4, 4, 3>>;
};
template <>
struct ForwardCandidates<128> {
  using List = Candidates<Tile<128, 8, 4, 8, 1>, Tile<128, 4, 8, 8, 1>, Tile<128, 4, 2, 4, 2>>;
};
template <>
struct ForwardCandidates<256> {
  using List = Candidates<Tile<256, 4, 4, 8, 1>, Tile<256, 4, 4, 4, 1>, Tile<256, 4, 1, 2, 1>>;
};

inline constexpr float kLog2e = 1.44269504f;

// out = softmax(scale Q K^T + mask) V, and lse    kOwn queries of one head per block.
// Fixes : fused reads all keys and values for every 8 queries, and rows must fit shared memory.
// Idea  : of a row only its maximum, its sum and its share of out so far are kept, in registers;
//         where a tile of keys brings a larger maximum they are rescaled (step 3.2's online). The
//         two products are step 2.3's: kRows x kColumns scores, kRows x kOut results a thread.
//         Values travel while scores are computed, the next keys while values are multiplied.
// Thread: see Tile; each of the kAcross lanes of a row has its own part of the row's sum.
// Costs : 2 barriers per tile; K and V once per kOwn queries; no memory for scores. Tiles of keys
//         that no query of the block sees are left out.
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kResidentBlocks)
    flash_forward(View out, float* lse, ConstView q, ConstView k, ConstView v, Problem p) {
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kOut = Tile::kOut;
  DYNAMIC_SHARED(ForwardTiles<Tile>, tiles);
  const unsigned heads = static_cast<unsigned>(p.B * p.H), H = static_cast<unsigned>(p.H);
  const unsigned head = blockIdx.x % heads, batch = head / H, of_batch = head % H;
  // Late queries see most keys: they begin first.
  const size_t query0 = size_t{gridDim.x / heads - 1 - blockIdx.x / heads} * Tile::kOwn;
  const size_t last = (query0 + Tile::kOwn < p.Tq ? query0 + Tile::kOwn : p.Tq) - 1;
  const size_t seen_by_all = visible_keys(p, query0), seen = visible_keys(p, last);
  const Lane lane = lane_of(static_cast<int>(threadIdx.x));
  const int first_row = lane.group * kDown * kRows + lane.row;
  const size_t query = query0 + static_cast<size_t>(first_row);

  // Keys that some query of this wave sees.
  const size_t wave0 = query0 + first_row_of_wave<Tile>(), wave1 = wave0 + rows_of_wave<Tile>() - 1;
  const size_t seen_by_wave = wave0 < p.Tq ? visible_keys(p, wave1 < last ? wave1 : last) : 0;

  RowLoader<Tile, Tile::kOther, kAligned> next_k(k.head(batch, of_batch), k.stride_row, p.Tk, p.D,
                                                 0);
  RowLoader<Tile, Tile::kOther, kAligned> next_v(v.head(batch, of_batch), v.stride_row, p.Tk, p.D,
                                                 0);
  {
    RowLoader<Tile, Tile::kOwn, kAligned> own_q(q.head(batch, of_batch), q.stride_row, p.Tq, p.D,
                                                query0);
    own_q.load();
    next_k.load();
    own_q.store(tiles->q);
    next_k.store(tiles->k);
  }
  const float scale = p.scale * kLog2e;  // powers of 2 instead of e
  float sums[kRows][kOut] = {}, max[kRows], sum[kRows] = {};
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) max[i] = -FLT_MAX;  // of no elements, as softmax::nothing()

  for (size_t key0 = 0; key0 < seen; key0 += Tile::kOther) {
    __syncthreads();  // queries and keys are in shared memory; values and probabilities were read
    float scores[kRows][kColumns] = {};
    const Needed needed{0, rows_left(seen_by_wave, key0, Tile::kOther),
                        key0 + Tile::kOther <= seen_by_all};
    if (needed.end > 0)
      add_dots<Tile::kHead>(scores, &tiles->q[first_row][0], &tiles->k[lane.column][0], needed);
    next_v.load();
    if (needed.end > 0) {
      if (!needed.whole) {
        GPU_UNROLL
        for (int i = 0; i < kRows; ++i) {
          const size_t end = visible_keys(p, query + static_cast<size_t>(i * kDown));
          const int left = rows_left(end, key0, Tile::kOther) - lane.column;
          GPU_UNROLL
          for (int j = 0; j < kColumns; ++j)
            scores[i][j] = j * kAcross < left ? scores[i][j] : -INFINITY;
        }
      }
      // exercise: the rows' new maxima, the exponentials, what was rescaled (about 17 lines)
      GPU_UNROLL
      for (int i = 0; i < kRows; ++i) {
        float largest = scores[i][0];
        GPU_UNROLL
        for (int j = 1; j < kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
        const float before = max[i];
        max[i] = fmaxf(before, max_across(largest));
        const float rescale = gpu::exp2_flushed(scale * (before - max[i]));
        float part = 0;
        GPU_UNROLL
        for (int j = 0; j < kColumns; ++j)
          part += scores[i][j] = gpu::exp2_flushed(scale * (scores[i][j] - max[i]));
        sum[i] = sum[i] * rescale + part;
        GPU_UNROLL
        for (int c = 0; c < kOut; ++c) sums[i][c] *= rescale;
      }
      // end exercise
      store_lines<Tile>(tiles->probabilities, lane, scores);
    }
    next_v.store(tiles->v);
    next_k.load();
    __syncthreads();  // values and probabilities are in shared memory; the keys were read
    if (needed.end > 0) add_lines<Tile>(sums, tiles->probabilities, tiles->v, lane, needed);
    next_k.store(tiles->k);
  }

  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    sum[i] = sum_across(sum[i]);
    const size_t row = query + static_cast<size_t>(i * kDown);
    if (lse != nullptr && lane.column == 0 && row < p.Tq) {
      const float value = p.scale * max[i] + logf(sum[i]);
      const bool fits = fabsf(value) < INFINITY;  // else NaN: infinity says that no key is seen
      lse[size_t{head} * p.Tq + row] = sum[i] == 0 ? -INFINITY : fits ? value : NAN;
    }
  }
  store_rows<Tile, kAligned>(out.head(batch, of_batch), out.stride_row, p.Tq, p.D, query0, lane,
                             sums, [&](int i) { return sum[i] == 0 ? 0 : 1 / sum[i]; });
}

// Heads of up to kHead numbers.
template <int kHead>
void launch_flash_head(const View& out, float* lse, const ConstView& q, const ConstView& k,
                       const ConstView& v, const Problem& p, hipStream_t stream) {
  const bool aligned =
      is_aligned(out, p.D) && is_aligned(q, p.D) && is_aligned(k, p.D) && is_aligned(v, p.D);
  using List = typename ForwardCandidates<kHead>::List;
  with_kernel<ForwardTiles>(List{}, aligned, p.heads(), p.Tq, [&](auto tile, auto is_aligned) {
    using Tile = decltype(tile);
    constexpr size_t kBytes = sizeof(ForwardTiles<Tile>);
    gpu::allow_shared_bytes(flash_forward<Tile, is_aligned()>, kBytes);
    LAUNCH_ON(stream, (flash_forward<Tile, is_aligned()>),
              grid_of(p.heads() * gpu::ceil_div(p.Tq, Tile::kOwn)), Tile::kThreads, kBytes, out,
              lse, q, k, v, p);
  });
}
extern template void launch_flash_head<16>(const View&, float*, const ConstView&, const ConstView&,
                                           const ConstView&, const Problem&, hipStream_t);
extern template void launch_flash_head<32>(const View&, float*, const ConstView&, const ConstView&,
                                           const ConstView&, const Problem&, hipStream_t);
extern template void launch_flash_head<64>(const View&, float*, const ConstView&, const ConstView&,
                                           const ConstView&, const Problem&, hipStream_t);
extern template void launch_flash_head<128>(const View&, float*, const ConstView&, const ConstView&,
                                            const ConstView&, const Problem&, hipStream_t);
extern template void launch_flash_head<256>(const View&, float*, const ConstView&, const ConstView&,
                                            const ConstView&, const Problem&, hipStream_t);

inline void launch_flash(const View& out, float* lse, const ConstView& q, const ConstView& k,
                         const ConstView& v, const Problem& p, hipStream_t stream) {
  check_forward(out, q, k, v, p);
  if (p.heads() * p.Tq == 0) return;
  with_head(p.D, [&](auto head) { launch_flash_head<head()>(out, lse, q, k, v, p, stream); });
}

inline void launch_flash(const View& out, float* lse, const ConstView& q, const ConstView& k,
                         const ConstView& v, const Problem& p, Workspace&,
                         hipStream_t stream = nullptr) {
  launch_flash(out, lse, q, k, v, p, stream);
}

// Rows that do not fit shared memory are left to flash.
inline void launch_fused(const View& out, float* lse, const ConstView& q, const ConstView& k,
                         const ConstView& v, const Problem& p, hipStream_t stream) {
  check_forward(out, q, k, v, p);
  if (p.heads() * p.Tq == 0) return;
  if ((p.Tq <= 2 || !launch_fused_rows<kFusedRows>(out, lse, q, k, v, p, stream)) &&
      !launch_fused_rows<1>(out, lse, q, k, v, p, stream))
    launch_flash(out, lse, q, k, v, p, stream);
}
inline void launch_fused(const View& out, float* lse, const ConstView& q, const ConstView& k,
                         const ConstView& v, const Problem& p, Workspace&,
                         hipStream_t stream = nullptr) {
  launch_fused(out, lse, q, k, v, p, stream);
}

// out and lse (unless it is null): what later stages call. A tile of flash's would be empty but for
// a query or two, such as there are where text is generated with a cache of keys and values.
inline void forward(const View& out, float* lse, const ConstView& q, const ConstView& k,
                    const ConstView& v, const Problem& p, hipStream_t stream = nullptr) {
  if (p.Tq <= 2)
    launch_fused(out, lse, q, k, v, p, stream);
  else
    launch_flash(out, lse, q, k, v, p, stream);
}

// ---- Backward: what both versions share -------------------------------------------------------

// delta[row] = sum over d of grad_out[row,d] out[row,d]    delta (B, H, Tq).
// Fixes : the sum over a row of P grad_P needs the whole row.
// Idea  : it is the same number as grad_out . out, which are D numbers each.
// Thread: a wave per row; its lanes own columns, as in 3.2's wave_per_row.
// Costs : 8 D bytes per row.
static __global__ void row_products(float* delta, ConstView grad_out, ConstView out, Problem p) {
  const size_t lanes = static_cast<size_t>(gpu::wave_size()), waves = blockDim.x / lanes;
  const size_t rows = p.B * p.H * p.Tq;
  for (size_t row = blockIdx.x * waves + static_cast<size_t>(gpu::wave_id()); row < rows;
       row += gridDim.x * waves) {
    const size_t head = row / p.Tq, batch = head / p.H, of_batch = head % p.H;
    const float* a = grad_out.head(batch, of_batch) + row % p.Tq * grad_out.stride_row;
    const float* b = out.head(batch, of_batch) + row % p.Tq * out.stride_row;
    float sum = 0;
    for (size_t d = static_cast<size_t>(gpu::lane_id()); d < p.D; d += lanes) sum += a[d] * b[d];
    sum = dot::wave_sum(sum);
    if (gpu::lane_id() == 0) delta[row] = sum;
  }
}

inline void launch_row_products(float* delta, const ConstView& grad_out, const ConstView& out,
                                const Problem& p, hipStream_t stream) {
  const size_t rows = p.heads() * p.Tq;
  if (rows > 0)
    LAUNCH_ON(stream, row_products,
              softmax::row_blocks(rows, kBlock / gpu::device_wave_size(), kBlock), kBlock, 0, delta,
              grad_out, out, p);
}

// ---- Backward, composed -----------------------------------------------------------------------

// gradients = probabilities (gradients - delta)    all (B, H, Tq, Tk); delta (B, H, T), of which
//                                                  the last Tq of each head are meant.
// Fixes : a product knows nothing of softmax, and nothing of the mask.
// Idea  : a probability falls where others of its row rise: on average, weighted, by delta.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 12 bytes per score.
static __global__ void score_gradients(float* gradients, const float* probabilities,
                                       const float* delta, size_t T, Problem p) {
  const size_t threads = size_t{gridDim.x} * blockDim.x, n = p.B * p.H * p.Tq * p.Tk;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t row = i / p.Tk, query = row % p.Tq;
    const float slope = gradients[i] - delta[row / p.Tq * T + (T - p.Tq) + query];
    gradients[i] = i % p.Tk < visible_keys(p, query) ? probabilities[i] * slope : 0;
  }
}

// Five products and two passes over Tq x Tk numbers, of which there are two; with a mask, what is
// not finite is mended. Needs Keeps::two_matrices.
inline void backward_composed(const View& grad_q, const View& grad_k, const View& grad_v,
                              const ConstView& grad_out, const ConstView& out, const float* lse,
                              const ConstView& q, const ConstView& k, const ConstView& v,
                              const Problem& problem, Workspace& workspace,
                              hipStream_t stream = nullptr) {
  check_backward(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, problem);
  check_workspace(workspace, problem, Keeps::two_matrices);
  const size_t blind = blind_queries(problem);
  launch_fill_rows(grad_q, problem, blind, problem.D, 0, stream);
  const Problem p = seeing(problem);
  if (p.heads() * p.Tq == 0) {
    launch_fill_rows(grad_k, p, p.Tk, p.D, 0, stream);
    launch_fill_rows(grad_v, p, p.Tk, p.D, 0, stream);
    return;
  }
  const ConstView seeing_q = from_row(q, blind), seeing_grad = from_row(grad_out, blind);
  float *probabilities = workspace.probabilities.data(), *gradients = workspace.gradients.data();
  const View of_p = matrix(probabilities, p), of_scores = matrix(gradients, p);
  launch_probabilities(probabilities, nullptr, problem.Tq, seeing_q, k, p, stream);
  launch_row_products(workspace.delta.data(), grad_out, out, problem, stream);
  multiply(gemm::Layout::TN, p.Tk, p.D, p.Tq, 1, of_p, seeing_grad, grad_v, p, stream);
  launch_repeat_sums<true>(grad_v, probabilities, seeing_grad, 1, p, stream);
  multiply(gemm::Layout::NT, p.Tq, p.Tk, p.D, 1, seeing_grad, v, of_scores, p, stream);
  LAUNCH_ON(stream, score_gradients, vector_add::grid_stride_blocks(p.heads() * p.Tq * p.Tk),
            kBlock, 0, gradients, probabilities, workspace.delta.data(), problem.Tq, p);
  const View seeing_grad_q = from_row(grad_q, blind);
  multiply(gemm::Layout::NN, p.Tq, p.D, p.Tk, p.scale, of_scores, k, seeing_grad_q, p, stream);
  launch_repeat_sums<false>(seeing_grad_q, gradients, k, p.scale, p, stream);
  multiply(gemm::Layout::TN, p.Tk, p.D, p.Tq, p.scale, of_scores, seeing_q, grad_k, p, stream);
  launch_repeat_sums<true>(grad_k, gradients, seeing_q, p.scale, p, stream);
}

// ---- Backward, flash --------------------------------------------------------------------------

struct Backward {
  View grad_q, grad_k, grad_v;
  ConstView grad_out, q, k, v;
  const float *lse, *delta;  // (B, H, Tq)
  Problem p;
};

// The block's own rows and a tile of the others: (q, grad_out) and (k, v), or the other way round;
// the scores' lines; lse (for powers of 2) and delta of the others, where these are queries.
template <class Tile>
struct alignas(16) BackwardTiles {
  float own_x[Tile::kOwn][Tile::kStride], own_y[Tile::kOwn][Tile::kStride];
  float x[Tile::kOther][Tile::kStride], y[Tile::kOther][Tile::kStride];
  Lines<Tile> lines;
  float lse[Tile::kOther], delta[Tile::kOther];
};

template <int kHead>
struct BackwardCandidates;
template <>
struct BackwardCandidates<16> {
  using List = Candidates<Tile<16, 4, 8, 4, 3>>;
};
template <>
struct BackwardCandidates<32> {
  using List = Candidates<Tile<32, 4, 8, 4, 3>>;
};
template <>
struct BackwardCandidates<64> {
  using List = Candidates<Tile<64, 4, 8, 4, 2>, Tile<64, 4, 2, 4, 2>>;
};
template <>
struct BackwardCandidates<128> {
  using List = Candidates<Tile<128, 4, 4, 4, 2>, Tile<128, 4, 2, 2, 2>>;
};
template <>
struct BackwardCandidates<256> {
  using List = Candidates<Tile<256, 4, 2, 4, 1>, Tile<256, 4, 1, 1, 1>>;
};

// Which gradients a block computes for its own rows.
enum class Owns { queries, keys, only_k, only_v };

// The exponent (of 2) by which a query's scores become probabilities, and its delta. A query that
// is not there has probabilities of 0.
struct OfQuery {
  float lse, delta;
};
__device__ inline OfQuery load_query(const Backward& b, unsigned head, size_t query) {
  if (query >= b.p.Tq) return {INFINITY, 0};
  const size_t row = size_t{head} * b.p.Tq + query;
  return {kLog2e * b.lse[row], b.delta[row]};
}

// The gradients of the rows own0, ... of a head. x is what scores are made of, y what their
// gradients are made of:
//
//                 own x   own y      other x   other y       P (own, other)   = exp(own x . other
//                 x)
//   Owns queries  q       grad_out   k         v             grad_P           = own y . other y
//   Owns keys     k       v          q         grad_out      grad_S = P (grad_P - delta)
//
//   grad own x = scale grad_S (other x)          grad own y = P (other y), of keys only
template <class Tile, bool kAligned, Owns kOwns>
__device__ inline void gradient_pass(BackwardTiles<Tile>& tiles, const Backward& b, unsigned head,
                                     size_t own0) {
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kOut = Tile::kOut;
  constexpr bool kQueries = kOwns == Owns::queries, kX = kOwns != Owns::only_v;
  constexpr bool kY = kOwns == Owns::keys || kOwns == Owns::only_v;
  const Problem& p = b.p;
  const unsigned H = static_cast<unsigned>(p.H), batch = head / H, of_batch = head % H;
  const ConstView &own_x = kQueries ? b.q : b.k, &own_y = kQueries ? b.grad_out : b.v;
  const ConstView &other_x = kQueries ? b.k : b.q, &other_y = kQueries ? b.v : b.grad_out;
  const size_t own_T = kQueries ? p.Tq : p.Tk, other_T = kQueries ? p.Tk : p.Tq;
  const size_t own1 = own0 + Tile::kOwn < own_T ? own0 + Tile::kOwn : own_T;
  // The others that see or are seen by some own row.
  const size_t hidden = kQueries || !p.causal || own0 + p.Tq < p.Tk ? 0 : own0 + p.Tq - p.Tk;
  const size_t begin = hidden, end = kQueries ? visible_keys(p, own1 - 1) : p.Tq;

  const Lane lane = lane_of(static_cast<int>(threadIdx.x));
  const int first_row = lane.group * kDown * kRows + lane.row;
  const size_t row0 = own0 + static_cast<size_t>(first_row);
  const size_t wave0 = own0 + first_row_of_wave<Tile>(), wave1 = wave0 + rows_of_wave<Tile>() - 1;

  RowLoader<Tile, Tile::kOther, kAligned> next_x(other_x.head(batch, of_batch), other_x.stride_row,
                                                 other_T, p.D, begin);
  RowLoader<Tile, Tile::kOther, kAligned> next_y(other_y.head(batch, of_batch), other_y.stride_row,
                                                 other_T, p.D, begin);
  {
    RowLoader<Tile, Tile::kOwn, kAligned> own(own_x.head(batch, of_batch), own_x.stride_row, own_T,
                                              p.D, own0);
    RowLoader<Tile, Tile::kOwn, kAligned> own_of_y(own_y.head(batch, of_batch), own_y.stride_row,
                                                   own_T, p.D, own0);
    own.load();
    next_x.load();
    if constexpr (kX) own_of_y.load();
    own.store(tiles.own_x);
    next_x.store(tiles.x);
    if constexpr (kX) own_of_y.store(tiles.own_y);
  }
  OfQuery of_row[kRows];
  if constexpr (kQueries) {
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i)
      of_row[i] = load_query(b, head, row0 + static_cast<size_t>(i * kDown));
  }
  const float scale = p.scale * kLog2e;
  float grad_x[kRows][kOut] = {}, grad_y[kRows][kOut] = {};

  for (size_t other0 = begin; other0 < end; other0 += Tile::kOther) {
    __syncthreads();  // own rows and the others' x are in shared memory; all else was read
    // Queries see the first keys of a tile, keys are seen by its last queries.
    Needed needed{
        0, 0,
        kQueries ? other0 + Tile::kOther <= visible_keys(p, own0)
                 : own0 + Tile::kOwn <= visible_keys(p, other0) && other0 + Tile::kOther <= p.Tq};
    if (wave0 < own_T) {
      if (kQueries) {
        const size_t last_query = wave1 < own_T ? wave1 : own_T - 1;
        needed.end = rows_left(visible_keys(p, last_query), other0, Tile::kOther);
      } else {
        const size_t first_query = p.causal && wave0 + p.Tq > p.Tk ? wave0 + p.Tq - p.Tk : 0;
        needed.begin = rows_left(first_query, other0, Tile::kOther);
        needed.end = rows_left(other_T, other0, Tile::kOther);
      }
    }
    const bool busy = needed.begin < needed.end;
    float scores[kRows][kColumns] = {};
    next_y.load();
    if (busy)
      add_dots<Tile::kHead>(scores, &tiles.own_x[first_row][0], &tiles.x[lane.column][0], needed);
    next_y.store(tiles.y);
    if constexpr (!kQueries) {
      if (static_cast<int>(threadIdx.x) < Tile::kOther) {
        const OfQuery of_query = load_query(b, head, other0 + threadIdx.x);
        tiles.lse[threadIdx.x] = of_query.lse, tiles.delta[threadIdx.x] = of_query.delta;
      }
    }
    next_x.load();
    __syncthreads();  // the others' y and what belongs to queries are in shared memory
    if (busy) {
      OfQuery of_column[kColumns];
      if constexpr (!kQueries) {
        GPU_UNROLL
        for (int j = 0; j < kColumns; ++j)
          of_column[j] = {tiles.lse[lane.column + j * kAcross],
                          tiles.delta[lane.column + j * kAcross]};
      }
      // exercise: probabilities, their product, gradients of the scores, theirs (about 28 lines)
      GPU_UNROLL
      for (int i = 0; i < kRows; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          // It is above 0 only by lse's rounding, which exceeds 128 where scores are beyond 1e9.
          const float exponent = scale * scores[i][j] - (kQueries ? of_row[i] : of_column[j]).lse;
          scores[i][j] = gpu::exp2_flushed(exponent > 0 ? 0 : exponent);
        }
      }
      if (!needed.whole) {
        GPU_UNROLL
        for (int i = 0; i < kRows; ++i) {
          GPU_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            const size_t row = row0 + static_cast<size_t>(i * kDown);
            const size_t column = other0 + static_cast<size_t>(lane.column + j * kAcross);
            const size_t query = kQueries ? row : column, key = kQueries ? column : row;
            const bool seen = query < p.Tq && key < visible_keys(p, query);
            scores[i][j] = seen ? scores[i][j] : 0;
          }
        }
      }
      if constexpr (kY) {
        store_lines<Tile>(tiles.lines, lane, scores);
        gpu::wave_sync();  // the probabilities of this wave's rows are in shared memory
        add_lines<Tile>(grad_y, tiles.lines, tiles.y, lane, needed);
      }
      if constexpr (kX) {
        float slopes[kRows][kColumns] = {};
        add_dots<Tile::kHead>(slopes, &tiles.own_y[first_row][0], &tiles.y[lane.column][0], needed);
        GPU_UNROLL
        for (int i = 0; i < kRows; ++i) {
          GPU_UNROLL
          for (int j = 0; j < kColumns; ++j)
            // The slope of a pair that does not see each other may be NaN.
            scores[i][j] *= needed.whole || scores[i][j] != 0
                                ? slopes[i][j] - (kQueries ? of_row[i] : of_column[j]).delta
                                : 0;
        }
        gpu::wave_sync();  // this wave has read its probabilities
        store_lines<Tile>(tiles.lines, lane, scores);
        gpu::wave_sync();  // the gradients of this wave's scores are in shared memory
        add_lines<Tile>(grad_x, tiles.lines, tiles.x, lane, needed);
      }
      // end exercise
    }
    __syncthreads();  // the others' x were read
    next_x.store(tiles.x);
  }

  const View& to_x = kQueries ? b.grad_q : b.grad_k;
  if constexpr (kX)
    store_rows<Tile, kAligned>(to_x.head(batch, of_batch), to_x.stride_row, own_T, p.D, own0, lane,
                               grad_x, [&](int) { return p.scale; });
  if constexpr (kY)
    store_rows<Tile, kAligned>(b.grad_v.head(batch, of_batch), b.grad_v.stride_row, own_T, p.D,
                               own0, lane, grad_y, [](int) { return 1.0f; });
}

// Two sums of kRows x kOut a thread fit its registers up to this; keys of larger heads take a block
// for each of their two gradients.
inline constexpr int kBothUpTo = 128;

// grad_q, grad_k, grad_v    kOwn keys or kOwn queries of one head per block.
// Fixes : composed stores Tq x Tk probabilities and as many gradients.
// Idea  : lse and delta of a row are enough to compute any of its probabilities and their gradients
//         again, tile by tile (Dao: FlashAttention-2, arXiv:2307.08691). Each block owns what it
//         writes and walks along all that contributes, so that no sum needs an atomic.
// Thread: see Tile; blocks of keys come first, then those of queries.
// Costs : 7 products where 5 would do if blocks could add to each other's sums; 3 barriers per
// tile.
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kResidentBlocks)
    flash_backward(Backward b) {
  DYNAMIC_SHARED(BackwardTiles<Tile>, tiles);
  const unsigned heads = static_cast<unsigned>(b.p.B * b.p.H);
  const unsigned of_keys = static_cast<unsigned>(gpu::ceil_div(b.p.Tk, Tile::kOwn));
  const unsigned head = blockIdx.x % heads;
  unsigned block = blockIdx.x / heads;
  // Early keys are seen by most queries, and late queries see most keys: they begin first.
  const auto first = [](unsigned number) { return size_t{number} * Tile::kOwn; };
  if constexpr (Tile::kHead <= kBothUpTo) {
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::keys>(*tiles, b, head, first(block));
    block -= of_keys;
  } else {
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::only_k>(*tiles, b, head, first(block));
    block -= of_keys;
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::only_v>(*tiles, b, head, first(block));
    block -= of_keys;
  }
  const unsigned of_queries = static_cast<unsigned>(gpu::ceil_div(b.p.Tq, Tile::kOwn));
  gradient_pass<Tile, kAligned, Owns::queries>(*tiles, b, head, first(of_queries - 1 - block));
}

// Heads of up to kHead numbers.
template <int kHead>
void launch_backward_head(const Backward& b, bool aligned, hipStream_t stream) {
  const Problem& p = b.p;
  using List = typename BackwardCandidates<kHead>::List;
  with_kernel<BackwardTiles>(
      List{}, aligned, p.heads(), std::max(p.Tq, p.Tk), [&](auto tile, auto is_aligned) {
        using Tile = decltype(tile);
        constexpr size_t kBytes = sizeof(BackwardTiles<Tile>);
        const size_t keys = gpu::ceil_div(p.Tk, Tile::kOwn) * (Tile::kHead <= kBothUpTo ? 1 : 2);
        gpu::allow_shared_bytes(flash_backward<Tile, is_aligned()>, kBytes);
        LAUNCH_ON(stream, (flash_backward<Tile, is_aligned()>),
                  grid_of(p.heads() * (keys + gpu::ceil_div(p.Tq, Tile::kOwn))), Tile::kThreads,
                  kBytes, b);
      });
}
extern template void launch_backward_head<16>(const Backward&, bool, hipStream_t);
extern template void launch_backward_head<32>(const Backward&, bool, hipStream_t);
extern template void launch_backward_head<64>(const Backward&, bool, hipStream_t);
extern template void launch_backward_head<128>(const Backward&, bool, hipStream_t);
extern template void launch_backward_head<256>(const Backward&, bool, hipStream_t);

// grad_q, grad_k and grad_v from grad_out, the gradient of out: what later stages call. out and lse
// are the forward pass's.
inline void backward(const View& grad_q, const View& grad_k, const View& grad_v,
                     const ConstView& grad_out, const ConstView& out, const float* lse,
                     const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                     Workspace& workspace, hipStream_t stream = nullptr) {
  check_backward(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p);
  check_workspace(workspace, p, Keeps::rows);
  if (p.heads() == 0 || p.Tq + p.Tk == 0) return;
  bool aligned = true;
  for (const View* view : {&grad_q, &grad_k, &grad_v}) aligned &= is_aligned(*view, p.D);
  for (const ConstView* view : {&grad_out, &q, &k, &v}) aligned &= is_aligned(*view, p.D);
  launch_row_products(workspace.delta.data(), grad_out, out, p, stream);
  const Backward all{grad_q, grad_k, grad_v, grad_out, q, k, v, lse, workspace.delta.data(), p};
  with_head(p.D, [&](auto head) { launch_backward_head<head()>(all, aligned, stream); });
}

// ---- The versions -----------------------------------------------------------------------------

// Softmax's own roundings, one addition more for each product of the sum of values.
inline Roundings roundings_composed(const Problem& p) {
  const softmax::Roundings of_softmax = softmax::roundings_best(p.Tk);
  return {of_softmax.exponentials, of_softmax.additions + static_cast<double>(p.Tk)};
}
inline Roundings roundings_fused(const Problem& p) { return {1, static_cast<double>(p.Tk) + 8}; }
// Every tile may rescale what was there: no tile has fewer than kAcross keys.
inline Roundings roundings_flash(const Problem& p) {
  const double Tk = static_cast<double>(p.Tk), tiles = std::ceil(Tk / kAcross);
  return {1 + tiles, Tk + tiles + 3};
}

struct Launch {
  using Forward = void (*)(const View& out, float* lse, const ConstView& q, const ConstView& k,
                           const ConstView& v, const Problem& p, Workspace& workspace,
                           hipStream_t stream);
  using Backward = void (*)(const View& grad_q, const View& grad_k, const View& grad_v,
                            const ConstView& grad_out, const ConstView& out, const float* lse,
                            const ConstView& q, const ConstView& k, const ConstView& v,
                            const Problem& p, Workspace& workspace, hipStream_t stream);
  Forward forward;
  Backward backward;  // null: it has none
  Roundings (*roundings)(const Problem& p);
  Keeps forward_keeps, backward_keeps;  // what they need in a Workspace
};

inline constexpr Version<Launch> kVersions[] = {
    {"composed",
     {launch_composed, backward_composed, roundings_composed, Keeps::one_matrix,
      Keeps::two_matrices},
     "products, mask and softmax of earlier steps, through memory"},
    {"fused",
     {launch_fused, nullptr, roundings_fused, Keeps::rows, Keeps::rows},
     "rows of scores stay in shared memory"},
    {"flash",
     {launch_flash, backward, roundings_flash, Keeps::rows, Keeps::rows},
     "tiles of scores in registers: online softmax, no row anywhere"},
};

}  // namespace attention
