// The tests' own helpers: require_refusals must see a check that can't fail.
#include "common/testing.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/rounding.h"
#include "common/tests/environment.h"

namespace {

// Ten rows of seven sums of 100 products each.
struct Sums {
  static constexpr size_t kRows = 10, kCols = 7, kTerms = 100;
  std::vector<double> want, bounds, terms;

  Sums() {
    const std::vector<float> x = testing::random_floats(kRows * kCols * kTerms, 0);
    for (size_t i = 0; i < kRows * kCols; ++i) {
      rounding::Sum sum;
      for (size_t k = 0; k < kTerms; ++k) sum.add(static_cast<double>(x[i * kTerms + k]));
      want.push_back(sum.value), bounds.push_back(sum.mean_zero_bound(kTerms));
      terms.push_back(testing::median_term(
          kTerms, [&](size_t k) { return static_cast<double>(x[i * kTerms + k]); }));
    }
  }
  std::vector<std::string> accepted(double looser) const {
    return testing::accepted_mistakes(
        want, [&](size_t i) { return looser * bounds[i]; }, kCols,
        [&](size_t i) { return terms[i]; });
  }
};

bool one_says(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts)
    if (text.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("testing: a sharp check refuses every mistake") {
  const Sums sums;
  CHECK(sums.accepted(1).empty());
  testing::require_refusals(
      sums.want, [&](size_t i) { return sums.bounds[i]; }, Sums::kCols,
      [&](size_t i) { return sums.terms[i]; });
}

TEST_CASE("testing: a check that is too loose is found out, mistake by mistake") {
  const Sums sums;
  // One element in 70 whose typical term is within its bound.
  Sums one = sums;
  one.bounds[33] = 1;
  const std::vector<std::string> texts = one.accepted(1);
  REQUIRE(texts.size() == 2);
  CHECK(contains_text(texts[0], "a dropped term in 1 of 70 elements, such as [33]"));
  CHECK(contains_text(texts[1], "a doubled term in 1 of 70 elements, such as [33]"));

  const std::vector<std::string> all = sums.accepted(1e9);
  CHECK(one_says(all, "a dropped term in 70 of 70"));
  CHECK(one_says(all, "a doubled term in 70 of 70"));
  CHECK(one_says(all, "swapped rows 0 and 1"));
  CHECK(one_says(all, "swapped rows 8 and 9"));
  CHECK(one_says(all, "swapped elements 0 and 1"));
  CHECK(one_says(all, "all zeros"));
}

TEST_CASE("testing: a check that refuses what is right is found out") {
  const Sums sums;
  CHECK(one_says(sums.accepted(1e-9), "it refuses the reference"));
}

TEST_CASE("testing: equal rows, and sums without terms, can't be told apart") {
  const auto accepted = testing::accepted_mistakes(
      {1, 2, 1, 2}, [](size_t) { return 0.0; }, 2, [](size_t) { return 0.0; });
  CHECK(one_says(accepted, "swapped rows 0 and 1"));
  CHECK(one_says(accepted, "no element has one"));
  CHECK_FALSE(one_says(accepted, "swapped elements"));
}

TEST_CASE("testing: exact checks, one element, other types") {
  testing::require_refusals({3, -4, 5, 6}, 0, 2, [](size_t) { return 1.0; });
  testing::require_refusals({12}, 0, 1, [](size_t) { return 3.0; });
  testing::require_refusals<double>({0.1, 0.3}, 0.001, 2, [](size_t) { return 0.01; });
  // An element whose typical term is 0 is left alone; the others are not.
  testing::require_refusals({3, 4}, 0, 2, [](size_t i) { return i == 0 ? 0.0 : 1.0; });
}

TEST_CASE("testing: the median keeps its sign") {
  const std::vector<double> values = {5, -0.1, -2, 0.3, 7};
  CHECK(testing::median_term(5, [&](size_t k) { return values[k]; }) == -2);
  CHECK(testing::median_term(0, [&](size_t) { return 1.0; }) == 0);
}

TEST_CASE("testing: inputs") {
  CHECK(testing::random_floats(5, 3)[4] == random_numbers::uniform(7, 3, 4));
  CHECK(testing::random_floats(5, 3, 2, 1)[4] == 2 * random_numbers::uniform(7, 3, 4) + 1);
  bool seen[7] = {};
  for (const float value : testing::random_integers(1000, 0)) {
    REQUIRE(value == std::rint(value));
    REQUIRE(std::fabs(value) <= 3);
    seen[static_cast<int>(value) + 3] = true;
  }
  for (const bool number : seen) CHECK(number);
}

TEST_CASE("testing: same bits") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(testing::same_bits(nan, nan));
  CHECK_FALSE(testing::same_bits(0.0f, -0.0f));
  using Floats = std::vector<float>;
  CHECK(testing::same_bits(Floats{}, Floats{}));
  CHECK(testing::same_bits(Floats{1, nan}, Floats{1, nan}));
  CHECK_FALSE(testing::same_bits(Floats{1}, Floats{1, 2}));
  CHECK_FALSE(testing::same_bits(Floats{0}, Floats{-0.0f}));
  // Several arrays, each by its elements.
  using Arrays = std::vector<Floats>;
  CHECK(testing::same_bits(Arrays{{1}, {}}, Arrays{{1}, {}}));
  CHECK_FALSE(testing::same_bits(Arrays{{1}, {2}}, Arrays{{1}, {3}}));
}

namespace {

struct Named {
  const char* name;
};
constexpr Named kNamed[] = {{"naive"}, {"tiled"}, {"tile"}};

template <class Versions>
std::string names_of(const Versions& versions) {
  std::string names;
  for (const Named& version : versions) names += std::string(version.name) + " ";
  return names;
}

}  // namespace

TEST_CASE("testing: COURSE_VERSIONS chooses versions, in the list's order, by their whole names") {
  KeptVariable variable("COURSE_VERSIONS");
  const auto own = [] { return std::vector<Named>{{"best"}, {"tiled"}}; };
  REQUIRE(names_of(testing::chosen(kNamed)) == "naive tiled tile ");
  variable.set("");
  REQUIRE(names_of(testing::chosen(kNamed)) == "naive tiled tile ");
  variable.set("tile,naive");
  REQUIRE(names_of(testing::chosen(kNamed)) == "naive tile ");
  REQUIRE(names_of(testing::chosen(own())).empty());
  variable.set("best");
  REQUIRE(names_of(testing::chosen(own())) == "best ");
  for (const Named& version : testing::chosen(kNamed)) FAIL(version.name);
}
