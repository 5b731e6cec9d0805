// Every version of the copy on awkward layouts, byte by byte; the conversions; and planted
// mistakes.
#include "stage8_framework/01_tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/half.h"
#include "common/sample.h"
#include "common/testing.h"
#include "stage8_framework/01_tensor/detail/collapse.h"
#include "stage8_framework/01_tensor/problem.h"
#include "stage8_framework/01_tensor/reference.h"
#include "stage8_framework/01_tensor/views_for_tests.h"

using framework::Dtype;
using framework::Layout;
using framework::Shape;
using tensor::Problem;
using tensor_test::Random;

// The kernels that only this test has: tensor_test.hip.
namespace tensor_test {
void launch_unbounded(void* out, const void* a, size_t bytes, const Problem& p, hipStream_t stream);
void launch_unstrided(void* out, const void* a, size_t bytes, const Problem& p, hipStream_t stream);
void launch_unsynchronized(void* out, const void* a, size_t bytes, const Problem& p,
                           hipStream_t stream);
}  // namespace tensor_test

namespace {

// Calls visit(out, a) with the places of every index of the problem, by recursion.
void for_each_index(const Problem& p, const std::function<void(std::int64_t, std::int64_t)>& visit,
                    unsigned axis = 0, std::int64_t out = 0, std::int64_t a = 0) {
  if (axis >= std::min(p.rank, unsigned{tensor::kMaxRank})) return visit(out, a);
  for (std::int64_t i = 0; i < p.extent[axis]; ++i)
    for_each_index(p, visit, axis + 1, out + i * p.out_stride[axis], a + i * p.a_stride[axis]);
}

// A copy of a view of an array into a view of another one, each between guards.
struct Views {
  Layout out, a;                  // of one shape
  std::int64_t out_size, a_size;  // elements of the arrays
};

// What is wrong after `launch`: empty, or a line. Every byte of out's array is looked at: those
// that are not copied must still be poison.
template <class Word, class Launch>
std::string wrong(Launch launch, const Views& views, size_t out_shift = 0, size_t a_shift = 0) {
  const auto size = [](std::int64_t elements) { return static_cast<size_t>(elements); };
  std::vector<Word> values(size(views.a_size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Word>(i * 0x9E3779B97F4A7C15u);
  Guarded<Word> a(values, a_shift), out(size(views.out_size), out_shift);
  std::vector<Word> want = out.to_host();
  const Problem p = tensor::problem_of(views.out, views.a);
  for_each_index(p, [&](std::int64_t to, std::int64_t from) {
    want[size(views.out.offset + to)] = values[size(views.a.offset + from)];
  });
  launch(out.data() + views.out.offset, a.data() + views.a.offset, sizeof(Word), p, nullptr);
  const std::vector<Word> got = out.to_host();
  if (!out.intact() || !a.intact()) return "a write beside the array";
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i])
      return "element " + std::to_string(i) + " of " + views.out.shape.text() + " strides " +
             views.out.strides.text() + " of " + views.a.strides.text();
  return "";
}

template <class Launch>
std::string wrong_in_any_size(Launch launch, const Views& views, size_t out_shift = 0,
                              size_t a_shift = 0) {
  std::string text = wrong<std::uint8_t>(launch, views, out_shift, a_shift);
  if (text.empty()) text = wrong<std::uint16_t>(launch, views, out_shift, a_shift);
  if (text.empty()) text = wrong<std::uint32_t>(launch, views, out_shift, a_shift);
  if (text.empty()) text = wrong<std::uint64_t>(launch, views, out_shift, a_shift);
  return text;
}

// `view` of a row-major array, copied into a row-major array.
Views into_rows(const Shape& array, const Layout& view) {
  return {Layout::contiguous(view.shape), view, view.elements(),
          Layout::contiguous(array).elements()};
}

Views permuted(const Shape& shape, const Shape& axes) {
  return into_rows(shape, Layout::contiguous(shape).permute(axes));
}

}  // namespace

