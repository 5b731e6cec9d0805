// The workspaces of own at shapes where steps 5 to 7 cut sums into slices, transform tiles or sort:
// a call uses no more than it has asked for, and asks for no more than it uses.
#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "common/testing.h"
#include "stage5_training/01_dense_backward/slices.h"
#include "stage6_cnn/01_conv2d/problem.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"
#include "stage8_framework/02_backends/judge_for_tests.h"

using namespace backends_test;

namespace {

std::vector<double> integers(std::int64_t count, std::uint32_t stream) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<double>(random_numbers::integer(11, stream, static_cast<std::uint64_t>(i))));
  return values;
}
Input random_of(const Shape& shape, std::uint32_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return backends_test::dense(shape, integers(count, stream));
}
// Ids below `rows`, the last of which is one of them.
Input ids_of(const Shape& shape, std::int64_t rows) {
  Input ids = random_of(shape, 5);
  ids.dtype = Dtype::i32;
  for (size_t i = 0; i < ids.storage.size(); ++i)
    ids.storage[i] = static_cast<double>(i * i % static_cast<size_t>(rows));
  ids.storage.back() = static_cast<double>(rows - 1);
  return ids;
}
TestCall call_named(const char* op, std::vector<Input> inputs,
                    std::vector<double> attributes = {}) {
  return {&framework::op_named(op), std::move(inputs), std::move(attributes)};
}

const Backend& own() {
  static const std::shared_ptr<Backend> plugin = Backend::load("own");
  return *plugin;
}

// The call is right in a workspace of the bytes that it asks for, which are `bytes`.
void check(const TestCall& call, size_t bytes) {
  static const std::shared_ptr<Backend> witness = Backend::load("reference");
  INFO(call.text());
  const Outcome outcome = own().run(call);
  REQUIRE(outcome.refusal == "");
  CHECK(outcome.failure == "");
  CHECK(outcome.workspace == bytes);
  CHECK(complaint(outcome.outputs, expected_of(call, *witness)) == "");
}
// The same, and the end of the workspace is used: `lacking` bytes fewer are too few.
void check_and_shorten(const TestCall& call, size_t bytes, size_t lacking = sizeof(float)) {
  check(call, bytes);
  INFO(call.text());
  CHECK(own().run(call, own(), 0, lacking).failure == "wrote outside its workspace");
}
// The call is the same, bit for bit, by the kernel of this name, whose workspace is for all of them
// and larger. walk_test.cpp holds it against the reference.
void check_as(const char* kernel, const TestCall& call, size_t bytes) {
  INFO(kernel << ": " << call.text());
  const std::vector<std::string> names = own().kernels(*call.op);
  const auto number = std::find(names.begin(), names.end(), kernel) - names.begin() + 1;
  const Outcome best = own().run(call);
  const Outcome named = own().run(call, own(), static_cast<std::int32_t>(number));
  REQUIRE(best.failure + named.failure + named.refusal == "");
  CHECK(best.workspace == bytes);
  CHECK(named.workspace >= bytes);
  CHECK(best.outputs[0].bytes == named.outputs[0].bytes);
}

constexpr size_t kLine = gpu::DeviceParts::kAlignment;
size_t next_line(size_t bytes) { return gpu::ceil_div(bytes, kLine) * kLine; }

}  // namespace

TEST_CASE("the gradients of a layer's parameters use slices, and nothing else") {
  constexpr std::int64_t kBatch = 1031, kIn = 7, kOut = 5;
  const size_t elements = dense_backward::elements_of_slices(kBatch, kIn, kOut);
  REQUIRE(elements > 0);
  check_and_shorten(
      call_named("linear_grad_w", {random_of({kBatch, kOut}, 1), random_of({kBatch, kIn}, 2)}),
      elements * sizeof(float));
  check(call_named("linear_grad_w", {random_of({64, kOut}, 1), random_of({64, kIn}, 2)}), 0);
  check(call_named("linear_grad_w", {random_of({64, kOut}, 1), random_of({64, 0}, 2)}), 0);
  check(call_named("linear_grad_w", {random_of({64, 0}, 1), random_of({64, kIn}, 2)}), 0);
}

TEST_CASE("the sums of a layer without inputs are its bias's alone") {
  const TestCall call =
      call_named("linear_grad_w", {random_of({4, 4099, 3}, 1), random_of({4, 4099, 0}, 2)});
  const size_t bytes = own().run(call).workspace;
  CHECK(bytes > 0);
  check_and_shorten(call, bytes);
}

