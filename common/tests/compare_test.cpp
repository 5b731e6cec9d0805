// compare() is what every verdict of the course rests on: what it must let pass and what not.
#include <cstdint>
#include <limits>
#include <vector>

#include "common/compare.h"
#include "common/testing.h"

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
T poisoned() {
  T value;
  std::memset(&value, 0xFF, sizeof(T));
  return value;
}

template <class T>
Comparison compare_lists(const std::vector<T>& got, const std::vector<double>& want,
                         const std::vector<double>& bound) {
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return bound[i]; });
}

template <class T>
Comparison compare_one(T got, double want, double bound) {
  return compare_lists<T>({got}, {want}, {bound});
}

}  // namespace

TEST_CASE("compare: nothing to compare is right") {
  const Comparison result = compare_lists<float>({}, {}, {});
  CHECK(result.ok);
  CHECK(result.compared == 0);
  CHECK(result.exact());
}

TEST_CASE("compare: the bound belongs to what is right") {
  CHECK(compare_one(1.5, 1.0, 0.5).ok);
  CHECK_FALSE(compare_one(1.5 + 1e-15, 1.0, 0.5).ok);
  CHECK_FALSE(compare_one(0.5 - 1e-15, 1.0, 0.5).ok);
}

TEST_CASE("compare: a bound of 0 wants equality") {
  CHECK(compare_one(1.0f, 1.0, 0).ok);
  CHECK(compare_one(1.0f, 1.0, 0).exact());
  CHECK(compare_one(-0.0f, 0.0, 0).ok);
  CHECK_FALSE(compare_one(std::numeric_limits<float>::denorm_min(), 0.0, 0).ok);
}

TEST_CASE("compare: NaN is right only where NaN is wanted") {
  const Comparison result = compare_lists<float>({1, NAN, 3}, {1, 2, 3}, {9, 9, 9});
  CHECK_FALSE(result.ok);
  CHECK(result.failed == 1);
  CHECK(result.index == 1);
  CHECK(std::isnan(result.max_error));
  CHECK(std::isnan(result.got));

  CHECK(compare_one(NAN, kNaN, 0).ok);
  CHECK_FALSE(compare_one(1.0f, kNaN, kInfinity).ok);
  CHECK_FALSE(compare_one(NAN, 1.0, kInfinity).ok);
  CHECK_FALSE(compare_one(1.0f, 2.0, kNaN).ok);
}

TEST_CASE("compare: infinity is right only where the same infinity is wanted") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(compare_one(infinity, kInfinity, 0).ok);
  CHECK(compare_one(-infinity, -kInfinity, 0).ok);
  // A relative bound on an infinite reference is infinite itself and must not let all pass.
  for (const double bound : {0.0, 1.0, kInfinity}) {
    CHECK_FALSE(compare_one(-infinity, kInfinity, bound).ok);
    CHECK_FALSE(compare_one(1.0f, kInfinity, bound).ok);
    CHECK_FALSE(compare_one(infinity, 1.0, bound).ok);
    CHECK_FALSE(compare_one(NAN, kInfinity, bound).ok);
  }
}

TEST_CASE("compare: what nobody wrote is counted and never right") {
  const Comparison result =
      compare_lists<float>({1, poisoned<float>(), poisoned<float>()}, {1, 2, kNaN}, {9, 9, 9});
  CHECK_FALSE(result.ok);
  CHECK(result.unwritten == 2);
  CHECK(result.failed == 2);  // also where NaN is wanted: the poison is no result
  CHECK(compare_one(poisoned<double>(), 0.0, 1.0).unwritten == 1);
  CHECK(compare_one(poisoned<int>(), 7.0, 100.0).unwritten == 1);
  // -1 has the poison's bytes, and may be the result.
  CHECK(compare_one(-1, -1.0, 0).ok);
  CHECK(compare_one(-1, -1.0, 0).unwritten == 0);
  // Another NaN is wrong, but it was written.
  CHECK(compare_one(std::numeric_limits<float>::quiet_NaN(), 0.0, 1.0).unwritten == 0);
}

