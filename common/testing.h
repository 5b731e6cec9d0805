// What every test includes: Catch2, version 2 or 3, and REQUIRE_OK for comparisons.
//
// Test cases that read NumPy's references carry the tag [numpy]; CTest leaves them out where no
// NumPy could make the references.
#pragma once

#include <sstream>
#include <string>

#include "common/compare.h"

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
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
