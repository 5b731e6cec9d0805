// What the tests of 7.4 and 7.5 for bf16 share: inputs, layouts, and the forward pass in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/guarded.h"
#include "common/half.h"
#include "common/npy.h"
#include "common/program.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"
#include "stage7_transformer/04_attention/attention.h"

namespace attention_bf16 {

using attention::Problem;
using gpu::bfloat16;

// How the rows of q, k, v and out lie in memory, and how many elements behind a 16-byte boundary
// they begin.
struct Layout {
  bool packed = false;  // (B, T, 3, H, D), else (B, H, T, D)
  size_t offset = 0;
};

// Keys of the smallest tile: a sum is rescaled once per tile.
inline constexpr double kSmallestTile = 2;

inline double to_double(bfloat16 value) { return static_cast<double>(gpu::to_float(value)); }
inline double visible(const Problem& p, size_t row) {
  return p.causal ? std::min(static_cast<double>(p.Tk), static_cast<double>(row + 1) +
                                                            static_cast<double>(p.Tk) -
                                                            static_cast<double>(p.Tq))
                  : static_cast<double>(p.Tk);
}

// Values and what each may be off.
struct Values {
  std::vector<double> value, error;
  explicit Values(size_t n) : value(n), error(n) {}
  Comparison compare(const std::vector<double>& got) const {
    return ::compare(
        value.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return value[i]; },
        [&](size_t i) { return error[i]; });
  }
};

// One attention: its inputs on the host, (B, H, T, D), each bf16 exactly.
struct Inputs {
  Problem problem;
  std::vector<bfloat16> q, k, v, grad_out;
};

inline Inputs random_inputs(const Problem& problem, float largest = 1) {
  const size_t heads = problem.B * problem.H;
  Inputs in{problem, std::vector<bfloat16>(heads * problem.Tq * problem.D),
            std::vector<bfloat16>(heads * problem.Tk * problem.D),
            std::vector<bfloat16>(heads * problem.Tk * problem.D),
            std::vector<bfloat16>(heads * problem.Tq * problem.D)};
  std::uint32_t stream = 0;
  for (std::vector<bfloat16>* values : {&in.q, &in.k, &in.v, &in.grad_out}) {
    const float factor = stream < 2 ? largest : 1;
    for (size_t i = 0; i < values->size(); ++i)
      (*values)[i] = gpu::from_float<bfloat16>(factor * random_numbers::uniform(11, stream, i));
    ++stream;
  }
  return in;
}

struct Reference {
  Values out, lse;
};

// The attention in double, and how far the kernel may be off. u is float's roundoff, U bf16's. To
// first order in each, a weight w_j of a row is off by a factor of 1 ± d_j, where d_j sums
//
//   scale e_j        e_j: what the matrix unit may lose of the score (gemm_mixed::bound)
//   3 u (max - x_j)  the scale in units of log 2, and the fused multiply-add's rounding; both are
//                    relative to the exponent, and the shift they subtract is all weights' own
//   2^-22 + 2 u      of exp2, and of one multiplication, for each tile of keys and itself
//
// and by 1 ± U where it is rounded to bf16, which the row's sum L does not see. The sum of the
// weighted values then loses what a matrix unit does, L is off by the weights' mean d and
// n roundings, and the quotient is rounded to bf16. Weights below 2^-126 may become 0.
inline Reference attention_cpu(const Inputs& in) {
  const Problem& p = in.problem;
  const size_t heads = p.B * p.H, D = p.D;
  constexpr double u = kFloatRoundoff, U = gpu::kBfloat16Roundoff;
  Reference result{Values(heads * p.Tq * D), Values(heads * p.Tq)};
  std::vector<double> x(p.Tk), d(p.Tk), sums(D), absolute(D), off(D);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < p.Tq; ++row) {
      const double seen = visible(p, row);
      const size_t n = seen > 0 ? static_cast<size_t>(seen) : 0;
      const double tiles = std::ceil(static_cast<double>(n) / kSmallestTile);
      const bfloat16* q = in.q.data() + (head * p.Tq + row) * D;
      double highest = -std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < n; ++j) {
        const bfloat16* k = in.k.data() + (head * p.Tk + j) * D;
        double sum = 0, sum_absolute = 0;
        for (size_t i = 0; i < D; ++i) {
          const double product = to_double(q[i]) * to_double(k[i]);
          sum += product, sum_absolute += std::fabs(product);
        }
        x[j] = static_cast<double>(p.scale) * sum;
        d[j] =
            static_cast<double>(p.scale) * gemm_mixed::bound(static_cast<double>(D), sum_absolute);
        highest = std::max(highest, x[j]);
      }
      double L = 0, off_L = 0;
      std::fill(sums.begin(), sums.end(), 0.0);
      std::fill(absolute.begin(), absolute.end(), 0.0);
      std::fill(off.begin(), off.end(), 0.0);
      for (size_t j = 0; j < n; ++j) {
        const double weight = std::exp(x[j] - highest);
        const double factor = std::expm1(d[j] + 3 * u * (highest - x[j]) +
                                         (tiles + 1) * (std::ldexp(1, -22) + 2 * u));
        L += weight, off_L += weight * factor;
        const bfloat16* v = in.v.data() + (head * p.Tk + j) * D;
        for (size_t i = 0; i < D; ++i) {
          const double product = weight * to_double(v[i]);
          sums[i] += product;
          absolute[i] += std::fabs(product);
          off[i] += std::fabs(product) * (factor + U + factor * U) +
                    std::ldexp(std::fabs(to_double(v[i])), -120);
        }
      }
      const size_t index = head * p.Tq + row;
      result.lse.value[index] = highest + (n == 0 ? 0 : std::log(L));
      if (n == 0) continue;  // 0, exactly
      const double terms = static_cast<double>(n);
      const double relative = off_L / L + (terms + tiles + 3) * u;
      result.lse.error[index] =
          relative +
          4 * u * (std::fabs(highest) + std::fabs(result.lse.value[index]) + std::log(L) + 1);
      for (size_t i = 0; i < D; ++i) {
        const double value = sums[i] / L;
        const double error = (off[i] + gemm_mixed::bound(terms + 16, absolute[i] + off[i])) / L;
        const double quotient = relative < 0.5
                                    ? (error + std::fabs(value) * relative) / (1 - relative)
                                    : std::numeric_limits<double>::max();
        result.out.value[index * D + i] = value;
        result.out.error[index * D + i] = quotient * (1 + U) + std::fabs(value) * U;
      }
    }
  }
  return result;
}

