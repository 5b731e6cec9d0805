// Every version of the embedding, forward and backward: awkward shapes and alignments, texts of one
// token and of many, tokens that are none.
#include "stage7_transformer/01_embedding/embedding.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/reference.h"
#include "stage7_transformer/01_embedding/detail/plan.h"
#include "stage7_transformer/01_embedding/reference.h"

namespace {

using namespace embedding;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using testing::random_floats;
using testing::same_bits;

// Which tokens a text is made of: all alike, all different (as far as there are so many), or drawn
// so that a few are frequent.
enum class Text { one_token, in_turn, random };

std::vector<std::int32_t> make_tokens(size_t n, size_t V, Text kind) {
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
constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {0, 3}};

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
void run_forward(float* y, const Lookup& in, hipStream_t stream) {
  forward(y, in.tokens, in.token_table, in.position_table, in.shape, stream, in.bad_token);
}
void run_backward(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  backward(out.grad_token, out.grad_position, out.grad_y, out.tokens, out.shape, workspace, stream);
}
std::vector<Version<Launch>> versions() {
  std::vector<Version<Launch>> all(std::begin(kVersions), std::end(kVersions));
  all.push_back({"forward", {run_forward}, ""});
  return all;
}
std::vector<Version<BackwardLaunch>> backward_versions() {
  std::vector<Version<BackwardLaunch>> all(std::begin(kBackwardVersions),
                                           std::end(kBackwardVersions));
  all.push_back({"backward", {run_backward, roundings_in_order, true}, ""});
  return all;
}

Comparison check(const Launch& version, const Inputs& in, Offsets offsets = {0, 0},
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

Results run(const BackwardLaunch& version, const Inputs& in, Workspace& workspace,
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
Results run(const BackwardLaunch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  Workspace workspace(in.shape);
  return run(version, in, workspace, offsets);
}

Comparison compare_sums(const std::vector<float>& got, const RowSums& want, size_t cols,
                        double (*roundings)(double)) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.bound(i, cols, roundings); });
}

Comparison check(const BackwardLaunch& version, const Inputs& in, const Results& got) {
  const Gradients want = backward_cpu(in.grad_y, in.tokens, in.shape);
  const size_t cols = std::max(in.shape.C, size_t{1});
  const Comparison token = compare_sums(got.token, want.token, cols, version.roundings);
  Comparison position = compare_sums(got.position, want.position, cols, roundings_in_order);
  position.ok = position.ok && got.intact;
  return token.ok ? position : token;
}
Comparison check(const BackwardLaunch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  return check(version, in, run(version, in, offsets));
}

// B, T, C, V and T_max.
constexpr Shape kShapes[] = {
    {0, 5, 4, 3},       {3, 0, 4, 3, 2},      {3, 5, 0, 3},     {1, 1, 1, 1},
    {2, 3, 4, 5},       {1, 16, 3, 2, 16},    {3, 7, 5, 11},    {2, 17, 64, 65},
    {5, 31, 36, 7, 40}, {1, 33, 129, 9},      {2, 40, 260, 17}, {1, 3, 1031, 4},
    {9, 29, 6, 300},    {3, 50, 4, 4099, 64}, {2, 0, 5, 7},  // an empty table of positions, too
    {2, 9, 33, 64}};  // tables of all that shared memory has room for

}  // namespace

// ---- Forward ----------------------------------------------------------------------------------

TEST_CASE("every version copies the right rows at any shape and alignment") {
  for (const Shape& shape : kShapes)
    for (const Text kind : {Text::one_token, Text::random}) {
      const Inputs in(shape, kind);
      for (const auto& version : testing::chosen(versions()))
        for (const Offsets& offsets : kOffsets) {
          CAPTURE(version.name, shape.B, shape.T, shape.C, shape.V, offsets.inputs,
                  offsets.outputs);
          REQUIRE_OK(check(version.launch, in, offsets));
        }
    }
}

// ---- Backward ---------------------------------------------------------------------------------

