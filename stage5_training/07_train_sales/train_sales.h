// 5.7  train_sales: from a shop's receipts to a model that says what a sale brings in.
//
//   sale -> 24 features -> Linear(24, 32) -> ReLU -> Linear(32, 1) -> total
//
// The features are made on the device: one-hot category, day of the year, weekend, and three
// numbers normalised by mean and deviation of the training split. The model has 833 parameters, and
// a step of 1024 sales is 5 million operations: next to nothing for a large GPU. What a step costs
// is how it is launched, and that is the ladder.
//
//   operations   a kernel per operation, launched by the host
//   graph        the same kernels, replayed from a graph
//   fused        two kernels per step: the gradient, and the update that has to wait for all of it
//   persistent   one kernel for an epoch; that wait is a barrier of the grid
//
// No kernel is told which step it is: it reads the number of steps behind it from the optimizer's
// Schedule, and which sales come next follows from it (random_numbers::permute). An epoch drops
// what does not fill its last batch. All sums are taken in an order that follows from the sizes and
// the grid, so that a device gives the same bits on every run.
#pragma once

#include <cstddef>

#include "common/options.h"
#include "common/version.h"
#include "stage5_training/07_train_sales/sales_training.h"

namespace train_sales {

// Each queues `steps` more steps.
void run_operations(Training& t, size_t steps);
void run_graph(Training& t, size_t steps);
void run_fused(Training& t, size_t steps);
void run_persistent(Training& t, size_t steps);

// What a training of kDefaults reaches after kPromisedEpochs, of sales as scripts/make_sales.py
// makes them: a mean absolute error over the test split that is this share of what always saying
// the mean has.
inline const TrainingDefaults kDefaults{50, 4, 2, 1024, 0.005, "adam", true};
inline constexpr size_t kPromisedEpochs = 4;
inline constexpr double kPromisedShare = 0.25;

using Launch = void (*)(Training& training, size_t steps);

inline constexpr Version<Launch> kVersions[] = {
    {"operations", run_operations, "a kernel per operation, launched by the host"},
    {"graph", run_graph, "the same kernels, replayed from a graph"},
    {"fused", run_fused, "two kernels per step: samples go forward and back in registers"},
    {"persistent", run_persistent, "one kernel per epoch: a step is a barrier of the grid"},
};

}  // namespace train_sales
