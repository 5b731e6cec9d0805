// A tensor as the reference sees it: elements by their indices, as double, whatever their type and
// wherever they lie. Nothing here is fast.
//
//   Numbers x: (4,2,3)    x(3, 1, 0)      an element by its indices
//                      x[n]            the n-th of all 24 in row-major order
//                      x.part(n, 2)    the n-th of the 4 matrices (2,3) in it
#pragma once

#include <cstring>
#include <utility>

#include "stage8_framework/01_tensor/detail/convert.h"
#include "stage8_framework/02_backends/abi.h"

namespace reference {

using framework::Dtype;
using Integer = std::int64_t;

inline bool is_integer(Dtype type) {
  return type == Dtype::i32 || type == Dtype::i64 || type == Dtype::u8 || type == Dtype::boolean;
}

// One element. It reads as a double; what is assigned to it is rounded once.
class Element {
 public:
  Element(void* data, Dtype type, Integer at) : data_(data), type_(type), at_(at) {}
  Element(const Element&) = default;

  operator double() const {
    if (is_integer(type_)) return static_cast<double>(tensor::load_as<Integer>(data_, type_, at_));
    if (type_ == Dtype::f64) return tensor::load_as<double>(data_, type_, at_);
    return static_cast<double>(tensor::load_as<float>(data_, type_, at_));
  }
  const Element& operator=(double value) const {
    tensor::store_as(data_, type_, at_, value);
    return *this;
  }
  Element& operator=(const Element& other) {
    *this = static_cast<double>(other);
    return *this;
  }
  // The number of another element in this one's type. No integer goes through a double.
  void convert_from(const Element& other) const {
    const size_t bytes = framework::size_of(type_);
    if (type_ == other.type_)
      std::memcpy(static_cast<char*>(data_) + at_ * static_cast<Integer>(bytes),
                  static_cast<const char*>(other.data_) + other.at_ * static_cast<Integer>(bytes),
                  bytes);
    else if (is_integer(other.type_))
      tensor::store_as(data_, type_, at_,
                       tensor::load_as<Integer>(other.data_, other.type_, other.at_));
    else
      *this = static_cast<double>(other);
  }

 private:
  void* data_;
  Dtype type_;
  Integer at_;
};

class Numbers {
 public:
  explicit Numbers(const CourseTensor& t)
      : data_(t.data), type_(static_cast<Dtype>(t.dtype)), rank_(t.rank) {
    for (int d = 0; d < rank_; ++d) extent_[d] = t.extent[d], stride_[d] = t.stride[d];
  }

  bool is_present() const { return rank_ >= 0; }
  int rank() const { return rank_; }
  Dtype type() const { return type_; }
  // Of axis -1, the last one, -2, the one before it, and so on; or of axis 0, 1, ...
  Integer extent(int axis) const { return extent_[axis < 0 ? rank_ + axis : axis]; }

  template <class... Indices>
  Element operator()(Indices... indices) const {
    Integer at = offset_;
    int axis = 0;
    ((at += static_cast<Integer>(indices) * stride_[axis++]), ...);
    return Element(data_, type_, at);
  }

  // How many parts of the last `axes` axes there are; how many elements there are.
  Integer parts(int axes) const {
    Integer count = 1;
    for (int d = 0; d < rank_ - axes; ++d) count *= extent_[d];
    return count;
  }
  Integer size() const { return parts(0); }
  Numbers part(Integer n, int axes) const {
    Numbers part = *this;
    const int leading = rank_ - axes;
    for (int d = leading - 1; d >= 0; --d) {
      part.offset_ += n % extent_[d] * stride_[d];
      n /= extent_[d];
    }
    for (int d = 0; d < axes; ++d)
      part.extent_[d] = extent_[leading + d], part.stride_[d] = stride_[leading + d];
    part.rank_ = axes;
    return part;
  }
  Element operator[](Integer n) const { return part(n, 0)(); }

  // Axes of extent 1 repeated, and new ones in front, so that all axes but the last `kept` are
  // those of `other`.
  Numbers broadcast_like(const Numbers& other, int kept = 0) const {
    Numbers view = *this;
    view.rank_ = other.rank_;
    for (int from_end = 1; from_end <= other.rank_; ++from_end) {
      const int to = other.rank_ - from_end, from = rank_ - from_end;
      const bool is_new = from < 0, is_kept = from_end <= kept;
      const bool repeats = is_new || (!is_kept && extent_[from] == 1);
      view.extent_[to] = is_kept && !is_new ? extent_[from] : other.extent_[to];
      view.stride_[to] = repeats ? 0 : stride_[from];
    }
    return view;
  }
  // The axes that `mask` names behind all others; bit d stands for axis d.
  Numbers with_axes_last(unsigned mask) const {
    Numbers view = *this;
    int to = 0;
    for (const unsigned named : {0u, 1u})
      for (int d = 0; d < rank_; ++d)
        if ((mask >> d & 1u) == named)
          view.extent_[to] = extent_[d], view.stride_[to++] = stride_[d];
    return view;
  }

 private:
  void* data_;
  Dtype type_;
  int rank_;
  Integer offset_ = 0;
  Integer extent_[framework::kMaxRank] = {}, stride_[framework::kMaxRank] = {};
};

// What an operation is given: a CourseCall with its tensors as views.
class Arguments {
 public:
  explicit Arguments(const CourseCall& call) : call_(call) {}
  Numbers in(int i) const { return Numbers(call_.inputs[i]); }
  Numbers out(int i) const { return Numbers(call_.outputs[i]); }
  double attribute(int i) const { return call_.attributes[i]; }
  Integer whole(int i) const { return static_cast<Integer>(call_.attributes[i]); }

 private:
  const CourseCall& call_;
};

}  // namespace reference
