// A program as the interpreter goes through it: its steps, and the slot in which each value waits
// until it is read. Plain C++.
//
// gelu((y * z + y) / 2) * z + y:                                         slot 0   slot 1
//
//   0  load z                                 kept for steps 2 and 6       z
//   1  load y                                 kept for steps 3 and 7       z        y
//   2  mul   the value before, slot 0                                      z        y
//   3  add   the value before, slot 1                                      z        y
//   4  div   the value before, the number 2                                z        y
//   5  gelu  the value before                                              z        y
//   6  mul   the value before, slot 0         z is read for the last time           y
//   7  add   the value before, slot 1         stored as output 0
//
// A value that only the next step reads, as its first operand, needs no slot. A slot is free again
// once its value is read for the last time: this is the linear scan over lifetimes that compilers
// assign registers with. (Poletto and Sarkar: Linear scan register allocation. TOPLAS 1999.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "stage8_framework/06_fusion/program.h"

namespace fusion {

inline constexpr int kSlots = 12;
inline constexpr int kMaxSteps = kMaxInputs + kMaxInstructions;

// Where an operand comes from: slot 0, 1, ..., the step's number for it, or the step before. That
// is what kBefore says of the first operand; of the others, that they are not there.
inline constexpr int kNumber = -1, kBefore = -2;
struct ReadFrom {
  std::int32_t slot = kBefore;
  float number = 0;
};
// What a step does: a Formula, where `number` passes its operand on, or this.
inline constexpr int kLoad = kFormulaCount;
inline constexpr int kNowhere = -1;

struct Step {
  std::int32_t code = kLoad;
  std::int32_t input = 0;      // of kLoad
  std::int32_t to = kNowhere;  // the slot that keeps the value
  std::uint32_t outputs = 0;   // bit i: stored as output i
  ReadFrom from[3];
};

struct Schedule {
  std::vector<Step> steps;
  int slots = 0;
};

namespace scheduling {

// The values that outputs are made of, in an order in which they can be made: inputs right before
// their first use, the first operand last. Numbers need no step, unless they are outputs.
inline std::vector<int> order_of(const Program& program) {
  const auto inputs = static_cast<int>(program.inputs.size());
  std::vector<bool> is_needed(static_cast<size_t>(program.value_count()));
  for (const std::uint8_t output : program.outputs) is_needed[output] = true;
  for (size_t i = program.code.size(); i-- > 0;)
    if (is_needed[program.inputs.size() + i])
      for (int k = 0; k < row_of(program.code[i].formula).inputs; ++k)
        is_needed[program.code[i].values[k]] = true;

  std::vector<int> order;
  const auto add_once = [&](int value) {
    if (std::find(order.begin(), order.end(), value) == order.end()) order.push_back(value);
  };
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    const int value = inputs + static_cast<int>(i);
    if (!is_needed[static_cast<size_t>(value)] || instruction.formula == Formula::number) continue;
    for (int k = row_of(instruction.formula).inputs; k-- > 0;)
      if (instruction.values[k] < inputs) add_once(instruction.values[k]);
    order.push_back(value);
  }
  for (const std::uint8_t output : program.outputs) add_once(output);
  return order;
}

}  // namespace scheduling

// Throws std::invalid_argument where a program needs more than kSlots slots.
inline Schedule schedule_of(const Program& program) {
  const auto inputs = static_cast<int>(program.inputs.size());
  const std::vector<int> order = scheduling::order_of(program);
  const auto count = static_cast<size_t>(program.value_count());
  const auto instruction_of = [&](int value) -> const Instruction* {
    return value < inputs ? nullptr : &program.code[static_cast<size_t>(value - inputs)];
  };
  const auto is_number = [&](int value) {
    return value >= inputs && instruction_of(value)->formula == Formula::number;
  };
  // Whether operand k of a step is the value that the step before has made.
  const auto is_before = [&](size_t step, int k, int value) {
    return k == 0 && step > 0 && order[step - 1] == value;
  };
  // Calls visit(k, value) for each operand of a step that is no number.
  const auto for_each_operand = [&](size_t step, auto visit) {
    const Instruction* made_by = instruction_of(order[step]);
    for (int k = 0; made_by != nullptr && k < row_of(made_by->formula).inputs; ++k)
      if (!is_number(made_by->values[k])) visit(k, made_by->values[k]);
  };

  // The last step that reads a value from a slot; -1: none does.
  std::vector<int> last(count, -1);
  for (size_t step = 0; step < order.size(); ++step)
    for_each_operand(step, [&](int k, int value) {
      if (!is_before(step, k, value)) last[static_cast<size_t>(value)] = static_cast<int>(step);
    });

  Schedule schedule;
  std::vector<int> slot_of(count, kNowhere);
  std::vector<bool> is_taken;  // by slot
  for (size_t step = 0; step < order.size(); ++step) {
    const int value = order[step];
    const auto v = static_cast<size_t>(value);
    const Instruction* made_by = instruction_of(value);
    Step made;
    if (made_by == nullptr) {
      made.input = value;
    } else if (made_by->formula == Formula::number) {
      made.code = static_cast<int>(Formula::number), made.from[0] = {kNumber, made_by->number};
    } else {
      made.code = static_cast<int>(made_by->formula);
      for (int k = 0; k < row_of(made_by->formula).inputs; ++k) {
        const int operand = made_by->values[k];
        if (is_number(operand)) made.from[k] = {kNumber, instruction_of(operand)->number};
      }
      for_each_operand(step, [&](int k, int operand) {
        if (is_before(step, k, operand)) return;
        const int slot = slot_of[static_cast<size_t>(operand)];
        made.from[k] = {slot, 0};
        if (last[static_cast<size_t>(operand)] == static_cast<int>(step))
          is_taken[static_cast<size_t>(slot)] = false;
      });
    }
    if (last[v] >= 0) {
      const auto free = std::find(is_taken.begin(), is_taken.end(), false);
      made.to = slot_of[v] = static_cast<int>(free - is_taken.begin());
      if (free == is_taken.end()) is_taken.push_back(true);
      is_taken[static_cast<size_t>(made.to)] = true;
    }
    for (size_t i = 0; i < program.outputs.size(); ++i)
      if (program.outputs[i] == value) made.outputs |= 1u << i;
    schedule.steps.push_back(made);
  }
  schedule.slots = static_cast<int>(is_taken.size());
  if (schedule.slots > kSlots)
    throw std::invalid_argument("interpreted: " + std::to_string(schedule.slots) +
                                " values wait at the same time, and there are " +
                                std::to_string(kSlots) + " slots");
  return schedule;
}

}  // namespace fusion