TEST_CASE("gradients of any shape and alignment, of few tokens and of many") {
  for (const Shape& shape : kShapes)
    for (const Text kind : {Text::one_token, Text::in_turn, Text::random}) {
      const Inputs in(shape, kind);
      for (const auto& version : testing::chosen(backward_versions()))
        for (const Offsets& offsets : kOffsets) {
          if (kind != Text::random && offsets.inputs != offsets.outputs) continue;
          CAPTURE(version.name, shape.B, shape.T, shape.C, shape.V, static_cast<int>(kind),
                  offsets.inputs, offsets.outputs);
          REQUIRE_OK(check(version.launch, in, offsets));
        }
    }
}

// Sums of integers are exact: no gradient can be missed, doubled or sent to a wrong row.
TEST_CASE("every gradient arrives once") {
  for (const Shape& shape :
       {Shape{7, 300, 4, 3}, Shape{7, 300, 5, 40}, Shape{3, 700, 1, 5000}, Shape{5, 400, 33, 65}})
    for (const Text kind : {Text::one_token, Text::in_turn, Text::random}) {
      Inputs in(shape, kind);
      for (float& value : in.grad_y) value = std::rint(9 * value);
      const Gradients want = backward_cpu(in.grad_y, in.tokens, in.shape);
      for (const auto& version : testing::chosen(backward_versions())) {
        CAPTURE(version.name, shape.T, shape.V, static_cast<int>(kind));
        const Results got = run(version.launch, in);
        REQUIRE(std::vector<double>(got.token.begin(), got.token.end()) == want.token.value);
        REQUIRE(std::vector<double>(got.position.begin(), got.position.end()) ==
                want.position.value);
        REQUIRE(got.intact);
      }
    }
}

TEST_CASE("the sort puts the positions of a token behind each other, in their order") {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{511}, size_t{513}, size_t{3000}})
    for (const size_t V : {size_t{1}, size_t{15}, size_t{16}, size_t{300}, size_t{70000}}) {
      std::vector<std::int32_t> tokens = make_tokens(n, V, Text::random);
      for (size_t i = 0; i < n; i += 7) tokens[i] = i % 2 == 0 ? -3 : static_cast<int>(V);
      Guarded<std::int32_t> d_tokens(tokens, 1);
      const Shape shape{1, n, 1, V};
      Workspace workspace(shape);
      sort(d_tokens.data(), shape, workspace);
      std::vector<Entry> want;
      for (size_t i = 0; i < n; ++i)
        want.push_back({static_cast<std::uint32_t>(is_token(tokens[i], V) ? tokens[i] : V),
                        static_cast<std::uint32_t>(i)});
      std::stable_sort(want.begin(), want.end(),
                       [](const Entry& a, const Entry& b) { return a.token < b.token; });
      const std::vector<Entry> got = workspace.entries[sort_rounds(V) % 2 == 1 ? 0 : 1].to_host();
      CAPTURE(n, V);
      for (size_t i = 0; i < n; ++i)
        REQUIRE((got[i].token == want[i].token && got[i].position == want[i].position));
      for (const std::uint32_t first : workspace.first.to_host()) REQUIRE(first == kNowhere);
      REQUIRE(d_tokens.intact());
    }
}

TEST_CASE("every run gives the same bits where that is promised") {
  const Inputs in({5, 211, 12, 7});
  for (const auto& version : testing::chosen(backward_versions())) {
    if (!version.launch.deterministic) continue;
    CAPTURE(version.name);
    const Results first = run(version.launch, in);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const Results again = run(version.launch, in);
      REQUIRE((same_bits(again.token, first.token) && same_bits(again.position, first.position)));
    }
  }
}

