#include "stage2_matrix/01_transpose/problem.h"

#include "common/random.h"

namespace transpose {

std::vector<Size> sizes() { return {{"rows", 16384, 256, 131}, {"cols", 16384, 512, 67}}; }

std::vector<Shape> printed(std::size_t rows, std::size_t cols, bool sizes_given) {
  if (sizes_given) return {{rows, cols}};
  return {{rows, cols}, {rows - 1, cols - 3}};
}

Expected expect(const Shape& a, std::uint64_t seed) {
  constexpr std::size_t kComparedRows = 256;  // where out has more
  Expected expected{choose_rows(a.cols, a.rows, kComparedRows, seed), {}};
  expected.want.reserve(expected.sample.rows.size() * a.rows);
  for (const std::size_t out_row : expected.sample.rows)  // a column of a
    for (std::size_t row = 0; row < a.rows; ++row)
      expected.want.push_back(
          static_cast<double>(random_numbers::uniform(seed, 0, row * a.cols + out_row)));
  return expected;
}

}  // namespace transpose
