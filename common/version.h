// One version of a step: what kVersions lists. A step's contract includes this and declares its
// launchers; no kernel is needed to read it.
#pragma once

#include "common/gpu_runtime.h"

// What a version needs beyond the portable subset. On other hardware its row says so. Bits16, Tf32:
// other elements than those of this table, 16-bit numbers or tf32.
enum class Needs { Any, Sm80, Sm90, Cdna, Bits16, Tf32 };

// One version of a step. Every step has ONE list of them, kVersions, which the program, the test
// and the course all walk.
template <class Launch>
struct Version {
  const char* name;
  Launch launch;
  const char* lesson;
  Needs needs = Needs::Any;
};
