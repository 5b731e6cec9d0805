// Tensor: a handle to a storage, and how the elements lie in it. Plain C++ that knows no device:
// the core of the framework is built on this file, layout.h and storage.h alone.
//
//   Tensor x = Tensor::from_host(device, values, {2, 3});      storage  | 0 1 2 3 4 5 |  version 0
//   Tensor t = x.transpose(0, 1);        no copy               x (2,3)    strides (3,1)
//   t.copy_from(y);                      x sees it             t (3,2)    strides (1,3)  version 1
#pragma once

#include <type_traits>
#include <vector>

#include "stage8_framework/01_tensor/layout.h"
#include "stage8_framework/01_tensor/storage.h"

namespace framework {

// The element type of T; of bool there is no std::vector with an array to copy from.
template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return Dtype::f32;
  if constexpr (std::is_same_v<T, double>) return Dtype::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Dtype::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Dtype::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return Dtype::u8;
}

struct AutogradSlot;  // what a tensor's gradient is computed from: 8.3 defines it

// How a tensor was made of another one that has the same values, or some of them.
struct Derivation {
  enum Kind { reshape, permute, transpose, slice, select, expand, copy, unbind, other } kind;
  // permute: the axes; transpose: a, b; slice: axis, begin, end, step; select: axis, index;
  // unbind: axis.
  std::int64_t numbers[kMaxRank] = {};
};

// Copying a Tensor makes another handle to the same elements. Views share the storage: a write
// through one is seen by all. Errors: std::invalid_argument, one line that names operation, shapes
// and reason; gpu::Error of the device. After either, every tensor is as it was.
class Tensor {
 public:
  Tensor() = default;  // of no storage: may only be assigned to, destroyed and asked is_defined()

  // Uninitialised elements, row-major.
  static Tensor empty(Device& device, const Shape& shape, Dtype dtype = Dtype::f32);
  // Elements that lie at `data` already, on `device`: `bytes` of memory, which `owner` keeps alive.
  static Tensor wrap(Device& device, void* data, size_t bytes, const Layout& layout, Dtype dtype,
                     std::shared_ptr<void> owner);
  // From and to row-major elements on the host. The copy is done on return.
  static Tensor from_host(Device& device, const void* values, const Shape& shape, Dtype dtype);
  void to_host(void* values) const;
  template <class T>
  static Tensor from_host(Device& device, const std::vector<T>& values, const Shape& shape) {
    require_elements(shape, values.size());
    return from_host(device, values.data(), shape, dtype_of<T>());
  }
  template <class T>
  std::vector<T> to_host() const {
    require_dtype(dtype_of<T>());
    std::vector<T> values(static_cast<size_t>(elements()));
    to_host(values.data());
    return values;
  }

