#include "stage8_framework/01_tensor/problem.h"

#include "common/sample.h"

namespace tensor {

using framework::Layout;
using framework::Shape;

std::vector<Size> sizes() {
  return {{"N", 64, 8, 3}, {"C", 64, 16, 18}, {"H", 256, 32, 17}, {"W", 256, 32, 22}};
}

std::vector<Case> printed(const std::vector<std::size_t>& s) {
  std::vector<Case> cases;
  for (const Arrangement view :
       {Arrangement::contiguous, Arrangement::channels_last, Arrangement::transposed,
        Arrangement::reversed, Arrangement::per_plane, Arrangement::one_plane, Arrangement::sliced})
    cases.push_back({view, s[0], s[1], s[2], s[3]});
  return cases;
}

std::string name(const Case& c) {
  static constexpr const char* kNames[] = {
      "contiguous",       "NHWC of NCHW", "(HW,NC) of (NC,HW)", "(W,H,NC) of (NC,H,W)",
      "expand (N,C,1,1)", "expand (H,W)", "every second column"};
  const auto times = [](std::size_t extent) { return "x" + size_text(extent); };
  return std::string(kNames[static_cast<std::size_t>(c.view)]) + "   " + size_text(c.N) +
         times(c.C) + times(c.H) + times(c.W) + " float32";
}

Shape shape_of_a(const Case& c) {
  const auto N = static_cast<std::int64_t>(c.N), C = static_cast<std::int64_t>(c.C);
  const auto H = static_cast<std::int64_t>(c.H), W = static_cast<std::int64_t>(c.W);
  switch (c.view) {
    case Arrangement::transposed:
      return {N * C, H * W};
    case Arrangement::reversed:
      return {N * C, H, W};
    case Arrangement::per_plane:
      return {N, C, 1, 1};
    case Arrangement::one_plane:
      return {H, W};
    default:
      return {N, C, H, W};
  }
}

Layout view_of_a(const Case& c) {
  const Layout a = Layout::contiguous(shape_of_a(c));
  const auto N = static_cast<std::int64_t>(c.N), C = static_cast<std::int64_t>(c.C);
  const auto H = static_cast<std::int64_t>(c.H), W = static_cast<std::int64_t>(c.W);
  switch (c.view) {
    case Arrangement::contiguous:
      return a;
    case Arrangement::channels_last:
      return a.permute({0, 2, 3, 1});
    case Arrangement::transposed:
      return a.transpose(0, 1);
    case Arrangement::reversed:
      return a.permute({2, 1, 0});
    case Arrangement::sliced:
      return a.slice(3, 0, W, 2);
    default:
      return a.expand({N, C, H, W});
  }
}

double bytes(const Case& c) {
  const auto count = [](const Shape& shape) {
    return static_cast<double>(Layout::contiguous(shape).elements());
  };
  return sizeof(float) * (count(view_of_a(c).shape) + count(shape_of_a(c)));
}

}  // namespace tensor
