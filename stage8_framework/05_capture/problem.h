// What the program trains: the three models of 8.4, and 5.6's XOR.
#pragma once

#include <vector>

#include "common/compare.h"
#include "common/options.h"
#include "stage8_framework/04_modules/problem.h"
#include "stage8_framework/05_capture/capture.h"

namespace capturing {

using modules::Training;

// 8.4's, and the epochs of XOR.
std::vector<Size> sizes();

// Throws UsageError where the trainings, or their references in double, have no room.
void require_memory(const Options& options);

// Throws UsageError where the data can't be read.
std::vector<Training> trainings(const Options& options, Device& device, Report& report);

// A row of a training's table.
struct TrainingVersion {
  std::string name, lesson;
  Launch launch;
  std::string skipped = {};  // why it can't run here; empty: it can
};
template <size_t kCount>
std::vector<TrainingVersion> versions(const Version<Launch> (&all)[kCount]) {
  std::vector<TrainingVersion> list;
  for (const Version<Launch>& version : all)
    list.push_back({version.name, version.lesson, version.launch});
  return list;
}

// Whose losses all versions must have.
struct Like {
  const char* name;
  Launch launch;
};

// The table of a training: each version is checked, and then timed once; every loss must be that of
// `like`, bit for bit.
void train(const Training& training, const std::vector<TrainingVersion>& versions, const Like& like,
           const Options& options, Report& report);

// A picture of the graph, or where that can't be, the list of its calls: `what` it is of.
void draw(const Graph& graph, const std::string& what, const std::string& file, Report& report);

// "perceptron"
std::string short_name(const Training& training);

// 8.4's check of the first steps, and that their losses are those of `eager`, bit for bit.
Comparison check(const Training& training, Launch launch, const std::vector<float>& eager);

// Where two lists of losses differ first, in words; empty where they are the same, bit for bit.
std::string difference(const std::vector<float>& losses, const std::vector<float>& eager);

}  // namespace capturing
