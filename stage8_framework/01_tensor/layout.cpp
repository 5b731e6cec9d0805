#include "stage8_framework/01_tensor/layout.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace framework {

namespace {

[[noreturn]] void refuse(const char* operation, const Shape& shape, const std::string& reason) {
  throw std::invalid_argument(std::string(operation) + " of " + shape.text() + ": " + reason);
}

std::string axes(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " axis" : " axes");
}

// `axis` of `rank`, counted from the front.
size_t checked_axis(const char* operation, const Shape& shape, std::int64_t axis, size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count)
    refuse(operation, shape, "axis " + std::to_string(axis) + " of " + axes(count));
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

// The product of the extents; refused where it can't be counted.
std::int64_t count(const char* operation, const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1}
                                 << 60;  // so that 8 times as many bytes are counted
  std::int64_t product = 1;
  bool is_empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) refuse(operation, shape, "an extent is negative");
    is_empty = is_empty || extent == 0;
    if (__builtin_mul_overflow(product, std::max(extent, std::int64_t{1}), &product) ||
        product >= kMost)
      refuse(operation, shape, "too many elements");
  }
  return is_empty ? 0 : product;
}

// Of extents that have been counted.
Layout row_major(const Shape& shape) {
  Layout layout{shape, shape, 0};
  std::int64_t stride = 1;
  for (size_t axis = shape.rank(); axis-- > 0;) {
    layout.strides[axis] = stride;
    stride *= std::max(shape[axis], std::int64_t{1});
  }
  return layout;
}

}  // namespace

// ---- Shape ------------------------------------------------------------------------------------

Shape::Shape(const std::int64_t* values, size_t rank) : rank_(rank) {
  if (rank > kMaxRank)
    throw std::invalid_argument("a shape of " + std::to_string(rank) + " axes: at most " +
                                std::to_string(kMaxRank));
  std::copy(values, values + rank, values_);
}

Shape Shape::filled(size_t rank, std::int64_t value) {
  const std::array<std::int64_t, kMaxRank + 1> none{};
  Shape shape(none.data(), std::min(rank, kMaxRank + 1));
  std::fill(shape.values_, shape.values_ + rank, value);
  return shape;
}

void Shape::insert(size_t axis, std::int64_t value) {
  if (rank_ == kMaxRank)
    throw std::invalid_argument("an axis more than " + text() + " has: at most " +
                                std::to_string(kMaxRank));
  std::copy_backward(values_ + axis, values_ + rank_, values_ + rank_ + 1);
  values_[axis] = value;
  ++rank_;
}

void Shape::erase(size_t axis) {
  std::copy(values_ + axis + 1, values_ + rank_, values_ + axis);
  --rank_;
}

std::string Shape::text() const {
  std::string result = "(";
  for (size_t axis = 0; axis < rank_; ++axis)
    result += (axis > 0 ? "," : "") + std::to_string(values_[axis]);
  return result + ")";
}

bool operator==(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (size_t axis = 0; axis < a.rank(); ++axis)
    if (a[axis] != b[axis]) return false;
  return true;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.shape == b.shape && a.strides == b.strides && a.offset == b.offset;
}

// ---- Views ------------------------------------------------------------------------------------

Layout Layout::contiguous(const Shape& shape) {
  count("a tensor", shape);
  return row_major(shape);
}

Layout Layout::permute(const Shape& order) const {
  Layout result = *this;
  std::array<bool, kMaxRank> seen{};
  bool is_permutation = order.rank() == shape.rank();
  for (size_t d = 0; is_permutation && d < order.rank(); ++d) {
    const size_t axis = checked_axis("permute", shape, order[d], shape.rank());
    is_permutation = !seen[axis];
    seen[axis] = true;
    result.shape[d] = shape[axis], result.strides[d] = strides[axis];
  }
  if (!is_permutation) refuse("permute", shape, order.text() + " is no order of its axes");
  return result;
}

Layout Layout::transpose(std::int64_t a, std::int64_t b) const {
  const size_t first = checked_axis("transpose", shape, a, shape.rank());
  const size_t second = checked_axis("transpose", shape, b, shape.rank());
  Layout result = *this;
  std::swap(result.shape[first], result.shape[second]);
  std::swap(result.strides[first], result.strides[second]);
  return result;
}

Layout Layout::slice(std::int64_t axis, std::int64_t begin, std::int64_t end,
                     std::int64_t step) const {
  const size_t d = checked_axis("slice", shape, axis, shape.rank());
  const std::int64_t extent = shape[d];
  if (step == 0) refuse("slice", shape, "a step of 0");
  // Downwards from extent - 1 to -1, upwards from 0 to extent.
  const std::int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? extent - 1 : extent;
  if (begin < lowest || begin > highest || end < lowest || end > highest)
    refuse("slice", shape,
           "[" + std::to_string(begin) + ":" + std::to_string(end) + ":" + std::to_string(step) +
               "] leaves axis " + std::to_string(d) + " of " + std::to_string(extent));
  const std::int64_t distance = step > 0 ? end - begin : begin - end;
  const std::int64_t stride = step > 0 ? step : -step;
  Layout result = *this;
  result.shape[d] = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (result.shape[d] > 0) result.offset += begin * strides[d];
  // A step beyond the axis is taken once at most: its product must not wrap around.
  result.strides[d] = result.shape[d] > 1 ? step * strides[d] : strides[d];
  return result;
}

