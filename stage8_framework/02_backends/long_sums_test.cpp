// Sums that are longer than those of walk_test.cpp: what own cuts into parts.
#include "common/random.h"
#include "common/testing.h"
#include "stage8_framework/02_backends/judge_for_tests.h"

using namespace backends_test;

namespace {

std::vector<double> numbers(std::int64_t count, std::uint32_t stream,
                            decltype(random_numbers::uniform)* draw = random_numbers::uniform) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(draw(7, stream, static_cast<std::uint64_t>(i))));
  return values;
}

// Holds own against the reference in double; another result of the same size is refused.
void check(const TestCall& call) {
  const auto own = Backend::load("own"), witness = Backend::load("reference");
  INFO(call.text());
  const std::vector<Expected> want = expected_of(call, *witness);
  Outcome outcome = own->run(call);
  REQUIRE(outcome.refusal == "");
  CHECK(outcome.failure == "");
  CHECK(complaint(outcome.outputs, want) == "");
  const Outcome again = own->run(call);
  CHECK(again.outputs[0].bytes == outcome.outputs[0].bytes);
  TestCall other = call;
  other.inputs[0].storage[other.inputs[0].storage.size() / 2] += 1;  // one term
  CHECK(complaint(own->run(other).outputs, want) != "");
}

}  // namespace

TEST_CASE("sums and maxima of long columns and rows") {
  struct Size {
    std::int64_t rows, cols;
    double axes;  // 1: over the rows, 2: over the columns
  };
  for (const auto& [rows, cols, axes] :
       {Size{8195, 17, 1}, Size{4096, 8, 1}, Size{8191, 9, 1}, Size{20001, 3, 1},
        Size{129, 1025, 1}, Size{67, 4099, 1}, Size{5, 4099, 2}, Size{3, 9001, 2}}) {
    // Integers, whose sums are exact.
    const Input x = dense({rows, cols}, numbers(rows * cols, 0, random_numbers::integer));
    check({&framework::op_named("sum"), {x}, {axes, 0}});
  }
  Input x = dense({5003, 11}, numbers(5003 * 11, 1));
  x.storage[x.storage.size() / 2] = 2;  // the term that check() changes is the largest
  check({&framework::op_named("max"), {x}, {1, 0}});
}

TEST_CASE("sums and maxima over images and pixels") {
  struct Size {
    Shape shape;
    double axes;  // bit d is axis d
  };
  for (const auto& [shape, axes] :
       {Size{{5, 3, 8, 8}, 13}, Size{{3, 7, 9, 11}, 13}, Size{{1, 4, 10, 10}, 13},
        Size{{2, 3, 5, 70}, 9}, Size{{2, 3, 5, 67}, 11}, Size{{20, 9, 65}, 5}, Size{{5, 3, 63}, 5},
        Size{{2, 3, 4, 70}, 10}, Size{{3, 1, 5, 1, 71}, 17}}) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    const Input x = dense(shape, numbers(count, 0, random_numbers::integer));
    check({&framework::op_named("sum"), {x}, {axes, 0}});
    check({&framework::op_named("mean"), {x}, {axes, 1}});
    Input largest = dense(shape, numbers(count, 1));
    largest.storage[largest.storage.size() / 2] = 2;  // the term that check() changes
    check({&framework::op_named("max"), {largest}, {axes, 0}});
  }
}

TEST_CASE("a small product of long columns, as the gradient of a layer's weights") {
  for (const std::int64_t K : {511, 512, 1543, 4096})
    for (const bool has_lone_column : {false, true}) {
      const std::int64_t M = has_lone_column ? 1 : 5, N = 7;
      Input a = dense({K, M}, numbers(K * M, 2));
      a.layout = a.layout.transpose(0, 1);
      check({&framework::op_named("matmul"), {a, dense({K, N}, numbers(K * N, 3))}, {}});
    }
}

TEST_CASE("the gradient of a table, whatever the shape of its ids") {
  constexpr std::int64_t kIds = 1200, kRows = 5, kColumns = 6;
  std::vector<double> ids;
  for (std::int64_t i = 0; i < kIds; ++i) ids.push_back(static_cast<double>(i * i % kRows));
  for (const Shape& shape : {Shape{kIds}, Shape{40, 30}, Shape{3, 400}, Shape{kIds, 1}}) {
    Shape rows = shape;
    rows.insert(rows.rank(), kColumns);
    check({&framework::op_named("embedding_backward"),
           {dense(rows, numbers(kIds * kColumns, 4)), dense(shape, ids, Dtype::i32)},
           {static_cast<double>(kRows)}});
  }
}