namespace {

// Views of every kind.
std::vector<Views> all_kinds() {
  const Layout image = Layout::contiguous({3, 18, 5, 20});
  const Layout matrix = Layout::contiguous({37, 68});
  return {
      into_rows({}, Layout::contiguous({})),
      into_rows({1}, Layout::contiguous({1})),
      into_rows({1025}, Layout::contiguous({1025})),
      into_rows({0, 4}, Layout::contiguous({0, 4})),
      into_rows({3, 18, 5, 20}, image),
      into_rows({3, 18, 5, 20}, image.permute({0, 2, 3, 1})),
      into_rows({3, 18, 5, 20}, image.permute({3, 2, 1, 0})),
      into_rows({3, 18, 5, 20}, image.permute({2, 0, 1, 3})),
      into_rows({3, 18, 5, 20}, image.slice(3, 0, 20, 2)),
      into_rows({3, 18, 5, 20}, image.slice(3, 19, -1, -1).slice(1, 17, 2, -3)),
      into_rows({37, 68}, matrix.transpose(0, 1)),
      into_rows({37, 68}, matrix.slice(0, 3, 35).slice(1, 4, 68)),
      into_rows({37, 68}, matrix.slice(0, 1, 36, 7).transpose(0, 1).expand({2, 68, 5})),
      into_rows({64}, Layout::contiguous({64}).expand({17, 64})),
      into_rows({17}, Layout::contiguous({17, 1}).expand({17, 64})),
      into_rows({}, Layout::contiguous({}).expand({3, 33})),
      permuted({129, 65}, {1, 0}),
      permuted({16, 16}, {1, 0}),
      permuted({15, 200}, {1, 0}),
      permuted({2, 3, 4, 5, 2, 2, 3, 1}, {7, 2, 5, 0, 3, 1, 6, 4}),
      permuted({20, 3, 17, 19}, {2, 1, 3, 0}),
      // Into a view: every second row of a turned array, from its end.
      {Layout::contiguous({40, 31}).transpose(0, 1).slice(0, 30, -1, -2),
       Layout::contiguous({16, 40}), 40 * 31, 16 * 40},
      {Layout::contiguous({40, 31}).slice(1, 2, 30, 3), Layout::contiguous({40, 10}), 40 * 31, 400},
  };
}

// Launches of few elements, as long as it lives.
struct FewElements {
  explicit FewElements(std::int64_t most) { tensor::part_limit = most; }
  ~FewElements() { tensor::part_limit = usual; }
  std::int64_t usual = tensor::part_limit;
};

}  // namespace

TEST_CASE("every version copies contiguous, permuted, sliced and expanded views") {
  const std::vector<Views> cases = all_kinds();
  for (const auto& version : testing::chosen(tensor::kVersions))
    for (const Views& views : cases) {
      CAPTURE(version.name);
      REQUIRE(wrong_in_any_size(version.launch, views) == "");
    }
}

TEST_CASE("every version copies in parts what is more than one launch takes") {
  for (const auto& version : testing::chosen(tensor::kVersions))
    for (const std::int64_t most : {70, 1024}) {
      const FewElements few(most);
      for (const Views& views : all_kinds()) {
        CAPTURE(version.name, most);
        REQUIRE(wrong<std::uint32_t>(version.launch, views) == "");
      }
    }
}

TEST_CASE("every version copies at any alignment of both sides") {
  for (const auto& version : testing::chosen(tensor::kVersions))
    for (size_t out_shift = 0; out_shift < 17; out_shift += 3)
      for (const size_t a_shift : {0, 1, 2, 4, 8}) {
        CAPTURE(version.name, out_shift, a_shift);
        REQUIRE(wrong_in_any_size(version.launch, into_rows({6, 80}, Layout::contiguous({6, 80})),
                                  out_shift, a_shift) == "");
        REQUIRE(wrong_in_any_size(version.launch,
                                  into_rows({6, 80}, Layout::contiguous({6, 80}).slice(1, 0, 48)),
                                  out_shift, a_shift) == "");
      }
}

