// The sizes of F(4 x 4, 3 x 3): a tile of 6 x 6 numbers of x makes 4 x 4 outputs.
#pragma once

namespace conv2d {

inline constexpr int kSideIn = 6, kSideOut = 4, kPlaces = kSideIn * kSideIn;

}  // namespace conv2d
