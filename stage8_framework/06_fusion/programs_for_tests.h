// Random programs for tests, what their operations make of their inputs one after the other, and
// how a Work runs them: between guards, into outputs that are poisoned.
//
//   const TestProgram test = random_program(seed);
//   CHECK(difference(run_fused(*fusion::interpreted(test.program), test), run_separately(test))
//         == "");
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/06_fusion/work.h"

namespace fusion_test {

using framework::Dtype;
using framework::Layout;
using framework::Shape;
using framework::Tensor;
using fusion::Formula;
using fusion::Program;
using fusion::Reduction;
using gpu::DeviceBuffer;
using Floats = std::vector<float>;

// The array of an input. A bool is a 0 or a 1 here.
struct Storage {
  Floats values;
  std::int64_t begin = 0;  // where element (0, ..., 0) lies
};
struct TestProgram {
  Program program;
  std::vector<Storage> storages;
  size_t output_shift = 0;  // by how many elements outputs are off an address that is aligned
};

// ---- Chance -------------------------------------------------------------------------------------

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : bits_(seed) {}
  size_t below(size_t end) { return static_cast<size_t>(bits_() % end); }
  bool once_in(size_t times) { return below(times) == 0; }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  // Mostly between -4 and 4 in steps of 2^-20; once in 16 times something special.
  float number() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    static const Floats kSpecial = {std::nanf(""), kInfinity, -kInfinity, -0.0f,
                                    0.0f,          1e-40f,    -3e38f,     1e30f};
    if (once_in(16)) return one_of(kSpecial);
    if (once_in(4)) return static_cast<float>(below(9)) - 4;
    return static_cast<float>(below(1 << 23)) * 0x1p-20f - 4;
  }

 private:
  std::mt19937_64 bits_;
};

// ---- Programs -----------------------------------------------------------------------------------

inline Shape random_domain(Chance& chance) {
  static const std::vector<Shape> kShapes = {{},
                                             {0},
                                             {1},
                                             {3},
                                             {4},
                                             {5},
                                             {255},
                                             {257},
                                             {4099},
                                             {1024},
                                             {3, 85},
                                             {257, 4},
                                             {4, 257},
                                             {0, 3},
                                             {3, 0},
                                             {1, 5},
                                             {5, 1},
                                             {33, 20},
                                             {2000, 2},
                                             {2, 2000},
                                             {3, 4, 5},
                                             {5, 3, 4},
                                             {7, 1, 8},
                                             {2, 3, 0, 4},
                                             {2, 3, 4, 5},
                                             {1, 17, 1, 12},
                                             {2, 1, 3, 2, 4}};
  return chance.one_of(kShapes);
}

// A layout that broadcasts to the domain: of fewer axes, of axes of one element, permuted, sliced,
// turned round, and often like the domain itself.
inline Layout random_layout(Chance& chance, const Shape& domain) {
  if (chance.once_in(2)) return Layout::contiguous(domain);
  if (chance.once_in(4)) return Layout::contiguous({});
  const size_t rank = domain.rank();
  const size_t left_out = chance.once_in(2) ? 0 : chance.below(rank + 1);
  Shape shape(domain.begin() + left_out, rank - left_out);
  for (size_t axis = 0; axis < shape.rank(); ++axis)
    if (chance.once_in(4)) shape[axis] = 1;
  std::vector<std::int64_t> order, back(shape.rank());
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    const auto at = static_cast<std::ptrdiff_t>(chance.once_in(2) ? axis : chance.below(axis + 1));
    order.insert(order.begin() + at, static_cast<std::int64_t>(axis));
  }
  std::vector<std::int64_t> factor(shape.rank(), 1);
  Shape stored;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto axis = static_cast<size_t>(order[i]);
    if (chance.once_in(4)) factor[axis] = 2;
    const auto gap = static_cast<std::int64_t>(chance.once_in(4) ? chance.below(4) : 0);
    stored.insert(i, shape[axis] * factor[axis] + gap);
    back[axis] = static_cast<std::int64_t>(i);
  }
  Layout layout = Layout::contiguous(stored).permute(Shape(back));
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t end = shape[axis] * factor[axis], step = factor[axis];
    const auto which = static_cast<std::int64_t>(axis);
    if (end > 0 && chance.once_in(6))
      layout = layout.slice(which, end - 1, -1, -step);
    else
      layout = layout.slice(which, 0, end, step);
  }
  return layout;
}

