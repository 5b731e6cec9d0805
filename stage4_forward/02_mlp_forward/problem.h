// The networks that the program prints, and what of their results it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"

namespace mlp_forward {

struct Shape {
  std::size_t batch, in, hidden, out;
};

// Batch, in, hidden and out on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// One table each: `usual` alone where the user has chosen it; else a network for XOR, a batch of
// MNIST's (not with --quick), and `usual`, a large batch of it.
std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick);

std::string name(const Shape& shape);   // of its table
double operations(const Shape& shape);  // multiplications and additions
double bytes(const Shape& shape);       // of what is read and written at least, without h

// The samples whose outputs are compared: 64 of a larger batch.
RowSample rows_of(const Shape& shape, std::uint64_t seed);

}  // namespace mlp_forward