TEST_CASE("a product that is a sum over samples uses slices") {
  constexpr std::int64_t kSamples = 5003, kM = 20, kN = 28;
  const auto product = [&](std::int64_t samples) {
    Input a = random_of({samples, kM}, 1);
    a.layout = a.layout.transpose(0, 1);
    return call_named("matmul", {a, random_of({samples, kN}, 2)});
  };
  const size_t elements = dense_backward::elements_of_slices(kSamples, kN, kM);
  REQUIRE(elements > 0);
  // Behind the weights of each slice there is room for the sums of a bias.
  check_and_shorten(product(kSamples), elements * sizeof(float), (kM + 1) * sizeof(float));
  check(product(64), 0);
}

TEST_CASE("the gradient of filters uses slices of the pixels") {
  const conv2d::Problem p{4, 3, 32, 30, 5, 3, 3, 1, 1, 1, 1};
  const size_t slices = conv2d_backward::count_slices(p);
  REQUIRE(slices > 1);
  const std::vector<double> attributes{1, 1, 1, 1, 3, 3};
  check_and_shorten(
      call_named("conv2d_grad_w", {random_of({4, 5, 32, 30}, 1), random_of({4, 3, 32, 30}, 2)},
                 attributes),
      slices * (size_of_w(p) + p.K) * sizeof(float));
}

TEST_CASE("a convolution and its gradient use tiles where they are transformed") {
  const conv2d::Problem large{2, 32, 128, 128, 32, 3, 3, 1, 1, 1, 1};
  REQUIRE(use_winograd(large));
  const size_t bytes = winograd_elements(large, output_of(large)) * sizeof(float);
  const Input x = random_of({2, 32, 128, 128}, 1), w = random_of({32, 32, 3, 3}, 2);
  check_as("winograd", call_named("conv2d", {x, w, absent()}, {1, 1, 1, 1}), bytes);
  check_as("winograd", call_named("conv2d_grad_x", {x, w}, {1, 1, 1, 1, 128, 128}), bytes);

  const Input small = random_of({2, 3, 9, 9}, 1), filters = random_of({4, 3, 3, 3}, 2);
  check(call_named("conv2d", {small, filters, absent()}, {1, 1, 1, 1}), 0);
  check(call_named("conv2d_grad_x", {random_of({2, 4, 9, 9}, 3), filters}, {1, 1, 1, 1, 9, 9}), 0);
}

TEST_CASE("the gradient of a table uses tables of few tokens, or sorts many") {
  const auto call = [](const Shape& shape, std::int64_t rows, std::int64_t columns) {
    Shape of_grad = shape;
    of_grad.insert(of_grad.rank(), columns);
    return call_named("embedding_backward", {random_of(of_grad, 1), ids_of(shape, rows)},
                      {static_cast<double>(rows)});
  };
  const TestCall in_tables = call({40, 30}, 5, 6);
  check_and_shorten(in_tables, own().run(in_tables).workspace);
  // Gradients of positions, sums of chunks, entries twice, the first and the last one of a token.
  constexpr size_t kIds = 1200, kRows = 500, kColumns = 6;
  const size_t parts[] = {30 * kColumns * sizeof(float), 2 * kIds / 16 * kColumns * sizeof(float),
                          kIds * 8, kIds * 8, kRows * sizeof(std::uint32_t)};
  size_t bytes = kRows * sizeof(std::uint32_t);
  for (const size_t part : parts) bytes += next_line(part);
  check_and_shorten(call({40, 30}, kRows, kColumns), bytes);
}

TEST_CASE("a table of many columns has its row of no positions in the workspace") {
  const Input ids = ids_of({6}, 5);
  check(call_named("embedding", {random_of({5, 1024}, 1), ids}), 0);
  check_and_shorten(call_named("embedding", {random_of({5, 1025}, 1), ids}), 1025 * sizeof(float));
}

TEST_CASE("layer norm's gradient leaves parts of its columns' sums") {
  for (const std::int64_t rows : {3, 5003})
    for (const std::int64_t cols : {6, 64}) {
      const TestCall call =
          call_named("layernorm_backward",
                     {random_of({rows, cols}, 1), random_of({rows, cols}, 2), random_of({cols}, 3),
                      random_of({rows}, 4), random_of({rows}, 5), random_of({rows, cols}, 6)});
      INFO(call.text());
      const Outcome outcome = own().run(call);
      CHECK(outcome.failure == "");
      CHECK(outcome.workspace > 0);
      for (const Output& output : outcome.outputs)  // nothing of the workspace's poison is in it
        for (const double value : output.values()) REQUIRE(std::isfinite(value));
      CHECK(outcome.workspace % (2 * static_cast<size_t>(cols) * sizeof(float)) == 0);
    }
}
