// 8.6  fusion: chains of operations on elements become one pass over memory.
//
//   program.h  what such a chain is                     fuse.h    how a graph's calls become chains
//   source.h   a program as source code                 work.h    a program that a device can run
//
// This file has the ladder. Each version prepares a graph of 8.5, whose calls were recorded one by
// one, for its replays; these give the same bits in all. Errors are those of fuse(): compiled and
// with_reduction throw std::runtime_error where there is no compiler.
#pragma once

#include "common/version.h"
#include "stage8_framework/06_fusion/fuse.h"

namespace fusion {

void fuse_separate(Graph& graph);
void fuse_interpreted(Graph& graph);
void fuse_compiled(Graph& graph);
void fuse_with_reduction(Graph& graph);

using Launch = void (*)(Graph& graph);

inline constexpr Version<Launch> kVersions[] = {
    {"separate", fuse_separate, "an operation is a kernel, and its result goes through memory"},
    {"interpreted", fuse_interpreted, "chains are bytecode, which one kernel goes through"},
    {"compiled", fuse_compiled, "chains are source code, compiled while the program runs"},
    {"with_reduction", fuse_with_reduction, "a sum at the end adds what is never stored"},
};
constexpr const auto& best() { return kVersions[3]; }

}  // namespace fusion
