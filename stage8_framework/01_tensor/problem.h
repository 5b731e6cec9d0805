// The copies that the program prints.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/options.h"
#include "stage8_framework/01_tensor/layout.h"

namespace tensor {

// Of the images (N,C,H,W) that all cases are made of, on a GPU, on the CPU backend and with
// --quick.
std::vector<Size> sizes();

enum class Arrangement {
  contiguous,
  channels_last,
  transposed,
  reversed,
  per_plane,
  one_plane,
  sliced
};

// out = a row-major copy of a view of `a`.
struct Case {
  Arrangement view;
  std::size_t N, C, H, W;
};

std::vector<Case> printed(const std::vector<std::size_t>& sizes);

std::string name(const Case& c);
framework::Shape shape_of_a(const Case& c);  // as it lies in memory, row-major
framework::Layout view_of_a(const Case& c);  // what is copied
// What must be moved: every byte of out, and of a whatever shares 32 bytes with an element.
double bytes(const Case& c);

}  // namespace tensor
