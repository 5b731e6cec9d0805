// The windows and images that the program prints, and which planes of them it compares.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage6_cnn/03_maxpool/maxpool.h"

namespace maxpool {

// Images, channels, rows and columns: on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// The windows of most networks, 2x2 every 2 cells, and those of ResNet's first layers, 3x3 every 2
// with a padding of 1. Throws std::invalid_argument where one does not fit.
std::vector<Problem> printed(const std::vector<size_t>& sizes);

// "2x2 every 2, padding 0, forward   256x64x112x112 float32"
std::string name(const Problem& p, const char* pass);

// True where the versions for pairs of rows can run: 2x2 windows every 2 cells, without padding.
bool is_row_pairs(const Problem& p);

// The planes (one channel of one image each) that are compared: all, or 64 of them.
struct Planes {
  RowSample of_x, of_y;  // a plane of x and of y as a row
  Problem sampled;       // these planes alone
};
Planes choose_planes(const Problem& p, std::uint64_t seed);

}  // namespace maxpool
