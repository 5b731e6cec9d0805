// What each kernel of 0.6 must leave in out, for x (rows, cols), row-major. Plain C++; all results
// are integers, and exact.
#pragma once

#include <cstddef>
#include <vector>

namespace first_kernels {

inline constexpr unsigned kBlock = 128;  // threads of a block: two waves of 64, or four of 32
inline constexpr unsigned kGroup = 8;    // neighbouring threads, always of one wave
inline constexpr unsigned kValues = 8;   // x holds integers from 0 to kValues - 1

std::vector<double> doubled(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> one_more(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> mirrored(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> squared(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> reversed(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> summed_up(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> counted(const std::vector<int>& x, std::size_t rows, std::size_t cols);
std::vector<double> summed_in_groups(const std::vector<int>& x, std::size_t rows, std::size_t cols);

// rows x cols elements from 0 to kValues - 1, by the seed.
std::vector<int> random_elements(std::size_t rows, std::size_t cols, unsigned long long seed);

}  // namespace first_kernels
