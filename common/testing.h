// What every test includes: Catch2, version 2 or 3, REQUIRE_OK for comparisons, inputs, bits,
// graphs, and require_refusals for checks that must be able to fail. No kernels: plain C++.
//
// Tags of test cases:
//   [numpy]    reads NumPy's references; CTest leaves it out where no NumPy could make them
//   [long]     takes long where kernels are compiled without optimization
//   [harness]  tests the checks, files or programs, and not what the versions compute
// `course check` runs those without any of them against a learner's files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/compare.h"
#include "common/graph.h"
#include "common/random.h"

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#else
#include <catch2/catch.hpp>
#endif

// The element that a comparison reports, in words.
inline std::string describe(const Comparison& comparison) {
  std::ostringstream text;
  text.precision(9);
  text << comparison.failed << " of " << comparison.compared << " elements out of bound, "
       << comparison.unwritten << " never written; at [" << comparison.index << "] got "
       << comparison.got << ", want " << comparison.want << ", bound " << comparison.bound;
  return text.str();
}

// For CHECK(contains_text(text, part)): where part is not in text, the failure shows text.
inline bool contains_text(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) UNSCOPED_INFO("no \"" << part << "\" in: " << text);
  return found;
}

// REQUIRE_OK(compare(...)) fails the test case, with the worst element, unless all is within bound.
#define REQUIRE_OK(...)                                              \
  do {                                                               \
    const Comparison required_comparison = __VA_ARGS__;              \
    const std::string worst_element = describe(required_comparison); \
    CAPTURE(worst_element);                                          \
    REQUIRE(required_comparison.ok);                                 \
  } while (false)

namespace testing {

// ---- Versions ---------------------------------------------------------------------------------

// Of a list of versions those that the environment variable COURSE_VERSIONS names, such as
// "naive,tiled", or all where it is not set. Refers to the elements of a list that outlives it, and
// keeps a list that is passed by value.
template <class Versions>
class Chosen {
 public:
  explicit Chosen(Versions&& versions) : versions_(std::forward<Versions>(versions)) {
    const char* const names = std::getenv("COURSE_VERSIONS");
    const std::string wanted = names == nullptr ? "" : "," + std::string(names) + ",";
    for (const auto& version : versions_)
      if (wanted.size() <= 2 || wanted.find("," + std::string(version.name) + ",") != wanted.npos)
        chosen_.push_back(&version);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

  class Iterator {
   public:
    using Pointer =
        decltype(&*std::begin(std::declval<const std::remove_reference_t<Versions>&>()));
    explicit Iterator(const Pointer* at) : at_(at) {}
    decltype(auto) operator*() const { return **at_; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const Pointer* at_;
  };
  Iterator begin() const { return Iterator(chosen_.data()); }
  Iterator end() const { return Iterator(chosen_.data() + chosen_.size()); }

 private:
  Versions versions_;  // a reference, or a list of its own
  std::vector<typename Iterator::Pointer> chosen_;
};

template <class Versions>
Chosen<Versions> chosen(Versions&& versions) {
  return Chosen<Versions>(std::forward<Versions>(versions));
}

// ---- Inputs -----------------------------------------------------------------------------------

// What the E says that f() must throw.
template <class E, class F>
std::string what_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

// n numbers of sequence `stream`, uniform in [-1, 1), or in [shift - scale, shift + scale).
inline std::vector<float> random_floats(size_t n, std::uint32_t stream, float scale,
                                        float shift = 0) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = scale * random_numbers::uniform(7, stream, i) + shift;
  return values;
}
inline std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  return random_floats(n, stream, 1);
}

// n integers in [-3, 3], or in [-most, most]. The sums of their products are exact in float in
// every order, as long as they stay below 2^24.
inline std::vector<float> random_integers(size_t n, std::uint32_t stream, float most) {
  std::vector<float> values = random_floats(n, stream);
  for (float& value : values) value = std::rint(most * value);
  return values;
}
inline std::vector<float> random_integers(size_t n, std::uint32_t stream) {
  return random_integers(n, stream, 3);
}

// ---- Bits -------------------------------------------------------------------------------------

// Whether two values, or all elements of two arrays (of arrays), hold the same bits: a NaN is equal
// to itself here, and 0 is not -0.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same_bits(x, y); });
}

// ---- Graphs -----------------------------------------------------------------------------------

// Captures what launch(stream) queues into a graph, launches the graph `times` times, and waits.
// Fails where nothing was captured.
template <class Launch>
void run_captured(Launch&& launch, int times = 1) {
  const gpu::Stream stream;
  const gpu::Graph graph(stream, [&] { launch(stream); });
  REQUIRE(graph.nodes() > 0);
  for (int t = 0; t < times; ++t) graph.launch(stream);
  stream.wait();
}

