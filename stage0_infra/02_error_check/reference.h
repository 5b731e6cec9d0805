// What a right report of an error is: an error was caught, and its text names the line of the
// version that provoked it.
#pragma once

#include <string>

#include "common/compare.h"
#include "common/error.h"

namespace error_check {

// The place that an error names: its text begins with "file:line: ".
struct Place {
  std::string file;
  int line = 0;  // 0: the text names none
};
Place place_of(const gpu::Error& error);

// Compares one number, which is 1 where `error` was caught and names a line of
// versions/<version>.hip, with 1.
Comparison check_report(const gpu::Error& error, const std::string& version);

}  // namespace error_check
