#include "stage5_training/06_train_toy/data.h"

#include <cmath>

#include "common/random.h"

namespace train_toy {

namespace {

// Coordinates are rounded to a multiple of 2^-12: what the last bit of a math library's cosine is
// can't be seen, and the data is the same everywhere.
float coordinate(double value) { return static_cast<float>(std::round(value * 4096) / 4096); }

}  // namespace

Points make_xor(std::uint64_t /*seed*/) { return {{0, 0, 0, 1, 1, 0, 1, 1}, {0, 1, 1, 0}}; }

Points make_blobs(std::uint64_t seed) {
  constexpr size_t kPoints = 256;
  constexpr double kDeviation = 0.4, kCentres[2][2] = {{-1, -0.5}, {1, 0.5}};
  constexpr std::uint32_t kStream = 100;
  Points points;
  for (size_t i = 0; i < kPoints; ++i) {
    const size_t label = i % 2;
    // Both in (0, 1]: a uniform number is at least -1 and below 1.
    const double a = (1 - static_cast<double>(random_numbers::uniform(seed, kStream, 2 * i))) / 2;
    const double b =
        (1 - static_cast<double>(random_numbers::uniform(seed, kStream, 2 * i + 1))) / 2;
    const double radius = kDeviation * std::sqrt(-2 * std::log(a)), angle = 2 * std::acos(-1.0) * b;
    points.x.push_back(coordinate(kCentres[label][0] + radius * std::cos(angle)));
    points.x.push_back(coordinate(kCentres[label][1] + radius * std::sin(angle)));
    points.labels.push_back(static_cast<int>(label));
  }
  return points;
}

Points make_spiral(std::uint64_t seed) {
  constexpr size_t kArms = 3, kPointsPerArm = 64;
  constexpr double kTurns = 0.75, kNoise = 0.2;  // of the angle, in radians
  constexpr std::uint32_t kStream = 101;
  Points points;
  for (size_t i = 0; i < kArms * kPointsPerArm; ++i) {
    const size_t arm = i % kArms;
    const double along = (static_cast<double>(i / kArms) + 0.5) / kPointsPerArm;
    const double noise = static_cast<double>(random_numbers::uniform(seed, kStream, i));
    const double turns = static_cast<double>(arm) / kArms + kTurns * along;
    const double radius = 0.1 + 0.9 * along, angle = 2 * std::acos(-1.0) * turns + kNoise * noise;
    points.x.push_back(coordinate(radius * std::cos(angle)));
    points.x.push_back(coordinate(radius * std::sin(angle)));
    points.labels.push_back(static_cast<int>(arm));
  }
  return points;
}

const std::vector<DataSet>& data_sets() {
  static const std::vector<DataSet> sets = {{"xor", make_xor, {2, 8, 2}, 1},
                                            {"blobs", make_blobs, {2, 8, 2}, 0.99},
                                            {"spiral", make_spiral, {2, 16, 16, 3}, 0.99}};
  return sets;
}

}  // namespace train_toy