TEST_CASE("every version copies random views into random views") {
  for (const auto& version : testing::chosen(tensor::kVersions)) {
    Random random(11);
    for (int round = 0; round < 150; ++round) {
      const Shape array = random.shape(1 + random(6), 400);
      Layout a = Layout::contiguous(array);
      for (size_t step = random(4); step > 0; --step) a = tensor_test::random_view(a, random, 500);
      // out: its axes lie in another order, each with a step, one of them backwards.
      const Shape order = random.order(a.shape.rank());
      Shape doubled = a.shape, back = a.shape;
      for (size_t d = 0; d < order.rank(); ++d)
        doubled[d] = a.shape[static_cast<size_t>(order[d])] * (random(2) == 0 ? 1 : 2);
      Layout out = Layout::contiguous(doubled);
      const std::int64_t out_size = out.elements();
      for (size_t d = 0; d < order.rank(); ++d)
        back[static_cast<size_t>(order[d])] = static_cast<std::int64_t>(d);
      out = out.permute(back);
      for (size_t d = 0; d < order.rank(); ++d) {
        const std::int64_t extent = out.shape[d];
        if (extent == a.shape[d]) continue;
        const auto axis = static_cast<std::int64_t>(d);
        out = random(2) == 0 ? out.slice(axis, 0, extent, 2) : out.slice(axis, extent - 1, -1, -2);
      }
      CAPTURE(version.name, round);
      REQUIRE(wrong_in_any_size(version.launch,
                                {out, a, out_size, Layout::contiguous(array).elements()}) == "");
    }
  }
}

TEST_CASE("the versions work in a graph") {
  const Layout view = Layout::contiguous({33, 40}).transpose(0, 1);
  const Problem p = tensor::problem_of(Layout::contiguous(view.shape), view);
  const std::vector<float> values = testing::random_floats(33 * 40, 0);
  for (const auto& version : testing::chosen(tensor::kVersions)) {
    CAPTURE(version.name);
    Guarded<float> a(values, 0), out(values.size(), 0);
    testing::require_same_in_graph(
        [&] { gpu::poison(out.data(), out.size() * sizeof(float)); },
        [&](hipStream_t stream) { version.launch(out.data(), a.data(), sizeof(float), p, stream); },
        [&] { return out.to_host(); });
  }
}

// ---- What the host makes of a copy ------------------------------------------------------------

TEST_CASE("axes that lie alike are one") {
  const auto rank = [](const Layout& out, const Layout& a) {
    return tensor::collapse(tensor::problem_of(out, a)).rank;
  };
  const Layout image = Layout::contiguous({2, 3, 4, 5});
  const Layout last = Layout::contiguous({2, 4, 5, 3});
  REQUIRE(rank(image, image) == 1);
  REQUIRE(rank(last, image.permute({0, 2, 3, 1})) == 3);
  REQUIRE(rank(image.permute({3, 0, 2, 1}), image.permute({3, 0, 2, 1})) == 1);  // sorted first
  REQUIRE(rank(Layout::contiguous({7, 2, 3, 4, 5}), image.expand({7, 2, 3, 4, 5})) == 2);
  REQUIRE(rank(Layout::contiguous({2, 3, 4, 3}), image.slice(3, 0, 5, 2)) == 2);
  REQUIRE(rank(Layout::contiguous({1, 1}), Layout::contiguous({1, 1})) == 0);
  REQUIRE(rank(Layout::contiguous({3, 4}), Layout::contiguous({}).expand({3, 4})) == 1);
}

TEST_CASE("a copy of more elements than one launch counts is cut into pieces that cover it once") {
  for (const std::int64_t most : {1, 2, 5, 7, 12, 30, 1000}) {
    const Layout a = Layout::contiguous({3, 4, 5}).permute({1, 2, 0});
    const Problem p = tensor::problem_of(Layout::contiguous(a.shape), a);
    std::vector<std::int64_t> from(60, -1);
    tensor::for_each_part(
        p,
        [&](const Problem& piece, std::int64_t out_offset, std::int64_t a_offset) {
          REQUIRE(piece.elements() <= most);
          for_each_index(piece, [&](std::int64_t to, std::int64_t source) {
            REQUIRE(from[static_cast<size_t>(out_offset + to)] == -1);
            from[static_cast<size_t>(out_offset + to)] = a_offset + source;
          });
        },
        most);
    for_each_index(p, [&](std::int64_t to, std::int64_t source) {
      REQUIRE(from[static_cast<size_t>(to)] == source);
    });
  }
}

