// Random shapes and random views, for the tests of this step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/random.h"
#include "stage8_framework/01_tensor/layout.h"

namespace tensor_test {

using framework::Layout;
using framework::Shape;

// A sequence of random numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  // In [0, limit).
  size_t operator()(size_t limit) { return random_numbers::word(seed_, 0, drawn_++) % limit; }
  // In [first, last].
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>((*this)(static_cast<size_t>(last - first + 1)));
  }
  // `rank` extents of 1 to 5, rarely 0, of at most `most` elements.
  Shape shape(size_t rank, std::int64_t most) {
    Shape shape = Shape::filled(rank, 1);
    std::int64_t elements = 1;
    for (size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t extent = (*this)(40) == 0 ? 0 : between(1, 5);
      if (elements * extent > most) break;
      shape[axis] = extent;
      elements *= std::max(extent, std::int64_t{1});
    }
    for (size_t axis = rank; axis > 1; --axis) std::swap(shape[axis - 1], shape[(*this)(axis)]);
    return shape;
  }
  // An order of `rank` axes.
  Shape order(size_t rank) {
    Shape axes = Shape::filled(rank, 0);
    for (size_t axis = 0; axis < rank; ++axis) axes[axis] = static_cast<std::int64_t>(axis);
    for (size_t axis = rank; axis > 1; --axis) std::swap(axes[axis - 1], axes[(*this)(axis)]);
    return axes;
  }
  // The numbers of a slice of an axis.
  struct Slice {
    std::int64_t begin, end, step;
  };
  Slice slice(std::int64_t extent) {
    const std::int64_t step = between(1, 3);
    if ((*this)(2) == 0) return {between(0, extent), between(0, extent), step};
    return {between(-1, extent - 1), between(-1, extent - 1), -step};
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
};

// One of the views of `layout`, of at most `most` elements.
inline Layout random_view(const Layout& layout, Random& random, std::int64_t most) {
  const size_t rank = layout.shape.rank();
  const auto axis = [&] { return static_cast<std::int64_t>(random(std::max(rank, size_t{1}))); };
  switch (rank == 0 ? 3 : random(4)) {
    case 0:
      return layout.permute(random.order(rank));
    case 1: {
      const std::int64_t d = axis();
      const Random::Slice s = random.slice(layout.shape[static_cast<size_t>(d)]);
      return layout.slice(d, s.begin, s.end, s.step);
    }
    case 2: {
      const std::int64_t d = axis(), extent = layout.shape[static_cast<size_t>(d)];
      return extent == 0 ? layout : layout.select(d, random.between(0, extent - 1));
    }
    default: {
      if (rank == framework::kMaxRank) return layout;
      Shape shape = layout.shape;
      shape.insert(0, layout.elements() * 3 <= most ? 3 : 1);
      return layout.expand(shape);
    }
  }
}

}  // namespace tensor_test
