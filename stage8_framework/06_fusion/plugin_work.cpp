#include "stage8_framework/06_fusion/plugin_work.h"

#include <set>
#include <stdexcept>

#include "common/error.h"
#include "stage8_framework/02_backends/plugin_device.h"

namespace fusion {

using framework::Seat;

namespace {

// All that tells two programs apart.
std::string key_of(const Program& program) {
  std::string key = program.text() + program.domain.text() + std::to_string(program.axes);
  for (const Input& input : program.inputs)
    key += name_of(input.dtype) + input.layout.shape.text() + input.layout.strides.text();
  for (const Instruction& instruction : program.code)  // text() rounds numbers
    key.append(reinterpret_cast<const char*>(&instruction.number), sizeof instruction.number);
  return key;
}

}  // namespace

void PluginWork::queue(const CourseCall& call, void* stream) const {
  CourseError error;
  if (seat_.table->fused_run(seat_.state, fused_, &call, stream, &error) != 0)
    framework::throw_error(error, "replay of " + text_ + " by " + seat_.name);
}

size_t PluginWorks::add(const Seat& seat, const Program& program) {
  const auto [known, is_new] = numbers_.insert({seat.name + " " + key_of(program), wanted_.size()});
  if (is_new) wanted_.push_back({&seat, program, nullptr});
  return known->second;
}

void PluginWorks::make(std::int32_t kernel, bool must_be_made) {
  std::set<const Seat*> seats;
  for (const Wanted& wanted : wanted_)
    if (seats.insert(wanted.seat).second) make_of(*wanted.seat, kernel, must_be_made);
}

void PluginWorks::make_of(const Seat& seat, std::int32_t kernel, bool must_be_made) {
  std::vector<Wanted*> asked;
  for (Wanted& wanted : wanted_)
    if (wanted.seat == &seat) asked.push_back(&wanted);
  const size_t count = asked.size();
  std::vector<CProgram> c(count);
  std::vector<CourseProgram> programs;
  std::vector<const CourseTensor*> inputs;
  for (size_t i = 0; i < count; ++i) {
    to_c(asked[i]->program, &c[i]);
    programs.push_back(c[i].program), inputs.push_back(c[i].inputs.data());
  }
  std::vector<void*> fused(count);
  std::vector<CourseError> errors(count);
  seat.table->fuse(seat.state, static_cast<std::int32_t>(count), programs.data(), inputs.data(),
                   kernel, fused.data(), errors.data());
  for (size_t i = 0; i < count; ++i)
    if (fused[i] != nullptr)
      asked[i]->work = std::make_shared<PluginWork>(seat, asked[i]->program.text(), fused[i]);
  for (size_t i = 0; i < count; ++i) try {
      if (fused[i] == nullptr)
        framework::throw_error(errors[i], seat.name + " can't fuse " + asked[i]->program.text());
    } catch (const gpu::Error&) {
      throw;
    } catch (const std::runtime_error&) {
      if (must_be_made) throw;
    }
}

}  // namespace fusion
