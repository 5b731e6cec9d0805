// What the tests of step 5.4 share: an arena between guards, a step held against the reference.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"

namespace optimizers_test {

using namespace optimizers;
using gpu::DeviceBuffer;

// Numbers of both signs on seven scales, from [0.5, 1) down to a millionth of that. None is so
// small beside its neighbours in w, grad_w and m that a step without effect could hide in the
// bound.
inline std::vector<float> numbers_on_seven_scales(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float uniform = random_numbers::uniform(7, stream, i);
    const double scale = std::pow(10.0, -static_cast<double>(i % 7));
    values[i] = static_cast<float>(scale) * (uniform + std::copysign(1.0f, uniform)) / 2;
  }
  return values;
}

// What one step starts from. v is m^2, which keeps it of the size that it has in training. Every
// eleventh gradient is 0: m and v go on shrinking there, and w still moves.
struct Values {
  explicit Values(size_t n)
      : w(numbers_on_seven_scales(n, 0)),
        grad_w(numbers_on_seven_scales(n, 1)),
        m(numbers_on_seven_scales(n, 2)),
        v(m) {
    for (float& value : v) value *= value;
    for (size_t i = 5; i < n; i += 11) grad_w[i] = 0;
  }
  std::vector<float> w, grad_w, m, v;
};

// An arena between guards. Where the optimizer keeps no m or no v, that pointer is null.
struct Arena {
  Arena(Kind kind, const Values& values, size_t offset = 0, size_t offset_grad = 0)
      : w(values.w, offset), grad_w(values.grad_w, offset_grad) {
    if (states(kind) >= 1) m = std::make_unique<Guarded<float>>(values.m, offset);
    if (states(kind) >= 2) v = std::make_unique<Guarded<float>>(values.v, offset);
  }
  ParameterArena tensor() {
    return {w.data(), grad_w.data(), m ? m->data() : nullptr, v ? v->data() : nullptr, w.size()};
  }
  // w, then m, then v, as far as the optimizer keeps them.
  std::vector<float> to_host() const {
    std::vector<float> all = w.to_host();
    for (const auto* state : {&m, &v})
      if (*state) {
        const std::vector<float> values = (*state)->to_host();
        all.insert(all.end(), values.begin(), values.end());
      }
    return all;
  }
  bool intact() const {
    return w.intact() && grad_w.intact() && (!m || m->intact()) && (!v || v->intact());
  }

  Guarded<float> w, grad_w;
  std::unique_ptr<Guarded<float>> m, v;
};

inline std::vector<ParameterArena> cut(const ParameterArena& arena,
                                       const std::vector<size_t>& sizes) {
  std::vector<ParameterArena> tensors;
  size_t begin = 0;
  for (const size_t size : sizes) tensors.push_back(arena.part(begin, size)), begin += size;
  return tensors;
}

inline std::vector<Element> elements_of(const Values& values) {
  return optimizers::elements_of(values.w, values.m, values.v);
}

// Holds Arena::to_host() against the reference.
inline Comparison compare_elements(const std::vector<float>& got,
                                   const std::vector<Element>& elements) {
  const size_t n = elements.size();
  const auto choose = [&](size_t i, double w, double m, double v) {
    return i < n ? w : i < 2 * n ? m : v;
  };
  return compare(
      got.size(), [&](size_t i) { return got[i]; },
      [&](size_t i) {
        const Element& e = elements[i % n];
        return choose(i, e.w, e.m, e.v);
      },
      [&](size_t i) {
        const Element& e = elements[i % n];
        return choose(i, e.w_error, e.m_error, e.v_error);
      });
}

// Begins step t, has `update(list, schedule)` do it, and compares; a write outside is a failure
// too.
template <class Update>
Comparison check_step(Kind kind, const std::vector<size_t>& sizes, Update update, size_t offset = 0,
                      size_t offset_grad = 0, std::uint64_t t = 3) {
  size_t n = 0;
  for (const size_t size : sizes) n += size;
  const Values values(n);
  Arena arena(kind, values, offset, offset_grad);
  const TensorList list(cut(arena.tensor(), sizes));
  DeviceBuffer<Schedule> schedule = make_schedule({}, t - 1);
  launch_begin_step(schedule.data());
  update(list, schedule.data());
  std::vector<Element> elements = elements_of(values);
  step_cpu(kind, {}, t, values.grad_w, elements);
  Comparison result = compare_elements(arena.to_host(), elements);
  result.ok = result.ok && arena.intact();
  return result;
}

// A version as check_step() takes it.
inline auto update_by(const Version<Launch>& version, Kind kind) {
  return [&version, kind](const TensorList& list, const Schedule* schedule) {
    version.launch(kind, list, schedule, nullptr);
  };
}

}  // namespace optimizers_test