// Requires the same bits from launch(nullptr) and from a graph of launch(stream).
//   reset()     before each of them: poisons the outputs, or puts back what is overwritten
//   read()      the result, a vector
//   repeatable  false where the work adds to what is there: the graph is launched once, not twice
template <class Reset, class Launch, class Read>
void require_same_in_graph(Reset&& reset, Launch&& launch, Read&& read, bool repeatable = true) {
  reset();
  launch(nullptr);
  HIP_CHECK(hipDeviceSynchronize());
  const auto want = read();
  reset();
  run_captured(launch, repeatable ? 2 : 1);
  const auto got = read();
  REQUIRE(same_bits(got, want));
}

// ---- Checks that can fail ---------------------------------------------------------------------

// What a check lets pass and must not; empty where it is sharp enough. See require_refusals.
template <class T = float, class Bound, class Term>
std::vector<std::string> accepted_mistakes(const std::vector<double>& want, Bound&& bound,
                                           size_t row_length, Term&& term) {
  const size_t n = want.size();
  std::vector<std::string> accepted;
  const auto check = [&](const std::vector<double>& values) {
    return compare(
        n, [&](size_t i) { return static_cast<T>(static_cast<float>(values[i])); },
        [&](size_t i) { return want[i]; }, [&](size_t i) { return bound(i); });
  };
  const Comparison right = check(want);
  if (!right.ok) accepted.push_back("nothing: it refuses the reference; " + describe(right));

  // Each element's mistake has to be refused by itself, so all are made at once and counted.
  for (const double times : {-1.0, 1.0}) {
    const std::string mistake = times < 0 ? "a dropped term" : "a doubled term";
    std::vector<double> wrong = want;
    size_t changed = 0, least = n;  // the element whose mistake is the smallest share of its bound
    double least_share = 0;
    for (size_t i = 0; i < n; ++i) {
      const double t = term(i);
      if (t == 0) continue;
      wrong[i] += times * t, ++changed;
      const double share = std::fabs(t) / bound(i);
      if (least == n || share < least_share) least = i, least_share = share;
    }
    const size_t refused = check(wrong).failed;
    if (changed == 0) accepted.push_back(mistake + ": no element has one");
    if (refused >= changed) continue;
    std::ostringstream text;
    text << mistake << " in " << changed - refused << " of " << changed << " elements, such as ["
         << least << "]: want " << want[least] << ", the term is " << term(least) << ", the bound "
         << bound(least);
    accepted.push_back(text.str());
  }

  // The first two and the last two rows, or elements, change places.
  const auto check_swap = [&](size_t length, const std::string& name) {
    const size_t count = length == 0 ? 0 : n / length;
    if (count < 2) return;
    for (const size_t at : {size_t{0}, count - 2}) {
      std::vector<double> wrong = want;
      const auto begin = wrong.begin() + static_cast<std::ptrdiff_t>(at * length);
      const auto end = begin + static_cast<std::ptrdiff_t>(length);
      std::swap_ranges(begin, end, end);
      if (check(wrong).ok)
        accepted.push_back("swapped " + name + " " + std::to_string(at) + " and " +
                           std::to_string(at + 1));
    }
  };
  check_swap(row_length, "rows");
  if (row_length > 1) check_swap(1, "elements");

  if (check(std::vector<double>(n)).ok) accepted.push_back("all zeros");
  return accepted;
}

// Feeds compare() with a step's own reference and with mistakes, and requires that it takes the
// first, rounded to T, and refuses each of the others: every element with one term dropped and with
// one doubled (each element by itself), two rows and two elements that have changed places, and all
// zeros.
//   want     the reference, rows of `row_length` elements behind one another
//   bound    bound(i) of element i, as the program's own check has it; or 0, for an exact check
//   term(i)  a typical term of element i's sum, such as the one of median size; 0: it has none
template <class T = float, class Bound, class Term>
void require_refusals(const std::vector<double>& want, Bound&& bound, size_t row_length,
                      Term&& term) {
  std::string accepted;
  const auto check = [&](auto&& bound_at) {
    for (const std::string& mistake : accepted_mistakes<T>(want, bound_at, row_length, term))
      accepted += "\n  " + mistake;
  };
  if constexpr (std::is_arithmetic_v<std::decay_t<Bound>>)
    check([&](size_t) { return static_cast<double>(bound); });
  else
    check(bound);
  INFO("the check lets pass:" << accepted);
  REQUIRE(accepted.empty());
}

// Of term(k), k < terms, the one whose absolute value is the median.
template <class Term>
double median_term(size_t terms, Term&& term) {
  std::vector<double> values(terms);
  for (size_t k = 0; k < terms; ++k) values[k] = term(k);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(terms / 2);
  std::nth_element(values.begin(), middle, values.end(),
                   [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  return *middle;
}

}  // namespace testing
