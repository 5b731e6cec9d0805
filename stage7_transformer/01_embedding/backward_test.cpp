// The backward pass of every version: each gradient arrives at its token and its position, in texts
// of one token and of many.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/device_buffer.h"
#include "stage7_transformer/01_embedding/detail/plan.h"
#include "stage7_transformer/01_embedding/inputs_for_tests.h"

using namespace embedding_test;

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
