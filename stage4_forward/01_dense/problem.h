// The layers that the program prints, and what of their results it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"

namespace dense {

struct Shape {
  std::size_t batch, in, out;
};

// Batch, in and out on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// One table each: `usual` alone where the user has chosen it; else MNIST's first layer, `usual`,
// which keeps the device busy, and a single sample of that. With --quick `usual` and a small
// single sample.
std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick);

std::string name(const Shape& shape);   // of its table
double operations(const Shape& shape);  // multiplications and additions
double bytes(const Shape& shape);       // of what is read and written at least
// What w in [-1, 1) is multiplied by: 1 / sqrt(in), as when a layer's training begins.
float weight_scale(const Shape& shape);

// The rows of y that are compared: all of them of a small layer, else 8.
RowSample rows_of(const Shape& shape, std::uint64_t seed);

}  // namespace dense