  bool is_defined() const { return storage_ != nullptr; }
  Device& device() const { return storage_->device(); }
  Dtype dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }
  const Shape& shape() const { return layout_.shape; }
  const Shape& strides() const { return layout_.strides; }
  size_t rank() const { return layout_.shape.rank(); }
  std::int64_t elements() const { return layout_.elements(); }
  bool is_contiguous() const { return layout_.is_contiguous(); }
  // The device address of element (0, ..., 0). What writes there tells count_write() its name, a
  // literal.
  void* data() const { return data_; }
  std::uint64_t version() const { return storage_->version(); }
  const char* last_writer() const { return storage_->last_writer(); }
  void count_write(const char* operation) const { storage_->count_write(operation); }
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  // Whether nobody else sees its storage.
  bool is_only_handle() const { return storage_.use_count() == 1; }
  std::string text() const;  // "f32 (2,3)"

  // For what knows storages by themselves (8.5): the one of this handle, and a handle to one.
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  static Tensor of(std::shared_ptr<Storage> storage, const Layout& layout, Dtype dtype);

  // The same storage under another layout: what every view is. Refused where it leaves the storage.
  Tensor view(const Layout& layout) const;
  // Views, as layout.h says.
  Tensor reshape(const Shape& shape) const {
    return seen(layout_.reshape(shape), Derivation::reshape);
  }
  Tensor permute(const Shape& axes) const {
    Derivation how{Derivation::permute};
    for (size_t d = 0; d < axes.rank(); ++d) how.numbers[d] = axes[d];
    return seen(layout_.permute(axes), how);
  }
  Tensor transpose(std::int64_t a, std::int64_t b) const {
    return seen(layout_.transpose(a, b), Derivation::transpose, a, b);
  }
  Tensor slice(std::int64_t axis, std::int64_t begin, std::int64_t end,
               std::int64_t step = 1) const {
    return seen(layout_.slice(axis, begin, end, step), Derivation::slice, axis, begin, end, step);
  }
  Tensor select(std::int64_t axis, std::int64_t i) const {
    return seen(layout_.select(axis, i), Derivation::select, axis, i);
  }
  Tensor expand(const Shape& shape) const {
    return seen(layout_.expand(shape), Derivation::expand);
  }
  Tensor squeeze(std::int64_t axis) const {
    return seen(layout_.squeeze(axis), Derivation::reshape);
  }
  Tensor unsqueeze(std::int64_t axis) const {
    return seen(layout_.unsqueeze(axis), Derivation::reshape);
  }

  // New row-major elements of the same values; of another type; or this tensor, if it is so
  // already.
  Tensor clone() const { return converted(dtype_); }
  Tensor contiguous() const { return is_contiguous() ? *this : clone(); }
  Tensor to(Dtype dtype) const { return dtype == dtype_ ? *this : converted(dtype); }

  // Writes source's values, broadcast to this shape and converted to this type, into this tensor's
  // elements: its version is one higher then. The two may overlap. Refused where several indices of
  // this tensor lead to one element, as in what expand() returns.
  void copy_from(const Tensor& source) const;

  // ---- Gradients: what 8.3 does is explained there, in tape.h ----
  bool requires_grad() const { return autograd_ != nullptr; }
  Tensor detach() const { return Tensor(storage_, layout_, dtype_); }  // a view without a gradient
  // Defined by 8.3, which a program that calls these links.
  void set_requires_grad(bool requires_grad = true);
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  void backward() const;
  void backward(const Tensor& seed, bool retain_graph = false) const;

  const std::shared_ptr<AutogradSlot>& autograd() const { return autograd_; }
  void set_autograd(std::shared_ptr<AutogradSlot> slot) { autograd_ = std::move(slot); }
  // `result`, which was made of this tensor: tracked, if this one is.
  Tensor made(Tensor result, const Derivation& how) const {
    if (autograd_ != nullptr) autograd_hooks.made(*this, result, how);
    return result;
  }
  // What 8.3 wants to know of tracked tensors. It sets this before there are any.
  struct AutogradHooks {
    void (*made)(const Tensor& from, Tensor& result, const Derivation& how);
    void (*before_copy)(const Tensor& out, const Tensor& source);  // may refuse it
  };
  static AutogradHooks autograd_hooks;

 private:
  Tensor(std::shared_ptr<Storage> storage, const Layout& layout, Dtype dtype);
  template <class... Numbers>
  Tensor seen(const Layout& layout, Derivation::Kind kind, Numbers... numbers) const {
    return seen(layout, Derivation{kind, {numbers...}});
  }
  Tensor seen(const Layout& layout, const Derivation& how) const {
    return made(Tensor(storage_, layout, dtype_), how);
  }
  Tensor converted(Dtype dtype) const;
  static void require_elements(const Shape& shape, size_t count);
  void require_dtype(Dtype dtype) const;

  // What every call asks for lies together.
  std::shared_ptr<Storage> storage_;
  void* data_ = nullptr;  // computed once: neither the storage nor the layout changes
  Dtype dtype_ = Dtype::f32;
  std::shared_ptr<AutogradSlot> autograd_;  // nullptr: no gradient is wanted
  Layout layout_;
};

}  // namespace framework
