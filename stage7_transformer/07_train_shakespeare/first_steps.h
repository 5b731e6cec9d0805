// What the first steps of a version are held against. Where the host is quick enough for it, that
// is the same training in double. Else it is, of `operations`, the forward pass of one piece of
// text in double, and of the other versions the losses of `operations`, its twin being `operations`
// too. In bf16 the reference rounds what the versions store (step 7.6), and `operations` says only
// about what the losses are.
#pragma once

#include <string>
#include <vector>

#include "common/compare.h"
#include "common/version.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/training.h"

namespace train_shakespeare {

class FirstSteps {
 public:
  // For versions of this precision. Trains in double, from the training's present parameters, where
  // the host is quick enough.
  FirstSteps(Training& training, const Corpus& corpus, Precision precision = Precision::fp32);

  // What a table says of the check.
  std::string checked_text() const;
  // Holds the first steps of a version against it, and restarts the training behind them.
  Comparison check(const Version<Launch>& version);

 private:
  Comparison check_forward();
  std::vector<float> losses_of(Launch launch);  // of the next steps_ steps
  train_toy::Trajectory of_operations();

  Training& training_;
  const Corpus& corpus_;
  Precision precision_;
  size_t steps_;
  bool whole_;  // in double
  train_toy::Trajectory want_;
};

}  // namespace train_shakespeare