Layout Layout::select(std::int64_t axis, std::int64_t index) const {
  const size_t d = checked_axis("select", shape, axis, shape.rank());
  if (index < -shape[d] || index >= shape[d])
    refuse("select", shape,
           "index " + std::to_string(index) + " of axis " + std::to_string(d) + ", which has " +
               std::to_string(shape[d]));
  Layout result = *this;
  result.offset += (index < 0 ? index + shape[d] : index) * strides[d];
  result.shape.erase(d), result.strides.erase(d);
  return result;
}

Layout Layout::expand(const Shape& wanted, const char* operation) const {
  count(operation, wanted);
  const auto refused = [&] { refuse(operation, shape, wanted.text() + " is no broadcast of it"); };
  if (wanted.rank() < shape.rank()) refused();
  Layout result{wanted, Shape::filled(wanted.rank(), 0), offset};
  const size_t front = wanted.rank() - shape.rank();
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == wanted[front + axis])
      result.strides[front + axis] = strides[axis];
    else if (shape[axis] != 1)
      refused();
  }
  return result;
}

Layout Layout::squeeze(std::int64_t axis) const {
  const size_t d = checked_axis("squeeze", shape, axis, shape.rank());
  if (shape[d] != 1)
    refuse("squeeze", shape, "axis " + std::to_string(d) + " has " + std::to_string(shape[d]));
  Layout result = *this;
  result.shape.erase(d), result.strides.erase(d);
  return result;
}

Layout Layout::unsqueeze(std::int64_t axis) const {
  const size_t d = checked_axis("unsqueeze", shape, axis, shape.rank() + 1);
  Layout result = *this;
  result.shape.insert(d, 1), result.strides.insert(d, 1);
  return result;
}

// From the back: the next axes that lie as one, a run, must be exactly used up by new axes.
Layout Layout::reshape(const Shape& asked) const {
  Shape wanted = asked;
  const std::int64_t all = elements();
  const auto open = std::find(asked.begin(), asked.end(), -1);
  if (open != asked.end()) {
    if (std::find(open + 1, asked.end(), -1) != asked.end())
      refuse("reshape", shape, asked.text() + " has more than one -1");
    const auto axis = static_cast<size_t>(open - asked.begin());
    wanted[axis] = 1;
    const std::int64_t others = count("reshape", wanted);
    if (others == 0 || all % others != 0)
      refuse("reshape", shape, "no extent in place of -1 fits " + asked.text());
    wanted[axis] = all / others;
  } else if (count("reshape", wanted) != all) {
    refuse("reshape", shape, wanted.text() + " has another number of elements");
  }
  Layout result = row_major(wanted);
  result.offset = offset;
  if (all == 0) return result;
  size_t axis = shape.rank(), to = wanted.rank();
  while (axis > 0) {
    if (shape[--axis] == 1) continue;
    std::int64_t run = shape[axis];
    const std::int64_t stride = strides[axis];
    while (axis > 0 && (shape[axis - 1] == 1 || strides[axis - 1] == run * stride))
      run *= shape[--axis];
    std::int64_t used = 1;
    while (used < run && to > 0) {
      result.strides[--to] = used * stride;
      used *= wanted[to];
    }
    if (used != run)
      refuse("reshape", shape,
             "no strides show " + wanted.text() + " in strides " + strides.text() +
                 "; make it contiguous first");
  }
  return result;
}

// ---- What a layout is like --------------------------------------------------------------------

// Ends at the first 0. A loop that always goes on would become vector instructions for many numbers
// at a time: eight at most are multiplied sooner than the code for that is loaded.
std::int64_t Layout::elements() const {
  std::int64_t product = 1;
  for (size_t axis = 0; axis < shape.rank() && product != 0; ++axis) product *= shape[axis];
  return product;
}

bool Layout::is_contiguous() const {
  std::int64_t stride = 1;
  bool result = true;
  for (size_t axis = shape.rank(); axis-- > 0;) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1) result = result && strides[axis] == stride;
    stride *= shape[axis];
  }
  return result;
}

// By rising stride, each axis must step beyond all that the axes before it reach.
bool Layout::overlaps_itself() const {
  if (elements() == 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, extent
  for (size_t axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1) steps.emplace_back(std::abs(strides[axis]), shape[axis]);
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;  // the furthest element so far
  for (const auto& [stride, extent] : steps) {
    if (stride <= reach) return true;
    reach += stride * (extent - 1);
  }
  return false;
}

Layout::Span Layout::span() const {
  if (elements() == 0) return {offset, offset};
  Span result{offset, offset + 1};
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t reach = strides[axis] * (shape[axis] - 1);
    (reach < 0 ? result.first : result.end) += reach;
  }
  return result;
}

}  // namespace framework
