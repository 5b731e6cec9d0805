#include "stage8_framework/06_fusion/walks.h"

#include <stdexcept>

namespace fusion {

own::Axes<kMaxInputs> axes_of(const Program& program) {
  CourseTensor inputs[kMaxInputs] = {}, domain = {};
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Layout& layout = program.inputs[i].layout;
    inputs[i].extent = layout.shape.begin(), inputs[i].stride = layout.strides.begin();
    inputs[i].rank = static_cast<std::int32_t>(layout.shape.rank());
  }
  domain.extent = program.domain.begin();
  domain.rank = static_cast<std::int32_t>(program.domain.rank());
  return {inputs, domain};
}

Way way_of(const own::Axes<kMaxInputs>& axes, size_t input) {
  const std::int64_t* stride = axes.stride[input];
  Way way{true, true, true, axes.rank == 0 ? 0 : stride[axes.rank - 1]};
  std::int64_t flat = 1;
  for (int axis = axes.rank - 1; axis >= 0; flat *= axes.extent[axis--]) {
    way.is_one = way.is_one && stride[axis] == 0;
    way.is_flat = way.is_flat && stride[axis] == flat;
    way.is_wide =
        way.is_wide && (axis == axes.rank - 1 ? stride[axis] == 1 : stride[axis] % 4 == 0);
  }
  way.is_wide = !way.is_one && (way.is_wide || way.is_flat);
  return way;
}

void require_places(const Program& program, bool are_flat) {
  if (!are_flat && program.elements() >= std::int64_t{1} << 31)
    throw std::invalid_argument("fused: 2^31 elements or more must lie without gaps");
}

own::ReductionTask reduction_task_of(const Program& program) {
  const Layout layout = Layout::contiguous(program.domain);
  CourseTensor domain = {};
  domain.extent = layout.shape.begin(), domain.stride = layout.strides.begin();
  domain.rank = static_cast<std::int32_t>(layout.shape.rank());
  const own::ReductionTask task = own::task_of(domain, program.axes);
  if (!task.is_in_place())
    throw std::invalid_argument("fused: a reduction takes the first axes or the last ones");
  if (task.results * task.parts.count >= size_t{1} << 31)
    throw std::invalid_argument("fused: 2^31 results or more");
  return task;
}

own::Reduction reduction_of(const Program& program) {
  switch (program.reduction) {
    case Reduction::mean:
      return own::Reduction::mean;
    case Reduction::max:
      return own::Reduction::max;
    default:
      return own::Reduction::sum;
  }
}

}  // namespace fusion