inline Storage random_storage(Chance& chance, const Layout& layout, Dtype dtype) {
  const size_t shift = chance.once_in(2) ? 0 : chance.below(4);
  Storage storage;
  storage.begin = layout.offset + static_cast<std::int64_t>(shift);
  const auto end = static_cast<size_t>(std::max<std::int64_t>(layout.span().end, 0));
  for (size_t i = 0; i < shift + end; ++i)
    storage.values.push_back(dtype == Dtype::boolean ? static_cast<float>(chance.below(2))
                                                     : chance.number());
  return storage;
}

inline bool is_comparison(Formula formula) {
  return formula == Formula::equal || formula == Formula::less || formula == Formula::less_equal;
}

// 1 to 8 inputs, 1 to 20 instructions of any formula, 1 to 3 outputs, now and then a reduction over
// the first axes or the last ones. The condition of a `select` is a bool or a comparison.
inline TestProgram random_program(std::uint64_t seed) {
  Chance chance(seed);
  TestProgram test;
  Program& program = test.program;
  program.domain = random_domain(chance);
  std::vector<std::uint8_t> truths;  // values that may be conditions
  for (size_t inputs = 1 + chance.below(chance.once_in(4) ? 8 : 4), i = 0; i < inputs; ++i) {
    const Dtype dtype = chance.once_in(6) ? Dtype::boolean : Dtype::f32;
    const Layout layout = random_layout(chance, program.domain);
    if (dtype == Dtype::boolean) truths.push_back(static_cast<std::uint8_t>(i));
    test.storages.push_back(random_storage(chance, layout, dtype));
    program.inputs.push_back({layout, dtype});
  }
  const auto any_value = [&] {
    const auto known = static_cast<size_t>(program.value_count());
    const size_t lately = std::min<size_t>(known, 4);
    return static_cast<std::uint8_t>(chance.once_in(3) ? chance.below(known)
                                                       : known - 1 - chance.below(lately));
  };
  for (size_t left = 1 + chance.below(20); left > 0; --left) {
    fusion::Instruction instruction{
        static_cast<Formula>(chance.below(fusion::kFormulaCount)), {}, 0};
    if (instruction.formula == Formula::select && truths.empty())
      instruction.formula = Formula::less;
    if (instruction.formula == Formula::number) instruction.number = chance.number();
    for (int k = 0; k < row_of(instruction.formula).inputs; ++k)
      instruction.values[k] = any_value();
    if (instruction.formula == Formula::select) instruction.values[0] = chance.one_of(truths);
    if (is_comparison(instruction.formula))
      truths.push_back(static_cast<std::uint8_t>(program.value_count()));
    program.code.push_back(instruction);
  }
  program.outputs.push_back(static_cast<std::uint8_t>(program.value_count() - 1));
  while (program.outputs.size() < fusion::kMaxOutputs && chance.once_in(3))
    program.outputs.insert(program.outputs.begin(), any_value());
  if (program.domain.rank() > 0 && chance.once_in(4)) {
    program.reduction = static_cast<Reduction>(1 + chance.below(3));
    const size_t rank = program.domain.rank(), axes = 1 + chance.below(rank);
    const auto mask = (1u << axes) - 1;
    program.axes = chance.once_in(2) ? mask : mask << (rank - axes);
  }
  test.output_shift = chance.once_in(2) ? 0 : chance.below(4);
  return test;
}

// ---- Who runs them ------------------------------------------------------------------------------

