// What is known of the optimizers without a kernel, and the tensors of a model.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

const char* name(Kind kind) {
  switch (kind) {
    case Kind::Sgd:
      return "sgd";
    case Kind::Momentum:
      return "momentum";
    case Kind::Adam:
      return "adam";
    case Kind::AdamW:
      return "adamw";
  }
  return nullptr;
}

int states(Kind kind) { return kind == Kind::Sgd ? 0 : kind == Kind::Momentum ? 1 : 2; }

size_t bytes_per_parameter(Kind kind) {
  return sizeof(float) * (3 + 2 * static_cast<size_t>(states(kind)));
}

gpu::DeviceBuffer<Schedule> make_schedule(const Hyperparameters& hyper, std::uint64_t steps) {
  Schedule schedule;
  schedule.hyper = hyper, schedule.step = steps;
  return gpu::DeviceBuffer<Schedule>(std::vector<Schedule>{schedule});
}

ParameterArena ParameterArena::part(size_t begin, size_t count) const {
  const auto behind = [&](float* p) { return p == nullptr ? p : p + begin; };
  return {w + begin, grad_w + begin, behind(m), behind(v), count};
}

TensorList::TensorList(std::vector<ParameterArena> tensors) : tensors_(std::move(tensors)) {
  std::vector<ParameterArena> slices;
  for (const ParameterArena& tensor : tensors_)
    for (size_t begin = 0; begin < tensor.n; begin += kSlice)
      slices.push_back(tensor.part(begin, std::min(kSlice, tensor.n - begin)));
  slices_ = gpu::DeviceBuffer<ParameterArena>(slices);
  for (const ParameterArena& slice : slices) {
    if (arena_.n == 0) arena_ = slice.part(0, 0);
    const ParameterArena end = arena_.part(arena_.n, 0);
    contiguous_ = contiguous_ && slice.w == end.w && slice.grad_w == end.grad_w &&
                  slice.m == end.m && slice.v == end.v;
    arena_.n += slice.n;
  }
}

const ParameterArena& TensorList::arena() const {
  if (!contiguous_) throw std::invalid_argument("the tensors do not lie one behind the other");
  return arena_;
}

}  // namespace optimizers