TEST_CASE("the two halves of a backward pass are the whole, on any stream") {
  const Inputs in({5, 61, 12, 500, 70});
  const Results want = run(kBackwardVersions[2].launch, in);
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  DeviceBuffer<std::int32_t> d_tokens(in.tokens);
  DeviceBuffer<float> d_grad_y(in.grad_y);
  DeviceBuffer<float> d_token(in.token_table.size()), d_position(in.position_table.size());
  Workspace workspace(in.shape);
  sort(d_tokens.data(), in.shape, workspace, stream);
  d_tokens.poison();  // the sums do not need them any more
  backward_sorted(d_token.data(), d_position.data(), d_grad_y.data(), in.shape, workspace, stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(
      (same_bits(d_token.to_host(), want.token) && same_bits(d_position.to_host(), want.position)));
  HIP_CHECK(hipStreamDestroy(stream));
}

// The tables of few tokens and few columns are many, and those of many columns few.
TEST_CASE("a workspace is enough for every smaller batch") {
  for (const size_t C : {size_t{1}, size_t{64}, size_t{400}})
    for (const size_t V : {size_t{1}, size_t{65}, size_t{384}, size_t{385}})
      for (const size_t T : {size_t{1}, size_t{100}, size_t{1000}, size_t{21121}})
        for (const size_t B : {size_t{1}, size_t{7}}) {
          CAPTURE(C, V, T, B);
          const size_t most = partials_of({B, T, C, V});
          REQUIRE(partials_of({B, T - 1, C, V}) <= most);
          if (!table_fits(V)) continue;
          const TablePlan shares = plan_table({B, T, C, V});
          REQUIRE(shares.slices * V * C <= most);
          REQUIRE(shares.groups * V * kTableWidth * sizeof(float) <= 48 * 1024);
          REQUIRE(shares.slices * shares.slice >= B * T);
        }
}

// A workspace is used again and again, for other tokens and for smaller batches.
TEST_CASE("nothing is left of the batch before") {
  const Inputs large({4, 100, 8, 30, 128}, Text::in_turn), small({2, 50, 8, 30, 128}, Text::random);
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    Workspace workspace(large.shape);
    REQUIRE_OK(check(version.launch, large, run(version.launch, large, workspace)));
    REQUIRE_OK(check(version.launch, small, run(version.launch, small, workspace)));
    REQUIRE_OK(check(version.launch, large, run(version.launch, large, workspace)));
  }
}

TEST_CASE("NaN of a gradient reaches its own token and its own position") {
  Inputs in({3, 20, 4, 9});
  in.grad_y[25 * 4 + 2] = kNan;  // sequence 1, place 5
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    const Results got = run(version.launch, in);
    for (size_t i = 0; i < got.token.size(); ++i)
      REQUIRE(std::isnan(got.token[i]) == (i == static_cast<size_t>(in.tokens[25]) * 4 + 2));
    for (size_t i = 0; i < got.position.size(); ++i)
      REQUIRE(std::isnan(got.position[i]) == (i == 5 * 4 + 2));
  }
}

// The loss is linear in the tables: a central difference has no error but its rounding. With values
// and steps that are multiples of 2^-10 there is none at all.
TEST_CASE("the gradients agree with finite differences in double") {
  const Shape shape{2, 5, 3, 4, 6};
  Inputs in(shape);
  for (std::vector<float>* values : {&in.token_table, &in.position_table, &in.grad_y})
    for (float& value : *values) value = std::rint(1024 * value) / 1024;
  const Gradients want = backward_cpu(in.grad_y, in.tokens, shape);
  const auto slope = [&](float& argument) {
    const auto loss = [&](float by) {
      const float middle = argument;
      argument += by;
      const std::vector<double> y =
          forward_cpu(in.tokens, in.token_table, in.position_table, shape);
      argument = middle;
      double total = 0;
      for (size_t i = 0; i < y.size(); ++i) total += y[i] * static_cast<double>(in.grad_y[i]);
      return total;
    };
    return loss(0.5f) - loss(-0.5f);
  };
  for (size_t i = 0; i < in.token_table.size(); ++i)
    REQUIRE(slope(in.token_table[i]) == want.token.value[i]);
  for (size_t i = 0; i < in.position_table.size(); ++i)
    REQUIRE(slope(in.position_table[i]) == want.position.value[i]);
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("embedding_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
  const std::vector<size_t> sizes = array("grad_y").shape;
  Inputs in({sizes.at(0), sizes.at(1), sizes.at(2), array("token_table").shape.at(0),
             array("position_table").shape.at(0)});
  in.token_table = floats("token_table"), in.position_table = floats("position_table");
  in.grad_y = floats("grad_y");
  const std::vector<double> tokens = array("tokens").values;
  for (size_t i = 0; i < tokens.size(); ++i) in.tokens[i] = static_cast<std::int32_t>(tokens[i]);
  const std::vector<double> y = forward_cpu(in.tokens, in.token_table, in.position_table, in.shape);
  REQUIRE(y == array("y").values);
  Gradients want = backward_cpu(in.grad_y, in.tokens, in.shape);
  want.token.value = array("grad_token").values;
  want.position.value = array("grad_position").values;
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version.launch, in));
  }
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    const Results got = run(version.launch, in);
    REQUIRE_OK(compare_sums(got.token, want.token, in.shape.C, version.launch.roundings));
    REQUIRE_OK(compare_sums(got.position, want.position, in.shape.C, roundings_in_order));
  }
}