// The elements of each output, by the functions of 8.2 on the device `own`.
inline std::vector<Floats> run_separately(const TestProgram& test) {
  framework::Device& on = framework::device("own");
  const Program& program = test.program;
  std::vector<Tensor> values;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Storage& storage = test.storages[i];
    const auto count = static_cast<std::int64_t>(storage.values.size());
    Layout layout = program.inputs[i].layout;
    layout.offset = storage.begin;
    values.push_back(
        Tensor::from_host(on, storage.values, {count}).to(program.inputs[i].dtype).view(layout));
  }
  for (const fusion::Instruction& instruction : program.code) {
    if (instruction.formula == Formula::number) {
      values.push_back(framework::full(on, {}, static_cast<double>(instruction.number)));
      continue;
    }
    framework::Call call;
    call.op = &framework::op_named(row_of(instruction.formula).name);
    call.input_count = row_of(instruction.formula).inputs, call.output_count = 1;
    for (int k = 0; k < call.input_count; ++k) {
      const Tensor& value = values[instruction.values[k]];
      const bool is_condition = instruction.formula == Formula::select && k == 0;
      call.inputs[k] = is_condition ? value : value.to(Dtype::f32);
    }
    framework::run(call);
    values.push_back(call.outputs[0]);
  }
  std::vector<Floats> outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    Tensor value = values[program.outputs[i]].to(Dtype::f32).expand(program.domain).contiguous();
    Shape axes;
    for (size_t axis = 0; axis < program.domain.rank(); ++axis)
      if (program.axes >> axis & 1) axes.insert(axes.rank(), static_cast<std::int64_t>(axis));
    if (i + 1 == program.outputs.size()) {
      if (program.reduction == Reduction::sum) value = framework::sum(value, axes);
      if (program.reduction == Reduction::mean) value = framework::mean(value, axes);
      if (program.reduction == Reduction::max) value = framework::max(value, axes);
    }
    outputs.push_back(value.to_host<float>());
  }
  return outputs;
}

// How many elements each output has.
inline std::vector<size_t> output_sizes(const Program& program) {
  std::vector<size_t> sizes(program.outputs.size(), static_cast<size_t>(program.elements()));
  if (program.reduction == Reduction::none) return sizes;
  sizes.back() = 1;
  for (size_t axis = 0; axis < program.domain.rank(); ++axis)
    if ((program.axes >> axis & 1) == 0) sizes.back() *= static_cast<size_t>(program.domain[axis]);
  return sizes;
}

// The elements of each output as `work` makes them. Throws std::runtime_error where it writes
// beside them.
inline std::vector<Floats> run_fused(const fusion::ReadyWork& work, const TestProgram& test) {
  constexpr size_t kGuard = 64;
  constexpr float kPoison = 12345.678f;
  fusion::FusedArrays arrays;
  std::vector<DeviceBuffer<float>> floats;
  std::vector<DeviceBuffer<std::uint8_t>> bytes;
  for (size_t i = 0; i < test.storages.size(); ++i) {
    const Storage& storage = test.storages[i];
    if (test.program.inputs[i].dtype == Dtype::boolean) {
      bytes.emplace_back(std::vector<std::uint8_t>(storage.values.begin(), storage.values.end()));
      arrays.in[i] = bytes.back().data() + storage.begin;
    } else {
      floats.emplace_back(storage.values);
      arrays.in[i] = floats.back().data() + storage.begin;
    }
  }
  const std::vector<size_t> sizes = output_sizes(test.program);
  std::vector<DeviceBuffer<float>> outputs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    outputs.emplace_back(Floats(sizes[i] + 2 * kGuard, kPoison));
    arrays.out[i] = outputs.back().data() + kGuard / 2 + test.output_shift;
  }
  DeviceBuffer<std::uint8_t> workspace(work.workspace_bytes());
  arrays.workspace = workspace.data();
  work.run(arrays, nullptr);

  std::vector<Floats> results;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Floats all = outputs[i].to_host();
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kGuard / 2 + test.output_shift);
    const auto end = begin + static_cast<std::ptrdiff_t>(sizes[i]);
    const auto is_poison = [](float value) { return value == kPoison; };
    if (!std::all_of(all.begin(), begin, is_poison) || !std::all_of(end, all.end(), is_poison))
      throw std::runtime_error("output " + std::to_string(i) + ": written beside it");
    results.emplace_back(begin, end);
  }
  return results;
}

// "" where all bits are equal, but for those of a NaN, else the first element that differs.
inline std::string difference(const std::vector<Floats>& got, const std::vector<Floats>& want) {
  if (got.size() != want.size()) return "another number of outputs";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].size() != want[i].size()) return "another number of elements";
    for (size_t n = 0; n < got[i].size(); ++n) {
      if (std::isnan(got[i][n]) && std::isnan(want[i][n])) continue;
      if (std::memcmp(&got[i][n], &want[i][n], sizeof(float)) == 0) continue;
      char text[128];
      std::snprintf(text, sizeof text, "output %zu, element %zu: got %.9g, want %.9g", i, n,
                    static_cast<double>(got[i][n]), static_cast<double>(want[i][n]));
      return text;
    }
  }
  return "";
}

}  // namespace fusion_test
