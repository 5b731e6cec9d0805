#include "common/rounding.h"

#include <algorithm>
#include <limits>

namespace rounding {

double gamma(double k) {
  const double ku = k * kFloatRoundoff;
  return ku < 1 ? ku / (1 - ku) : std::numeric_limits<double>::infinity();
}

double worst_case(double depth, double terms, double absolute) {
  return std::min(gamma(depth), terms * kFloatRoundoff) * absolute;
}

double random_bound(double depth, double absolute) {
  return kLambda * std::sqrt(depth) * kFloatRoundoff * absolute;
}

double mean_zero_bound(double depth, double squares, double result) {
  return kLambda * std::sqrt(depth * squares) * kFloatRoundoff + kFloatRoundoff * std::fabs(result);
}

Sum dot(const float* x, const float* y, std::size_t terms) {
  constexpr std::size_t kPiece = 4096;
  Sum total;
  for (std::size_t begin = 0; begin < terms; begin += kPiece) {
    Sum piece;
    for (std::size_t i = begin; i < std::min(begin + kPiece, terms); ++i)
      piece.add(static_cast<double>(x[i]) * static_cast<double>(y[i]));
    total += piece;
  }
  return total;
}

}  // namespace rounding
