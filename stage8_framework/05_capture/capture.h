// 8.5  capture: the calls of some training steps are recorded once, and replayed for all others.
//
//   graph.h     what is recorded, and how it is run again
//   planner.h   where the buffers of a graph lie in one block of memory
//   training.h  a training whose steps are replayed
//
// This file has the two ladders. The first is that of a training: each version trains `model` for
// `steps` steps and returns the loss before each of them, the same bits in all. Done on return.
// Errors are those of the optimizer, of the operations and of Graph.
#pragma once

#include <vector>

#include "common/version.h"
#include "stage8_framework/05_capture/planner.h"
#include "stage8_framework/05_capture/training.h"

namespace capturing {

std::vector<float> train_eager(Module& model, const Task& task, std::uint64_t steps);
std::vector<float> train_recorded(Module& model, const Task& task, std::uint64_t steps);
std::vector<float> train_planned(Module& model, const Task& task, std::uint64_t steps);
std::vector<float> train_graph(Module& model, const Task& task, std::uint64_t steps);

using Launch = modules::Launch;

inline constexpr Version<Launch> kVersions[] = {
    {"eager", train_eager, "8.4's loop: every step is made anew, call by call"},
    {"recorded", train_recorded, "a list of calls is run again; all results are kept"},
    {"planned", train_planned, "results share one block; calls go to their plug-ins at once"},
    {"graph", train_graph, "the device has the list: one launch for all steps of it"},
};
constexpr const auto& best() { return kVersions[3]; }

// The second ladder: the bytes that the intermediates of a graph need.
inline constexpr Version<framework::Planner> kPlanners[] = {
    {"none", framework::plan_none, "a place of its own for each buffer"},
    {"greedy", framework::plan_greedy, "in the order of time, the smallest gap that fits"},
    {"by_size", framework::plan_by_size, "the largest first, each as low as there is room"},
};

}  // namespace capturing