// An array (B, H, T, D) in device memory, in a layout. Packed it is part 1 of 3, and the elements
// between its rows are NaN: nobody may read or write them.
class Rows {
 public:
  Rows(const Problem& problem, size_t T, Layout layout)
      : B_(problem.B),
        H_(problem.H),
        T_(T),
        D_(problem.D),
        packed_(layout.packed),
        memory_(B_ * H_ * T_ * D_ * (packed_ ? 3 : 1), layout.offset) {}
  Rows(const Problem& problem, size_t T, Layout layout, const std::vector<bfloat16>& values)
      : Rows(problem, T, layout) {
    std::vector<bfloat16> spread = memory_.to_host();
    for_each([&](size_t i, size_t place) { spread[place] = values[i]; });
    if (!spread.empty())
      HIP_CHECK(hipMemcpy(memory_.data(), spread.data(), spread.size() * sizeof(bfloat16),
                          hipMemcpyHostToDevice));
  }

  attention::Bf16View view() {
    if (packed_) return {memory_.data() + H_ * D_, T_ * 3 * H_ * D_, D_, 3 * H_ * D_};
    return {memory_.data(), H_ * T_ * D_, T_ * D_, D_};
  }
  // The values, (B, H, T, D).
  std::vector<bfloat16> to_host() const {
    const std::vector<bfloat16> spread = memory_.to_host();
    std::vector<bfloat16> values(B_ * H_ * T_ * D_);
    for_each([&](size_t i, size_t place) { values[i] = spread[place]; });
    return values;
  }
  // Has nobody written anything but the rows?
  bool intact() const {
    const std::vector<bfloat16> spread = memory_.to_host();
    std::vector<bool> inside(spread.size());
    for_each([&](size_t, size_t place) { inside[place] = true; });
    for (size_t i = 0; i < spread.size(); ++i)
      if (!inside[i] && !is_poison(spread[i])) return false;
    return memory_.intact();
  }

 private:
  template <class Visit>
  void for_each(Visit&& visit) const {
    size_t i = 0;
    for (size_t b = 0; b < B_; ++b)
      for (size_t h = 0; h < H_; ++h)
        for (size_t t = 0; t < T_; ++t)
          for (size_t d = 0; d < D_; ++d, ++i)
            visit(i, packed_ ? ((b * T_ + t) * 3 + 1) * H_ * D_ + h * D_ + d : i);
  }

  size_t B_, H_, T_, D_;
  bool packed_;
  Guarded<bfloat16> memory_;
};

inline std::vector<double> doubles(const std::vector<bfloat16>& values) {
  std::vector<double> result;
  for (const bfloat16 value : values) result.push_back(to_double(value));
  return result;
}
inline std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

inline Problem problem_of(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal) {
  return {B, H, Tq, Tk, D, causal, 1 / std::sqrt(static_cast<float>(std::max<size_t>(D, 1)))};
}
inline bool available() { return missing(gemm_mixed::kNeedsOfMmaSync).empty(); }

// The numbers that NumPy's references are made of, rounded.
inline std::vector<bfloat16> numpy_rounded(const std::string& name) {
  std::vector<bfloat16> rounded;
  for (const double value : read_npy(reference_path("attention_" + name + ".npy")).values)
    rounded.push_back(gpu::from_float<bfloat16>(static_cast<float>(value)));
  return rounded;
}

}  // namespace attention_bf16
