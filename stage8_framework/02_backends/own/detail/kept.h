// Workspaces of steps that own their memory: made at the first call of a shape, and kept.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/gpu_runtime.h"

namespace own {

using Sizes = std::array<size_t, 11>;

// The workspace of these sizes on the current device, from make() at the first call. It allocates
// then: a call that is captured must have run before. Calls that use it are queued on one stream.
template <class Workspace, class Make>
Workspace& kept(const Sizes& sizes, Make&& make) {
  int device = 0;
  HIP_CHECK(hipGetDevice(&device));
  // Behind a call of the runtime: when the process ends, what was made first goes last.
  static std::map<std::pair<int, Sizes>, std::unique_ptr<Workspace>> all;
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  std::unique_ptr<Workspace>& found = all[{device, sizes}];
  if (found == nullptr) found = std::make_unique<Workspace>(make());
  return *found;
}

}  // namespace own
