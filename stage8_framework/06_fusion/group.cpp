#include "stage8_framework/06_fusion/group.h"

#include <algorithm>
#include <cstring>

namespace fusion {

namespace {

// The same elements in the same order: one after the other from the same place on, or the very
// same view.
bool is_same(const GraphTensor& a, const GraphTensor& b) {
  if (a.place != b.place || a.dtype != b.dtype) return false;
  if (a.layout == b.layout) return true;
  return a.layout.is_contiguous() && b.layout.is_contiguous() &&
         a.layout.offset == b.layout.offset && a.layout.elements() == b.layout.elements();
}

// A call that lies flat means the same under every shape of as many elements.
bool is_flat(const GraphCall& call) {
  const std::int64_t n = call.outputs[0].layout.elements();
  return std::all_of(call.inputs, call.inputs + call.input_count, [n](const GraphTensor& input) {
    const std::int64_t of_input = input.layout.elements();
    return of_input == 1 || (of_input == n && input.layout.is_contiguous());
  });
}

}  // namespace

bool Group::takes(const GraphCall& call) {
  const GraphTensor& out = call.outputs[0];
  const auto is_taken = [](const GraphTensor& t) {
    return t.dtype == Dtype::f32 || t.dtype == Dtype::boolean;
  };
  return call.op->formula != nullptr && call.kernel == 0 && formula_named(call.op->name) &&
         is_taken(out) && out.layout.is_contiguous() &&
         std::all_of(call.inputs, call.inputs + call.input_count, is_taken);
}

bool Group::is_full() const {
  return program_.inputs.size() > kMaxInputs || program_.code.size() > kMaxInstructions;
}

int Group::value_of(const GraphCall& call, int i, const Numbers& numbers) {
  const GraphTensor& input = call.inputs[i];
  for (auto found = written_.rbegin(); found != written_.rend(); ++found)
    if (found->tensor.place == input.place)
      return is_same(found->tensor, input) ? found->value : -1;
  if (const float* number = numbers.find(input.place)) {
    Instruction instruction;
    instruction.formula = Formula::number, instruction.number = *number;
    program_.code.push_back(instruction);
    number_places_.push_back(input.place);
    return program_.value_count() - 1;
  }
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (is_same(inputs_[k], input)) return static_cast<int>(k);
  // The values behind the inputs have a higher number now.
  const auto first = static_cast<std::uint8_t>(inputs_.size());
  const auto next = [first](std::uint8_t& value) { value += value >= first ? 1 : 0; };
  for (Instruction& instruction : program_.code)
    for (std::uint8_t& value : instruction.values) next(value);
  for (Value& written : written_) next(written.value);
  Layout layout = input.layout;
  const bool is_relabelled = layout.elements() == program_.elements() && layout.is_contiguous();
  if (is_relabelled) layout = Layout::contiguous(program_.domain);
  if (layout.elements() == 1) layout = Layout::contiguous({});
  inputs_.push_back(input);
  program_.inputs.push_back({layout, input.dtype});
  return first;
}

bool Group::join(const GraphCall& call, const Numbers& numbers) {
  if (is_reduced_ || (!is_empty() && call.seat != calls_[0].seat)) return false;
  const GraphTensor& out = call.outputs[0];
  const Shape& domain = out.layout.shape;
  if (!is_empty() && domain != program_.domain &&
      !(out.layout.elements() == program_.elements() && is_flat(call)))
    return false;
  Group grown = *this;
  if (is_empty()) grown.program_.domain = domain;
  Instruction instruction;
  instruction.formula = *formula_named(call.op->name);
  for (int i = 0; i < call.input_count; ++i) {
    const size_t inputs = grown.inputs_.size();
    const int value = grown.value_of(call, i, numbers);
    if (value < 0) return false;
    if (grown.inputs_.size() > inputs)  // values that were found before it have moved
      for (int k = 0; k < i; ++k) instruction.values[k] += instruction.values[k] >= inputs ? 1 : 0;
    instruction.values[i] = static_cast<std::uint8_t>(value);
  }
  grown.program_.code.push_back(instruction);
  if (grown.is_full()) return false;
  grown.written_.push_back({out, static_cast<std::uint8_t>(grown.program_.value_count() - 1)});
  grown.calls_.push_back(call);
  *this = std::move(grown);
  return true;
}

bool Group::join(const Group& other, const Numbers& numbers) {
  if (other.is_reduced_) return false;
  Group grown = *this;
  for (const GraphCall& call : other.calls_)
    if (!grown.join(call, numbers)) return false;
  *this = std::move(grown);
  return true;
}

bool Group::reduce(const GraphCall& call) {
  const auto named =
      std::find_if(std::begin(kReductions) + 1, std::end(kReductions),
                   [&](const char* name) { return std::strcmp(call.op->name, name) == 0; });
  if (is_reduced_ || named == std::end(kReductions) || call.kernel != 0 ||
      call.seat != calls_[0].seat || !call.outputs[0].layout.is_contiguous() ||
      call.outputs[0].dtype != Dtype::f32)
    return false;
  const GraphTensor& input = call.inputs[0];
  const auto read = std::find_if(written_.rbegin(), written_.rend(), [&](const Value& value) {
    return value.tensor.place == input.place;
  });
  if (read == written_.rend() || read->tensor.dtype != Dtype::f32 ||
      !(read->tensor.layout == input.layout) || input.layout.shape != program_.domain)
    return false;
  const auto axes = static_cast<std::uint32_t>(call.attributes[0]);
  const std::uint32_t all = (1u << program_.domain.rank()) - 1;
  const std::uint32_t kept = all & ~axes;
  const bool are_first = ((axes + 1) & axes) == 0, are_last = ((kept + 1) & kept) == 0;
  if (axes == 0 || (!are_first && !are_last)) return false;
  const std::uint8_t value = read->value;
  program_.reduction = static_cast<Reduction>(named - std::begin(kReductions));
  program_.axes = axes;
  written_.push_back({call.outputs[0], value});
  calls_.push_back(call);
  is_reduced_ = true;
  return true;
}

bool Group::reads(int place) const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [place](const GraphTensor& input) { return input.place == place; }) ||
         std::find(number_places_.begin(), number_places_.end(), place) != number_places_.end();
}
bool Group::writes(int place) const {
  return std::any_of(written_.begin(), written_.end(),
                     [place](const Value& value) { return value.tensor.place == place; });
}

Group::Made Group::made_of(std::vector<size_t> stored) const {
  if (is_reduced_) stored.push_back(written_.size() - 1);
  Made made{calls_.back(), program_};
  GraphCall& call = made.call;
  call.op = &framework::kFused, call.fused = nullptr, call.kernel = 0, call.workspace = 0;
  std::fill(std::begin(call.attributes), std::end(call.attributes), 0.0);
  call.input_count = static_cast<int>(inputs_.size());
  std::copy(inputs_.begin(), inputs_.end(), call.inputs);
  call.output_count = 0;
  const bool is_possible =
      stored.size() <= kMaxOutputs && std::all_of(stored.begin(), stored.end(), [&](size_t i) {
        return written_[i].tensor.dtype == Dtype::f32;
      });
  if (!is_possible) return made;
  for (const size_t i : stored) {
    call.outputs[call.output_count++] = written_[i].tensor;
    made.program.outputs.push_back(written_[i].value);
  }
  return made;
}

}  // namespace fusion
