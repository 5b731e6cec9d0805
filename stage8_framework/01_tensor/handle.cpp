#include "stage8_framework/01_tensor/handle.h"

#include <stdexcept>
#include <string>

#include "common/error.h"

namespace framework {

namespace {

size_t bytes_of(const Layout& layout, Dtype dtype) {
  return static_cast<size_t>(layout.elements()) * size_of(dtype);
}

std::string described(Dtype dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + " " + shape.text();
}

// Throws where `layout` shows elements outside of `bytes` of memory.
void require_inside(const char* operation, const Layout& layout, Dtype dtype, size_t bytes) {
  if (Layout::contiguous(layout.shape).elements() == 0) return;  // refuses extents that are none
  const auto held = static_cast<std::int64_t>(bytes / size_of(dtype));
  const Layout::Span span = layout.span();
  if (layout.shape.rank() == layout.strides.rank() && span.first >= 0 && span.end <= held) return;
  throw std::invalid_argument(std::string(operation) + " of " + described(dtype, layout.shape) +
                              ", strides " + layout.strides.text() + ", offset " +
                              std::to_string(layout.offset) + ": the storage has " +
                              std::to_string(held) + " elements");
}

}  // namespace

Tensor::AutogradHooks Tensor::autograd_hooks = {};

Tensor::Tensor(std::shared_ptr<Storage> storage, const Layout& layout, Dtype dtype)
    : storage_(std::move(storage)), dtype_(dtype), layout_(layout) {
  if (elements() != 0)
    data_ = static_cast<char*>(storage_->data()) +
            layout.offset * static_cast<std::int64_t>(size_of(dtype));
}

Tensor Tensor::empty(Device& device, const Shape& shape, Dtype dtype) {
  const Layout layout = Layout::contiguous(shape);
  const size_t bytes = bytes_of(layout, dtype);
  try {
    return Tensor(std::make_shared<Storage>(device, bytes), layout, dtype);
  } catch (const gpu::Error& error) {
    throw gpu::Error(error.code, "a tensor of " + described(dtype, shape) + ", " +
                                     std::to_string(bytes) + " bytes on " + device.name() + ": " +
                                     error.what());
  }
}

Tensor Tensor::wrap(Device& device, void* data, size_t bytes, const Layout& layout, Dtype dtype,
                    std::shared_ptr<void> owner) {
  require_inside("wrap", layout, dtype, bytes);
  return Tensor(std::make_shared<Storage>(device, data, bytes, std::move(owner)), layout, dtype);
}

Tensor Tensor::of(std::shared_ptr<Storage> storage, const Layout& layout, Dtype dtype) {
  require_inside("a tensor", layout, dtype, storage->bytes());
  return Tensor(std::move(storage), layout, dtype);
}

Tensor Tensor::from_host(Device& device, const void* values, const Shape& shape, Dtype dtype) {
  const Tensor result = empty(device, shape, dtype);
  device.to_device(result.data(), values, bytes_of(result.layout_, dtype));
  return result;
}

void Tensor::to_host(void* values) const {
  const Tensor rows = detach().contiguous();
  device().to_host(values, rows.data(), bytes_of(layout_, dtype_));
}

std::string Tensor::text() const { return described(dtype_, shape()); }

Tensor Tensor::view(const Layout& layout) const {
  require_inside("view", layout, dtype_, storage_->bytes());
  return seen(layout, Derivation::other);
}

Tensor Tensor::converted(Dtype dtype) const {
  const Tensor result = empty(device(), shape(), dtype);
  if (elements() != 0) device().copy(result, *this);
  return made(result, {Derivation::copy});
}

void Tensor::copy_from(const Tensor& source) const {
  const auto refuse = [&](const std::string& reason) {
    throw std::invalid_argument("copy of " + source.text() + " into " + text() + ": " + reason);
  };
  if (&device() != &source.device())
    refuse(std::string("one is on ") + source.device().name() + ", one on " + device().name());
  if (layout_.overlaps_itself())
    refuse("several indices lead to one element (strides " + strides().text() +
           "); copy into what it was expanded from");
  Tensor from(source.storage_, source.layout_.expand(shape(), "copy"), source.dtype_);
  if (requires_grad() || source.requires_grad()) autograd_hooks.before_copy(*this, source);
  if (elements() == 0) return;
  if (shares_storage(from)) {
    if (layout_ == from.layout_ && dtype_ == from.dtype_) return;  // onto itself: nothing changes
    const Layout::Span to = layout_.span(), read = from.layout_.span();
    if (to.first < read.end && read.first < to.end) from = from.clone();
  }
  device().copy(*this, from);
  count_write("copy");
}

void Tensor::require_elements(const Shape& shape, size_t count) {
  if (Layout::contiguous(shape).elements() == static_cast<std::int64_t>(count)) return;
  throw std::invalid_argument("from_host of " + shape.text() + ": " + std::to_string(count) +
                              " values were given");
}

void Tensor::require_dtype(Dtype dtype) const {
  if (dtype == dtype_) return;
  throw std::invalid_argument("to_host of " + text() + ": asked for as " + name_of(dtype));
}

}  // namespace framework
