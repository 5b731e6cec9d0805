// How a tensor lies in memory: extents, strides, an offset, and the type of an element. A view is
// another layout over the same memory: this is the arithmetic of all views, and nothing else. Plain
// C++ that knows no device.
//
//   element (i, j, k)  lies at  offset + i strides[0] + j strides[1] + k strides[2]
//
//   (2,3), strides (3,1)        0 1 2        transpose(0,1): (3,2), strides (1,3)      0 3
//                               3 4 5                                                  1 4
//   slice(1, 0, 3, 2): (2,2), strides (3,2)  0 2        expand: (4,3), strides (0,1)   2 5
//                                            3 5        the same row four times
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace framework {

// ---- Element types: data, not template parameters -----------------------------------------------

enum class Dtype : unsigned char { f32, f64, f16, bf16, i32, i64, u8, boolean };
inline constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16,
                                    Dtype::i32, Dtype::i64, Dtype::u8,  Dtype::boolean};

struct DtypeRow {
  const char* name;
  size_t bytes;  // of an element: 1, 2, 4 or 8
};
inline constexpr DtypeRow kDtypeRows[] = {{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2},
                                          {"i32", 4}, {"i64", 8}, {"u8", 1},  {"bool", 1}};
inline size_t size_of(Dtype dtype) { return kDtypeRows[static_cast<size_t>(dtype)].bytes; }
inline const char* name_of(Dtype dtype) { return kDtypeRows[static_cast<size_t>(dtype)].name; }

// ---- Shapes -------------------------------------------------------------------------------------

inline constexpr size_t kMaxRank = 8;

// Up to kMaxRank whole numbers in place, without memory of their own: the extents of a shape, its
// strides, or a list of axes. Throws std::invalid_argument where there are more.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values) : Shape(values.begin(), values.size()) {}
  explicit Shape(const std::vector<std::int64_t>& values) : Shape(values.data(), values.size()) {}
  Shape(const std::int64_t* values, size_t rank);
  // `rank` times `value`.
  static Shape filled(size_t rank, std::int64_t value);

  size_t rank() const { return rank_; }
  std::int64_t& operator[](size_t axis) { return values_[axis]; }
  std::int64_t operator[](size_t axis) const { return values_[axis]; }
  const std::int64_t* begin() const { return values_; }
  const std::int64_t* end() const { return values_ + rank_; }
  void insert(size_t axis, std::int64_t value);
  void erase(size_t axis);
  std::string text() const;  // "(2,3,4)"

 private:
  size_t rank_ = 0;
  std::int64_t values_[kMaxRank] = {};
};
bool operator==(const Shape& a, const Shape& b);
inline bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

// ---- Layouts and their views --------------------------------------------------------------------

// Every view throws std::invalid_argument, one line that names the operation, the shape and the
// reason. Where an axis is asked for, -1 is the last one, -2 the one before it.
struct Layout {
  Shape shape;
  Shape strides;            // in elements; 0 repeats an element, a negative one goes backwards
  std::int64_t offset = 0;  // of element (0, ..., 0), in elements of the storage

  // Row-major, without gaps. Throws where an extent is negative or there are 2^60 elements or more.
  static Layout contiguous(const Shape& shape);

  // The same elements in the same order under another shape; one extent may be -1. Refused where no
  // strides can say that: the elements must be copied first.
  Layout reshape(const Shape& shape) const;
  // Axis d of the result is axes[d] of this one.
  Layout permute(const Shape& axes) const;
  Layout transpose(std::int64_t a, std::int64_t b) const;
  // Indices begin, begin + step, ... of an axis, up to and without `end`; a negative step goes
  // down, and then `end` may be -1. What Python's slice.indices() returns.
  Layout slice(std::int64_t axis, std::int64_t begin, std::int64_t end,
               std::int64_t step = 1) const;
  // One index of an axis, which is gone then.
  Layout select(std::int64_t axis, std::int64_t index) const;
  // Axes of one element repeated, and new axes in front. `operation` is who asks, for the message.
  Layout expand(const Shape& shape, const char* operation = "expand") const;
  // Without an axis of one element; with a new one in front of `axis`.
  Layout squeeze(std::int64_t axis) const;
  Layout unsqueeze(std::int64_t axis) const;

  std::int64_t elements() const;
  bool is_contiguous() const;  // row-major without gaps, wherever it begins
  // Whether two indices may lead to one element. Exact for views of what is contiguous.
  bool overlaps_itself() const;

  struct Span {
    std::int64_t first = 0, end = 0;  // all elements lie in [first, end) of the storage
  };
  Span span() const;
};
bool operator==(const Layout& a, const Layout& b);

}  // namespace framework
