// Which backends there are, and devices by name. Plain C++ that knows no device.
//
//   libcourse_own.so     plug-in own     device("own"), device("own:1")
//   libcourse_mine.so    plug-in mine    device("own:mine"): the learner's build of own
#pragma once

#include <string>
#include <vector>

#include "stage8_framework/01_tensor/handle.h"
#include "stage8_framework/02_backends/abi.h"

namespace framework {

// A file libcourse_NAME.so, or a table that is in the program.
struct Plugin {
  std::string name, path, refused;       // refused: why it can't be used, "" where it can
  const CourseBackend* table = nullptr;  // nullptr where it is refused
};

// What was found in $COURSE_BACKENDS, a folder, in ../backends and ../../backends beside the
// running program, and where it was built, by name; the first of a name counts. Searched at the
// first call.
const std::vector<Plugin>& plugins();

// The plug-in of this name. Throws std::invalid_argument where there is none, std::runtime_error
// where it was refused.
const Plugin& usable_plugin(const std::string& name);

// A plug-in as one file has it. Throws nothing: see Plugin::refused.
Plugin load_plugin(const std::string& name, const std::string& path);

// Adds a backend that is in the program, which devices that are made from now on can use. Throws
// std::invalid_argument where its table is not of this program's version, or has a name that is
// taken.
void add_backend(const CourseBackend* table);

// "own", "own:1" (the number of a device), "own:mine" (of the plug-in mine). The same device each
// time; it is never destroyed. Throws std::invalid_argument, one line, for a plug-in or a number
// that is not there; std::runtime_error where the plug-in was refused; gpu::Error where it fails.
Device& device(const std::string& name);

// The same values on another device: a copy, or the tensor itself where it is there already. Done
// on return.
Tensor to(const Tensor& tensor, Device& device);
inline Tensor to(const Tensor& tensor, const std::string& name) { return to(tensor, device(name)); }

}  // namespace framework
