#include "stage0_infra/06_first_kernels/reference.h"

#include <algorithm>

#include "common/random.h"

namespace first_kernels {

namespace {

template <class Function>
std::vector<double> of_each(const std::vector<int>& x, Function&& function) {
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = function(static_cast<double>(x[i]));
  return out;
}

// The end of the `length` elements that begin at `begin`, or of x.
std::size_t end_of(std::size_t begin, std::size_t length, const std::vector<int>& x) {
  return std::min(begin + length, x.size());
}

}  // namespace

std::vector<double> doubled(const std::vector<int>& x, std::size_t, std::size_t) {
  return of_each(x, [](double value) { return 2 * value; });
}

std::vector<double> one_more(const std::vector<int>& x, std::size_t, std::size_t) {
  return of_each(x, [](double value) { return value + 1; });
}

std::vector<double> mirrored(const std::vector<int>& x, std::size_t rows, std::size_t cols) {
  std::vector<double> out(x.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t col = 0; col < cols; ++col)
      out[row * cols + col] = x[row * cols + (cols - 1 - col)];
  return out;
}

std::vector<double> squared(const std::vector<int>& x, std::size_t, std::size_t) {
  return of_each(x, [](double value) { return value * value; });
}

std::vector<double> reversed(const std::vector<int>& x, std::size_t, std::size_t) {
  std::vector<double> out(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    const std::size_t end = end_of(begin, kBlock, x);
    for (std::size_t i = begin; i < end; ++i) out[i] = x[end - 1 - (i - begin)];
  }
  return out;
}

std::vector<double> summed_up(const std::vector<int>& x, std::size_t, std::size_t) {
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] + (i % kBlock == 0 ? 0 : out[i - 1]);
  return out;
}

std::vector<double> counted(const std::vector<int>& x, std::size_t, std::size_t) {
  std::vector<double> out(kValues);
  for (const int value : x) out[static_cast<std::size_t>(value)] += 1;
  return out;
}

std::vector<double> summed_in_groups(const std::vector<int>& x, std::size_t, std::size_t) {
  std::vector<double> out(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += kGroup) {
    const std::size_t end = end_of(begin, kGroup, x);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += x[i];
    for (std::size_t i = begin; i < end; ++i) out[i] = sum;
  }
  return out;
}

std::vector<int> random_elements(std::size_t rows, std::size_t cols, unsigned long long seed) {
  std::vector<int> x(rows * cols);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<int>(random_numbers::word(seed, 0, i) % kValues);
  return x;
}

}  // namespace first_kernels