TEST_CASE("tiles turn a copy only where both sides run along axes of their own") {
  const auto turned = [](const Layout& a) {
    const Problem p = tensor::collapse(tensor::problem_of(Layout::contiguous(a.shape), a));
    return tensor::turned_axis(p) < p.rank;
  };
  const Layout image = Layout::contiguous({2, 16, 20, 30});
  REQUIRE(!turned(image));
  REQUIRE(turned(image.permute({0, 2, 3, 1})));
  REQUIRE(!turned(image.permute({2, 0, 1, 3})));                   // both run along the last one
  REQUIRE(!turned(Layout::contiguous({15, 99}).transpose(0, 1)));  // too few rows
  REQUIRE(!turned(Layout::contiguous({64, 1}).expand({64, 64})));
  REQUIRE(!turned(image.slice(3, 0, 30, 2)));
}

// ---- Conversions ------------------------------------------------------------------------------

namespace {

template <class To, class From>
std::vector<To> cast(const std::vector<From>& values, Dtype to, Dtype from) {
  const Layout row = Layout::contiguous({static_cast<std::int64_t>(values.size())});
  Guarded<From> a(values, 0);
  Guarded<To> out(values.size(), 0);
  tensor::launch_cast(out.data(), to, a.data(), from, tensor::problem_of(row, row));
  REQUIRE((out.intact() && a.intact()));
  return out.to_host();
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMost64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast64 = std::numeric_limits<std::int64_t>::min();

}  // namespace

TEST_CASE("numbers are rounded to the nearest, cut off towards integers, and kept in range") {
  using std::vector;
  const vector<double> doubles{0,    -0.5, 1.75,  -2.99, 254.5,     300,        -7,  3e9,
                               -3e9, 1e19, -1e19, 1e300, kInfinity, -kInfinity, kNan};
  REQUIRE(cast<std::int32_t>(doubles, Dtype::i32, Dtype::f64) ==
          vector<std::int32_t>{0, 0, 1, -2, 254, 300, -7, INT32_MAX, INT32_MIN, INT32_MAX,
                               INT32_MIN, INT32_MAX, INT32_MAX, INT32_MIN, 0});
  REQUIRE(cast<std::int64_t>(doubles, Dtype::i64, Dtype::f64) ==
          vector<std::int64_t>{0, 0, 1, -2, 254, 300, -7, 3000000000, -3000000000, kMost64,
                               kLeast64, kMost64, kMost64, kLeast64, 0});
  REQUIRE(cast<std::uint8_t>(doubles, Dtype::u8, Dtype::f64) ==
          vector<std::uint8_t>{0, 0, 1, 0, 254, 255, 0, 255, 0, 255, 0, 255, 255, 0, 0});
  REQUIRE(cast<std::uint8_t>(doubles, Dtype::boolean, Dtype::f64) ==
          vector<std::uint8_t>{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const vector<std::int64_t> integers{0, -1, 255, 256, 16777217, 5000000000, kMost64, kLeast64};
  REQUIRE(cast<float>(integers, Dtype::f32, Dtype::i64) ==
          vector<float>{0, -1, 255, 256, 16777216, 5e9f, 9223372036854775808.0f,
                        -9223372036854775808.0f});
  REQUIRE(cast<std::int32_t>(integers, Dtype::i32, Dtype::i64) ==
          vector<std::int32_t>{0, -1, 255, 256, 16777217, INT32_MAX, INT32_MAX, INT32_MIN});
  REQUIRE(cast<std::uint8_t>(integers, Dtype::u8, Dtype::i64) ==
          vector<std::uint8_t>{0, 0, 255, 255, 255, 255, 255, 0});
  REQUIRE(cast<std::int64_t>(vector<float>{3e9f, -1.5f, 1e30f, -1e30f}, Dtype::i64, Dtype::f32) ==
          vector<std::int64_t>{3000000000, -1, kMost64, kLeast64});
  REQUIRE(cast<double>(vector<std::uint8_t>{0, 1, 7, 255}, Dtype::f64, Dtype::boolean) ==
          vector<double>{0, 1, 1, 1});
  REQUIRE(cast<double>(vector<std::uint8_t>{0, 1, 7, 255}, Dtype::f64, Dtype::u8) ==
          vector<double>{0, 1, 7, 255});
}

TEST_CASE("every pair of types: a number that both hold comes back as it was") {
  const std::vector<double> values{0, 1, 2, 3, 7, 100, 255};
  const Layout row = Layout::contiguous({static_cast<std::int64_t>(values.size())});
  const Problem p = tensor::problem_of(row, row);
  for (const Dtype from : framework::kDtypes)
    for (const Dtype to : framework::kDtypes) {
      CAPTURE(framework::name_of(from), framework::name_of(to));
      Guarded<double> source(values, 0), out(values.size(), 0);
      Guarded<std::uint64_t> a(values.size(), 0), b(values.size(), 0);
      tensor::launch_cast(a.data(), from, source.data(), Dtype::f64, p);
      tensor::launch_cast(b.data(), to, a.data(), from, p);
      tensor::launch_cast(out.data(), Dtype::f64, b.data(), to, p);
      std::vector<double> want = values;
      if (from == Dtype::boolean || to == Dtype::boolean)
        for (double& value : want) value = value != 0;
      REQUIRE(out.to_host() == want);
      REQUIRE((a.intact() && b.intact()));
    }
}

TEST_CASE("a conversion takes more elements than a block has threads") {
  std::vector<std::int32_t> values(3001);
  std::iota(values.begin(), values.end(), -1500);
  REQUIRE(cast<double>(values, Dtype::f64, Dtype::i32) ==
          std::vector<double>(values.begin(), values.end()));
}

TEST_CASE("16-bit types round as gpu::from_float does, and a conversion takes views") {
  const std::vector<float> values = testing::random_floats(24, 3, 70000);
  const Layout view = Layout::contiguous({4, 6}).transpose(0, 1).slice(0, 5, -1, -2);
  for (const std::int64_t most : {1000, 5}) {  // in one launch, and in parts
    const FewElements few(most);
    Guarded<float> a(values, 0);
    Guarded<gpu::half> out(12, 0);
    tensor::launch_cast(out.data(), Dtype::f16, a.data() + view.offset, Dtype::f32,
                        tensor::problem_of(Layout::contiguous(view.shape), view));
    const std::vector<gpu::half> got = out.to_host();
    for (size_t i = 0; i < 12; ++i) {
      const float value = values[i % 4 * 6 + 5 - 2 * (i / 4)];
      REQUIRE(testing::same_bits(got[i], gpu::from_float<gpu::half>(value)));
    }
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("the check refuses a lost, a doubled and a misplaced element at every printed shape",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(tensor::sizes(), quick, gpu::kBackend);
    for (const tensor::Case& c : tensor::printed(size)) {
      if (c.view == tensor::Arrangement::per_plane)
        continue;  // neighbours are equal: no mistake to swap
      CAPTURE(tensor::name(c));
      const size_t elements = static_cast<size_t>(view_of_a(c).elements());
      const Sample sample = choose_sample(elements, 7);
      std::vector<double> want(sample.size);
      for (size_t i = 0; i < want.size(); ++i)
        want[i] = random_numbers::uniform(7, 0, source_of(c, sample.position(i)));
      testing::require_refusals(want, 0, 64, [&](size_t i) { return want[i]; });
    }
  }
}

TEST_CASE("the reference and the views agree on every printed case", "[harness]") {
  for (const tensor::Case& c : tensor::printed({2, 3, 5, 7})) {
    CAPTURE(tensor::name(c));
    const Layout view = view_of_a(c);
    size_t i = 0;
    for_each_index(tensor::problem_of(Layout::contiguous(view.shape), view),
                   [&](std::int64_t, std::int64_t from) {
                     REQUIRE(source_of(c, i++) == static_cast<size_t>(view.offset + from));
                   });
  }
}

TEST_CASE("a missing bounds check, a forgotten stride and a missing barrier are caught",
          "[harness]") {
  const Views turned = permuted({33, 31}, {1, 0});
  REQUIRE(wrong<std::uint32_t>(tensor_test::launch_unbounded, turned) != "");
  REQUIRE(wrong<std::uint32_t>(tensor_test::launch_unstrided, turned) != "");
  // On a GPU the waves of a block may happen to come in the right order.
  if (std::string(gpu::kBackend) == "cpu")
    REQUIRE(wrong<std::uint32_t>(tensor_test::launch_unsynchronized, permuted({32, 32}, {1, 0})) !=
            "");
}
