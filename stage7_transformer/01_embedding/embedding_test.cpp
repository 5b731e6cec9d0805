// Every version of the embedding: awkward shapes and alignments, both passes together, tokens that
// are none.
#include "stage7_transformer/01_embedding/embedding.h"

#include <algorithm>
#include <climits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/npy.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage7_transformer/01_embedding/inputs_for_tests.h"

using namespace embedding_test;

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

// ---- Both passes ------------------------------------------------------------------------------

TEST_CASE("a small grid goes round") {
  const Inputs in({3, 21, 36, 65, 23});
  for (const size_t blocks : {1, 2}) {
    const vector_add::FewBlocks few(blocks);
    const auto keep_on = [&](const char* name, const Comparison& result) {
      CAPTURE(name, blocks);
      CHECK(result.ok);
    };
    for (const auto& version : testing::chosen(versions()))
      keep_on(version.name, check(version.launch, in));
    for (const auto& version : testing::chosen(backward_versions()))
      keep_on(version.name, check(version.launch, in));
  }
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
