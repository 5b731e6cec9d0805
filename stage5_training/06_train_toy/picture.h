// What a trained model says, and pictures of it made of characters.
#pragma once

#include <string>
#include <vector>

#include "common/report.h"
#include "stage5_training/06_train_toy/training.h"

namespace train_toy {

struct Score {
  double loss, accuracy;  // the mean loss, and the share of points whose class is right
};
Score score_of(Training& t, const Points& points);
std::string score_text(const Score& score);

// A number by a format of printf.
std::string text(const char* format, double value);

// The loss over the epochs, its logarithm upwards: columns of eighths of a character.
void draw_curve(const std::vector<float>& losses, unsigned every, Report& report);

// Where the model sees which class, and the points on top.
void draw_boundary(Training& t, const Points& points, Report& report);

// The same for `course plot`: the points, and what the model says on a grid.
void add_series(const std::string& name, Training& t, const Points& points, Report& report);

}  // namespace train_toy
