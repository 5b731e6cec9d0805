#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

namespace {

std::string more_than(size_t limit, const std::string& what) {
  return "more than " + std::to_string(limit) + " " + what;
}

const char* const kTooManyPoints = "more points than fit into shared memory";

// Points that no block's shared memory holds: beyond it the sizes of rows and records might not fit
// into an int.
constexpr size_t kMostPoints = 100000;

}  // namespace

std::string nothing_against(const Training&) { return ""; }

std::string why_not_block(const Training& t) {
  if (t.widths().size() > kMaxLayers + 1) return more_than(kMaxLayers, "layers");
  if (t.widths().back() > kUnits) return more_than(kUnits, "classes");
  if (t.model.parameter_count() > kMaxThreads) return more_than(kMaxThreads, "parameters");
  if (t.points() > kMostPoints || t.network().shared_bytes() > gpu::max_shared_bytes())
    return kTooManyPoints;
  return "";
}

std::string why_not_registers(const Training& t) {
  constexpr size_t kInputs = 4, kHidden = 16, kClasses = 4;
  const std::vector<size_t>& widths = t.widths();
  if (widths.size() < 3 || widths.size() > 4) return "not one or two hidden layers";
  if (widths.front() > kInputs) return more_than(kInputs, "inputs");
  if (*std::max_element(widths.begin() + 1, widths.end() - 1) > kHidden)
    return more_than(kHidden, "units in a hidden layer");
  if (widths.back() > kClasses) return more_than(kClasses, "classes");
  if (t.points() > kMostPoints ||
      registers_shared_bytes(t.network(), t.settings.kind) > gpu::max_shared_bytes())
    return kTooManyPoints;
  return "";
}

std::string why_not_wave(const Training& t) {
  const std::vector<size_t> widths{kWaveInputs, kWaveHidden, kWaveClasses};
  if (t.widths() != widths || t.points() != kWavePoints)
    return "a wave holds 4 points and 8 hidden units";
  if (gpu::device_wave_size() < kWavePoints * kWaveHidden) return "the waves are too small";
  return "";
}

void require(const std::string& refusal) {
  if (!refusal.empty()) throw std::invalid_argument("train_toy: " + refusal);
}

const Version<Launch>& best(const Training& t) {
  const Version<Launch>* found = kVersions;
  for (const auto& version : kVersions)
    if (version.launch.why_not(t).empty()) found = &version;
  return *found;
}

}  // namespace train_toy
