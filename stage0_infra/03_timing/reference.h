// Whether a probe of 0.3 does the work that its rate is computed from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// Checks probes on `memory`, which must outlive it. Fills memory.from with random words.
class ProbeCheck {
 public:
  ProbeCheck(const Memory& memory, std::uint64_t seed);

  // Runs the probe once and compares what it leaves behind, always exactly:
  //   copies, transfers   the words that arrived: all, or a sample (common/sample.h) of many
  //   read                the sum of all words, mod 2^32
  //   fma                 the end of every thread
  Comparison operator()(const Launch& probe) const;

  // For the report: which part of a copy is compared; empty where it is all of it.
  const std::string& sampled() const { return half_.text; }

 private:
  Comparison check_copy(const Launch& probe) const;
  Comparison check_read(const Launch& probe) const;
  Comparison check_fma(const Launch& probe) const;
  Comparison check_transfer(const Launch& probe) const;

  const Memory& memory_;
  Sample half_, host_;        // of the words of a half, and of host memory
  std::vector<double> want_;  // the sample of memory.from
  unsigned sum_ = 0;          // of all words of memory.from
};

}  // namespace timing