TEST_CASE("compare: the element nearest to its own bound is shown") {
  SECTION("not the one with the largest error") {
    const Comparison result = compare_lists<double>({11, 2.5, 3}, {10, 2, 3}, {100, 1, 1});
    CHECK(result.ok);
    CHECK(result.index == 1);
    CHECK(result.of_bound == 0.5);
    CHECK(result.max_error == 1);  // that of element 0
    CHECK(result.bound == 1);
    CHECK(result.got == 2.5);
    CHECK(result.want == 2);
    CHECK(result.compared == 3);
  }
  SECTION("a failure before everything that is right") {
    const Comparison result = compare_lists<double>({1.9, 7, 3.9}, {1, 2, 3}, {1, 4, 1});
    CHECK_FALSE(result.ok);
    CHECK(result.failed == 1);
    CHECK(result.index == 1);
    CHECK(result.max_error == 5);
    CHECK(result.of_bound == 1.25);
  }
  SECTION("the first of equals") {
    CHECK(compare_lists<double>({1, 3, 4}, {1, 2, 3}, {1, 2, 2}).index == 1);
    CHECK(compare_lists<float>({0, NAN, NAN}, {0, 0, 0}, {1, 1, 1}).index == 1);
  }
}

TEST_CASE("compare: a NaN is the largest error, whatever comes after it") {
  const Comparison result = compare_lists<float>({NAN, 100, 1}, {0, 0, 0}, {1, 1, 0});
  CHECK(std::isnan(result.max_error));
  CHECK(result.of_bound == kInfinity);
  CHECK(result.index == 0);
  CHECK(compare_one(2.0f, 1.0, 0).of_bound == kInfinity);
  CHECK(compare_one(1.0f, 1.0, 0).of_bound == 0);
}

TEST_CASE("together: the worst element of all, and every count") {
  const Comparison far = compare_lists<double>({1.9, 2}, {1, 2}, {1, 1});
  const Comparison large = compare_lists<double>({5, 2, 3}, {1, 2, 3}, {100, 1, 1});
  for (const Comparison& both : {together({far, large}), together({large, far})}) {
    CHECK(both.ok);
    CHECK(both.compared == 5);
    CHECK(both.of_bound == far.of_bound);
    CHECK(both.got == 1.9);
    CHECK(both.bound == 1);
    CHECK(both.max_error == 4);
  }
  SECTION("a failure before everything that is right") {
    const Comparison wrong = compare_lists<float>({0, poisoned<float>()}, {0, 0}, {1, 1});
    for (const Comparison& all : {together({far, wrong, large}), together({wrong, far})}) {
      CHECK_FALSE(all.ok);
      CHECK(all.failed == 1);
      CHECK(all.unwritten == 1);
      CHECK(all.index == 1);
      CHECK(all.first == 1);
      CHECK(std::isnan(all.got));
      CHECK(std::isnan(all.max_error));
    }
  }
  SECTION("a part may be refused for what no element shows") {
    Comparison refused = compare_lists<double>({7}, {7}, {1});
    refused.ok = false;
    const Comparison both = together({far, refused});
    CHECK_FALSE(both.ok);
    CHECK(both.want == 7);
  }
  CHECK(together({}).ok);
}

TEST_CASE("compare: integers beyond a float's digits are told apart") {
  CHECK_FALSE(compare_one(std::int32_t{16777217}, 16777216.0, 0).ok);
}

TEST_CASE("is_poison: every byte counts") {
  CHECK(is_poison(poisoned<float>()));
  CHECK(is_poison(std::uint32_t{0xFFFFFFFF}));
  CHECK_FALSE(is_poison(std::uint32_t{0xFFFFFFFE}));
  CHECK_FALSE(is_poison(std::uint32_t{0x7FFFFFFF}));
  CHECK_FALSE(is_poison(1.0f));
}
