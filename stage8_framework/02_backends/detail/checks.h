// What shape rules ask of a call. Each refuses it, as a rule does (rules.h), where that does not
// hold.
#pragma once

#include "stage8_framework/02_backends/detail/rules.h"

namespace framework::checks {

void require(const Call& call, bool holds, const char* reason);
void require_shape(const Call& call, int input, const char* name, const Shape& want);
// The type of the inputs from `first` on, which must be one: f32 or f64. Absent ones do not count.
Dtype real_type(const Call& call, int first = 0, int end = kMaxInputs);
// An attribute that is a whole number of at least `least`.
std::int64_t whole(const Call& call, int attribute, std::int64_t least);

}  // namespace framework::checks
