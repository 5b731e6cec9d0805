// What the tests of 7.4 and 7.5 share: arrays in every layout, and how far what is planted reaches.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage4_forward/01_dense/values_for_tests.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/04_attention/reference.h"

namespace attention {

using dense::against;

// The numbers [0, n).
inline std::vector<size_t> numbers_to(size_t n) {
  std::vector<size_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

// Arrays (B, H, T, D) on the host.
struct Inputs {
  explicit Inputs(const Problem& sizes, float scale = 1)
      : p(sizes),
        q(testing::random_floats(p.heads() * p.Tq * p.D, 0, scale)),
        k(testing::random_floats(p.heads() * p.Tk * p.D, 1, scale)),
        v(testing::random_floats(p.heads() * p.Tk * p.D, 2)),
        grad_out(testing::random_floats(p.heads() * p.Tq * p.D, 3)) {}

  Problem p;
  std::vector<float> q, k, v, grad_out;
};

// Where an array lies: heads one after the other, or part of an array (B, T, parts, H, D).
struct Layout {
  bool rows_first = false;
  size_t parts = 1, part = 0, offset = 0;
};

// An array (B, H, T, D) in the device memory of such a layout. What belongs to other parts holds
// 12345, and must go on doing so.
class Array {
 public:
  Array(const Problem& p, size_t T, const Layout& layout)
      : p_(p), T_(T), layout_(layout), memory_(p.heads() * T * p.D * layout.parts, layout.offset) {
    fill(std::vector<float>(p.heads() * T * p.D, std::numeric_limits<float>::quiet_NaN()));
  }
  void fill(const std::vector<float>& values) {
    std::vector<float> content(memory_.size(), kFiller);
    for (size_t i = 0; i < values.size(); ++i) content[place(i)] = values[i];
    if (!content.empty())
      HIP_CHECK(hipMemcpy(memory_.data(), content.data(), content.size() * sizeof(float),
                          hipMemcpyHostToDevice));
  }
  View view() {
    return layout_.rows_first
               ? rows_first(memory_.data(), T_, p_.H, p_.D, layout_.parts, layout_.part)
               : heads_first(memory_.data(), p_.H, T_, p_.D);
  }
  std::vector<float> to_host() const {
    const std::vector<float> content = memory_.to_host();
    std::vector<float> values(p_.heads() * T_ * p_.D);
    for (size_t i = 0; i < values.size(); ++i) values[i] = content[place(i)];
    return values;
  }
  bool intact() const {
    std::vector<float> content = memory_.to_host();
    for (size_t i = 0; i < p_.heads() * T_ * p_.D; ++i) content[place(i)] = kFiller;
    for (const float value : content)
      if (value != kFiller) return false;
    return memory_.intact();
  }

 private:
  static constexpr float kFiller = 12345;
  // Of element i of (B, H, T, D).
  size_t place(size_t i) const {
    if (!layout_.rows_first) return i;
    const size_t d = i % p_.D, row = i / p_.D, t = row % T_, head = row / T_;
    const size_t token = head / p_.H * T_ + t;
    return ((token * layout_.parts + layout_.part) * p_.H + head % p_.H) * p_.D + d;
  }

  Problem p_;
  size_t T_;
  Layout layout_;
  Guarded<float> memory_;
};

struct Arrangement {
  Layout q, k, v, out;
};
inline constexpr Arrangement kHeadsFirst = {};
inline constexpr Arrangement kPacked = {
    {true, 3, 0, 0}, {true, 3, 1, 0}, {true, 3, 2, 0}, {true, 1, 0, 0}};
inline constexpr Arrangement kUnaligned = {
    {true, 3, 0, 1}, {true, 2, 0, 2}, {false, 1, 0, 3}, {true, 1, 0, 1}};

// Rows [first, last) of every head.
inline std::vector<float> rows_of(const std::vector<float>& values, const Problem& p, size_t T,
                                  size_t first, size_t last) {
  std::vector<float> rows;
  for (size_t i = 0; i < values.size(); ++i)
    if (i / p.D % T >= first && i / p.D % T < last) rows.push_back(values[i]);
  return rows;
}

enum class Of { q, k, v, grad_out };

// The rows [first, last) of each head that row `token` of an array has to do with: of out and
// grad_q, then of grad_k and grad_v. A query's numbers reach its own row and, backwards, the keys
// that it sees; a key's reach the queries that see it and, through their softmax, all keys that
// these see.
struct Reach {
  size_t first, last;
};
inline Reach reach_of_queries(const Problem& p, Of array, size_t token) {
  if (array == Of::q || array == Of::grad_out) return {token, token + 1};
  const size_t first = token + p.Tq < p.Tk ? 0 : token + p.Tq - p.Tk;
  return {first, p.Tq};
}
inline Reach reach_of_keys(const Problem& p, Of array, size_t token) {
  return {0, visible_keys(p, array == Of::q || array == Of::grad_out ? token : p.Tq - 1)};
}

inline float as_float(float value) { return value; }
inline float as_float(gpu::bfloat16 value) { return gpu::to_float(value); }

// Do all rows but these have the same bits, in every head? Of `want` (unless it is null), are they
// within their bounds?
template <class T>
bool same_outside(const std::vector<T>& before, const std::vector<T>& after, const Values* want,
                  size_t length, size_t D, Reach may_change) {
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t row = i / D % length;
    if (row >= may_change.first && row < may_change.last) continue;
    if (testing::same_bits(before[i], after[i])) continue;
    if (want == nullptr) return false;
    const double off = static_cast<double>(as_float(after[i])) - want->value[i];
    if (!(std::fabs(off) <= want->error[i])) return false;
  }
  return true;
}
// Is something in each of these rows not finite?
template <class T>
bool reaches(const std::vector<T>& values, size_t length, size_t D, Reach rows) {
  for (size_t row = 0; row < values.size() / D; ++row) {
    if (row % length < rows.first || row % length >= rows.last) continue;
    bool finite = true;
    for (size_t d = 0; d < D; ++d) finite = finite && std::isfinite(as_float(values[row * D + d]));
    if (finite) return false;
  }
  return true;
}

// Puts `special` in column `column` of row `token` of every head.
template <class T>
void plant(std::vector<T>& values, size_t length, size_t D, size_t token, size_t column,
           T special) {
  for (size_t row = token; row < values.size() / D; row += length)
    values[row * D + column] = special;
}

struct Lengths {
  size_t Tq, Tk, D;
};
inline constexpr Lengths kUnseenSizes[] = {{9, 9, 3},    {70, 70, 16}, {131, 131, 32},
                                           {67, 90, 64}, {90, 67, 64}, {40, 40, 128},
                                           {37, 37, 200}};

// NumPy's arrays of these steps.
inline NpyArray numpy_array(const std::string& name) {
  return read_npy(reference_path("attention_" + name + ".npy"));
}

inline std::vector<float> narrowed(const NpyArray& array) {
  return std::vector<float>(array.values.begin(), array.values.end());
}
// Both are sums of some dozen numbers of order 1 to 10, in double.
inline bool agree(const Values& ours, const std::vector<double>& numpy) {
  bool same = ours.value.size() == numpy.size();
  for (size_t i = 0; same && i < numpy.size(); ++i)
    same = std::fabs(ours.value[i] - numpy[i]) <= 1e-12 * (1 + std::fabs(numpy[i]));
  return same;
}

// ---- Problems that every version of 7.4 and 7.5 must solve ------------------------------------

// Each calls require_right(inputs, arrangement).
template <class Require>
void for_lengths_and_layouts(Require require_right) {
  for (const size_t T : {1, 2, 31, 127, 128, 129})
    for (const bool causal : {true, false}) {
      const Problem p = problem_of(1, T < 100 ? 3 : 1, T, T, 16, causal);
      CAPTURE(T, causal);
      require_right(Inputs(p, 3), kPacked);
    }
  require_right(Inputs(problem_of(2, 4, 31, 31, 20, true), 3), kHeadsFirst);
  require_right(Inputs(problem_of(3, 2, 33, 33, 8, false), 3), kUnaligned);
  require_right(Inputs(problem_of(1, 1, 500, 500, 16, true), 3), kPacked);
}

template <class Require>
void for_sizes_of_a_head(Require require_right) {
  for (const size_t D : {1, 2, 3, 7, 15, 16, 17, 24, 32, 33, 64, 65, 80, 128, 129, 200, 255, 256})
    for (const bool aligned : {true, false}) {
      CAPTURE(D, aligned);
      const Problem p = problem_of(1, 2, 19, 19, D, true);
      require_right(Inputs(p, 2), aligned ? kPacked : kUnaligned);
    }
}

template <class Require>
void for_pairs_of_lengths(Require require_right) {
  constexpr size_t kLengths[][2] = {{1, 1},  {1, 37},  {2, 70},   {1, 300}, {5, 130}, {70, 1},
                                    {70, 5}, {90, 67}, {66, 131}, {3, 0},   {0, 3},   {0, 0}};
  for (const auto& [Tq, Tk] : kLengths)
    for (const bool causal : {true, false}) {
      CAPTURE(Tq, Tk, causal);
      require_right(Inputs(problem_of(2, 2, Tq, Tk, 16, causal), 3), kPacked);
    }
}

}  // namespace attention
