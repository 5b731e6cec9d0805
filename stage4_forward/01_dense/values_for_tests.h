// A result held against a reference of step 4.1's kind, for the tests of this and later steps.
#pragma once

#include <vector>

#include "common/testing.h"
#include "stage4_forward/01_dense/reference.h"

namespace dense {

inline Comparison against(const std::vector<float>& got, const Values& want) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
}

}  // namespace dense