// ---- Tokens that are none, graphs, bad arguments ----------------------------------------------

TEST_CASE("a token outside [0, V) is reported with its position and read nowhere") {
  for (const std::int32_t bad : {-1, 10, INT_MIN, INT_MAX})
    for (const size_t position : {size_t{0}, size_t{17}, size_t{59}}) {
      Inputs in({3, 20, 8, 10});
      in.tokens[position] = bad;
      const std::string line = "position " + std::to_string(position) + ": token " +
                               std::to_string(bad) + " is not in [0, 10)";
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, bad, position);
        Workspace workspace(in.shape);
        REQUIRE_OK(
            check(version.launch, in, {0, 0}, workspace.bad_token()));  // NaN, and only there
        REQUIRE_THROWS_WITH(workspace.check_tokens(10), line);
        REQUIRE_NOTHROW(workspace.check_tokens(10));
        REQUIRE_OK(check(version.launch, in));  // nobody wants to know
      }
      for (const auto& version : testing::chosen(backward_versions())) {
        CAPTURE(version.name, bad, position);
        Workspace workspace(in.shape);
        REQUIRE_OK(check(version.launch, in, run(version.launch, in, workspace)));
        REQUIRE_THROWS_WITH(workspace.check_tokens(10), line);
        REQUIRE_NOTHROW(workspace.check_tokens(10));
      }
    }
}

TEST_CASE("of several bad tokens the first one's position is reported") {
  Inputs in({3, 400, 4, 10});
  in.tokens[1100] = -7, in.tokens[900] = 12, in.tokens[901] = -1;
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    Workspace workspace(in.shape);
    run(version.launch, in, workspace);
    REQUIRE_THROWS_WITH(workspace.check_tokens(10), "position 900: token 12 is not in [0, 10)");
  }
  const std::vector<std::int32_t> tokens(1200, 10);  // none is a token
  in.tokens = tokens;
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    Workspace workspace(in.shape);
    REQUIRE_OK(check(version.launch, in, run(version.launch, in, workspace)));
    REQUIRE_THROWS_WITH(workspace.check_tokens(10), "position 0: token 10 is not in [0, 10)");
  }
}

TEST_CASE("a graph captures forward and backward") {
  const Inputs in({3, 40, 8, 20});
  DeviceBuffer<std::int32_t> d_tokens(in.tokens);
  DeviceBuffer<float> d_token_table(in.token_table), d_position_table(in.position_table);
  DeviceBuffer<float> d_grad_y(in.grad_y), d_y(in.grad_y.size());
  DeviceBuffer<float> d_token(in.token_table.size()), d_position(in.position_table.size());
  Workspace workspace(in.shape);
  const auto launch = [&](hipStream_t stream) {
    forward(d_y.data(), d_tokens.data(), d_token_table.data(), d_position_table.data(), in.shape,
            stream, workspace.bad_token());
    backward(d_token.data(), d_position.data(), d_grad_y.data(), d_tokens.data(), in.shape,
             workspace, stream);
  };
  launch(nullptr);
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<float> y = d_y.to_host(), token = d_token.to_host(),
                           position = d_position.to_host();
  d_y.poison(), d_token.poison(), d_position.poison();
  testing::run_captured(launch);
  REQUIRE((same_bits(d_y.to_host(), y) && same_bits(d_token.to_host(), token) &&
           same_bits(d_position.to_host(), position)));
}

