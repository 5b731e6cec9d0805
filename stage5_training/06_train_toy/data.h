// The three data sets of step 5.6, which it makes itself: XOR, two blobs and a spiral.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/options.h"

namespace train_toy {

// Points in the plane (any other dimension would do) and the class of each.
struct Points {
  std::vector<float> x;  // (labels.size(), inputs)
  std::vector<int> labels;
};

// The four corners of a square; opposite ones are of one class. No straight line separates them.
Points make_xor(std::uint64_t seed);

// 256 points around two centres, normally distributed (Box and Muller: A note on the generation of
// random normal deviates, 1958). The centres are 5.6 standard deviations apart.
Points make_blobs(std::uint64_t seed);

// Three arms of 64 points, each of which winds around the origin by three quarters of a turn.
Points make_spiral(std::uint64_t seed);

struct DataSet {
  const char* name;
  Points (*make)(std::uint64_t seed);
  std::vector<size_t> widths;  // of the network: inputs, hidden units, ..., classes
  double accuracy;             // what a training of kDefaults reaches after kPromisedEpochs
};

const std::vector<DataSet>& data_sets();

// What suits all three. 400 epochs are enough, and what the CPU backend can do in a few seconds.
inline const TrainingDefaults kDefaults{5000, 400, 20, 0, 0.2, "momentum", false};
inline constexpr unsigned kPromisedEpochs = 400;

}  // namespace train_toy
