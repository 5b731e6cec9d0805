// Device memory that `own` keeps as long as the process lives: words and a constant that calls of
// all shapes share, 4 KB on each device. What a call works in is call.workspace.
//
//   losses.hip         where 3.3 leaves the row of a bad label, which nobody reads
//   updates.hip        how many blocks of 5.4's step are done: 0 between any two steps
//   transformer.cpp    a row of -0, of kKeptColumns
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/device_buffer.h"

namespace own {

// The memory of `Name` on the current device: `count` elements of T, which are `value` at the first
// call. It allocates then: a call that is captured must have run before. Calls that use it are
// queued on one stream.
template <class Name, class T>
T* kept(T value, size_t count = 1) {
  int device = 0;
  HIP_CHECK(hipGetDevice(&device));
  // Behind a call of the runtime: when the process ends, what was made first goes last.
  static std::map<int, gpu::DeviceBuffer<T>> of_devices;
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  gpu::DeviceBuffer<T>& found = of_devices[device];
  if (found.size() == 0) found = gpu::DeviceBuffer<T>(std::vector<T>(count, value));
  return found.data();
}

}  // namespace own