TEST_CASE("a table of too few positions and a small workspace are refused") {
  REQUIRE_THROWS_WITH(forward(nullptr, nullptr, nullptr, nullptr, {1, 5, 4, 3, 4}),
                      "embedding: sequences of 5 positions, and a table for 4");
  REQUIRE_THROWS_AS(forward(nullptr, nullptr, nullptr, nullptr, {size_t{1} << 20, 4096, 4, 3}),
                    std::invalid_argument);
  Workspace workspace({2, 5, 4, 3});
  for (const Shape& shape : {Shape{3, 5, 4, 3}, Shape{2, 5, 4, 4}, Shape{2, 5, 8, 3}})
    REQUIRE_THROWS_AS(backward(nullptr, nullptr, nullptr, nullptr, shape, workspace),
                      std::invalid_argument);
  REQUIRE_THROWS_WITH(backward(nullptr, nullptr, nullptr, nullptr, {3, 5, 4, 3}, workspace),
                      "embedding: a batch of 15 tokens of 3, 4 columns each, is more than the "
                      "workspace is for");
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({3, 40, 8, 20});
  const auto caught = [&](auto launch) { return !check(Launch{launch}, in).ok; };
  REQUIRE(caught([](float* y, const Lookup& wrong, hipStream_t stream) {
    Lookup turned = wrong;  // T sequences of B
    std::swap(turned.shape.B, turned.shape.T);
    launch_vectorized(y, turned, stream);
  }));
  REQUIRE(caught([](float* y, const Lookup& wrong, hipStream_t stream) {
    Lookup next = wrong;  // every token the next row's
    next.token_table += next.shape.C;
    next.shape.V -= 1;
    launch_vectorized(y, next, stream);
  }));

  const auto caught_back = [&](auto launch) {
    return !check(BackwardLaunch{launch, roundings_sorted, true}, in).ok;
  };
  REQUIRE(caught_back([](const Scatter& wrong, Workspace& workspace, hipStream_t stream) {
    launch_sorted(wrong, workspace, stream);
    Scatter shorter = wrong;  // the last sequence is lost
    shorter.shape.B -= 1;
    launch_sorted(shorter, workspace, stream);
  }));
  REQUIRE(caught_back([](const Scatter& wrong, Workspace& workspace, hipStream_t stream) {
    const Shape& shape = wrong.shape;  // the sort of another batch: its last sequence is lost
    sort(wrong.tokens, {shape.B - 1, shape.T, shape.C, shape.V}, workspace, stream);
    backward_sorted(wrong.grad_token, wrong.grad_position, wrong.grad_y,
                    {shape.B - 1, shape.T, shape.C, shape.V}, workspace, stream);
  }));
}

TEST_CASE("one term of a sum shows, by every version's bound", "[harness]") {
  const Inputs in({8, 300, 8, 20});
  const size_t C = in.shape.C;
  const Gradients want = backward_cpu(in.grad_y, in.tokens, in.shape);
  const auto term_of_token = [&](size_t i) {  // that of the token's first position
    const auto first = std::find(in.tokens.begin(), in.tokens.end(), static_cast<int>(i / C));
    if (first == in.tokens.end()) return 0.0;
    return static_cast<double>(
        in.grad_y[static_cast<size_t>(first - in.tokens.begin()) * C + i % C]);
  };
  const auto require_sharp = [&](const RowSums& sums, double (*roundings)(double), auto term) {
    testing::require_refusals(
        sums.value, [&](size_t i) { return sums.bound(i, C, roundings); }, C, term);
  };
  require_sharp(want.position, roundings_in_order,
                [&](size_t i) { return static_cast<double>(in.grad_y[i]); });
  for (const auto& version : kBackwardVersions) {
    CAPTURE(version.name);
    require_sharp(want.token, version.launch.roundings, term_of_token);
  }
}
