// The reference of 3.2 in double, and what a correct float result may be off.
#pragma once

#include <cstddef>
#include <vector>

namespace softmax {

// The rows of x, each of `cols` elements, in double.
std::vector<double> softmax_cpu(const std::vector<float>& x, size_t cols);

inline constexpr double kTiny = 2.3509887016445750e-38;  // 2^-125: covers results below the normals

struct Roundings {
  double additions;     // that an element of the sum goes through
  double exponentials;  // as whose product an element of the sum is computed, at most
};

// An exponential of -kFarApart is 0 in float. So where the elements of a row are integers times
// kFarApart, every sum is the number of the largest ones, exact in any order in rows of up to
// kExactSums elements. Their probability is one over that, rounded once, and all others are 0.
inline constexpr float kFarApart = 200;
inline constexpr size_t kExactSums = size_t{1} << 24;

// What each element of y = softmax_cpu(x, cols) may be off that is computed in float with these
// roundings. A masked element, x = -infinity, must be 0 exactly. reference.cpp derives the bound.
std::vector<double> bounds(const std::vector<float>& x, const std::vector<double>& y, size_t cols,
                           Roundings roundings);

// The additions of a thread one after the other, and those of the tree of a team of `threads`.
double additions(size_t cols, size_t threads);

// The roundings of each version in rows of `cols` elements, on the current device.
Roundings roundings_thread_per_row(size_t cols);
Roundings roundings_block_per_row(size_t cols);
Roundings roundings_wave_per_row(size_t cols);
Roundings roundings_online(size_t cols);
Roundings roundings_row_in_registers(size_t cols);
Roundings roundings_row_in_shared(size_t cols);
Roundings roundings_best(size_t cols);

}  // namespace softmax
