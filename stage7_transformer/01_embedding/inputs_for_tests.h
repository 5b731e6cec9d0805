// What the tests of step 7.1 share: texts of all kinds, and a pass held against the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "common/guarded.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/reference.h"
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/01_embedding/reference.h"

namespace embedding_test {

using namespace embedding;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using testing::random_floats;
using testing::same_bits;

// Which tokens a text is made of: all alike, all different (as far as there are so many), or drawn
// so that a few are frequent.
enum class Text { one_token, in_turn, random };

inline std::vector<std::int32_t> make_tokens(size_t n, size_t V, Text kind) {
  std::vector<std::int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) {
    const double u = std::fabs(static_cast<double>(random_numbers::uniform(7, 9, i)));
    const size_t token = kind == Text::one_token ? V / 2
                         : kind == Text::in_turn
                             ? (n - i) % V
                             : static_cast<size_t>(u * u * u * static_cast<double>(V));
    tokens[i] = static_cast<std::int32_t>(token);
  }
  return tokens;
}

// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, outputs;
};
inline constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {0, 3}};

struct Inputs {
  explicit Inputs(const Shape& sizes, Text kind = Text::random)
      : shape(checked(sizes)),
        tokens(make_tokens(sizes.positions(), sizes.V, kind)),
        token_table(random_floats(sizes.V * sizes.C, 0)),
        position_table(random_floats(checked(sizes).T_max * sizes.C, 1)),
        grad_y(random_floats(sizes.positions() * sizes.C, 2)) {}
  Shape shape;
  std::vector<std::int32_t> tokens;
  std::vector<float> token_table, position_table, grad_y;
};

// The entries for later steps, as versions.
inline void run_forward(float* y, const Lookup& in, hipStream_t stream) {
  forward(y, in.tokens, in.token_table, in.position_table, in.shape, stream, in.bad_token);
}
inline void run_backward(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  backward(out.grad_token, out.grad_position, out.grad_y, out.tokens, out.shape, workspace, stream);
}
inline std::vector<Version<Launch>> versions() {
  std::vector<Version<Launch>> all(std::begin(kVersions), std::end(kVersions));
  all.push_back({"forward", {run_forward}, ""});
  return all;
}
inline std::vector<Version<BackwardLaunch>> backward_versions() {
  std::vector<Version<BackwardLaunch>> all(std::begin(kBackwardVersions),
                                           std::end(kBackwardVersions));
  all.push_back({"backward", {run_backward, roundings_in_order, true}, ""});
  return all;
}

inline Comparison check(const Launch& version, const Inputs& in, Offsets offsets = {0, 0},
                        unsigned long long* bad_token = nullptr) {
  Guarded<std::int32_t> d_tokens(in.tokens, offsets.inputs);
  Guarded<float> d_token_table(in.token_table, offsets.inputs);
  Guarded<float> d_position_table(in.position_table, offsets.inputs);
  Guarded<float> d_y(in.shape.positions() * in.shape.C, offsets.outputs);
  version.run(d_y.data(),
              {d_tokens.data(), d_token_table.data(), d_position_table.data(), in.shape, bad_token},
              nullptr);
  const std::vector<float> got = d_y.to_host();
  const std::vector<double> want =
      forward_cpu(in.tokens, in.token_table, in.position_table, in.shape);
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return vector_add::bound(want[i]); });
  result.ok = result.ok && d_y.intact() && d_tokens.intact() && d_token_table.intact() &&
              d_position_table.intact();
  return result;
}

struct Results {
  std::vector<float> token, position;
  bool intact;
};

inline Results run(const BackwardLaunch& version, const Inputs& in, Workspace& workspace,
                   Offsets offsets = {0, 0}) {
  Guarded<std::int32_t> d_tokens(in.tokens, offsets.inputs);
  Guarded<float> d_grad_y(in.grad_y, offsets.inputs);
  Guarded<float> d_token(in.token_table.size(), offsets.outputs);
  Guarded<float> d_position(in.position_table.size(), offsets.outputs);
  version.run({d_token.data(), d_position.data(), d_grad_y.data(), d_tokens.data(), in.shape,
               workspace.bad_token()},
              workspace, nullptr);
  return {d_token.to_host(), d_position.to_host(),
          d_tokens.intact() && d_grad_y.intact() && d_token.intact() && d_position.intact()};
}
inline Results run(const BackwardLaunch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  Workspace workspace(in.shape);
  return run(version, in, workspace, offsets);
}

inline Comparison compare_sums(const std::vector<float>& got, const RowSums& want, size_t cols,
                               double (*roundings)(double)) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.bound(i, cols, roundings); });
}

inline Comparison check(const BackwardLaunch& version, const Inputs& in, const Results& got) {
  const Gradients want = backward_cpu(in.grad_y, in.tokens, in.shape);
  const size_t cols = std::max(in.shape.C, size_t{1});
  const Comparison token = compare_sums(got.token, want.token, cols, version.roundings);
  Comparison position = compare_sums(got.position, want.position, cols, roundings_in_order);
  position.ok = position.ok && got.intact;
  return token.ok ? position : token;
}
inline Comparison check(const BackwardLaunch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  return check(version, in, run(version, in, offsets));
}

// B, T, C, V and T_max.
inline constexpr Shape kShapes[] = {
    {0, 5, 4, 3},       {3, 0, 4, 3, 2},      {3, 5, 0, 3},     {1, 1, 1, 1},
    {2, 3, 4, 5},       {1, 16, 3, 2, 16},    {3, 7, 5, 11},    {2, 17, 64, 65},
    {5, 31, 36, 7, 40}, {1, 33, 129, 9},      {2, 40, 260, 17}, {1, 3, 1031, 4},
    {9, 29, 6, 300},    {3, 50, 4, 4099, 64}, {2, 0, 5, 7},  // an empty table of positions, too
    {2, 9, 33, 64}};  // tables of all that shared memory has room for

}  // namespace embedding_test
