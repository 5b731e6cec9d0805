// What a backend does for common/runtime_code.h: runtime_compiler.cpp of its folder. All of it is
// for the current device.
#pragma once

#include <memory>
#include <string>

#include "common/runtime_code.h"

namespace runtime_code {

// What a compiler that is a process of its own may take; it is ended then. A test lowers it.
inline double seconds_of_a_compiler = 30;

// The compiler with its version and options, and the device's architecture: other code is made
// where one of them is another. Throws std::runtime_error where there is no compiler.
std::string compiler_identity();
// The code of a text. Throws std::runtime_error with the first line of the compiler's complaint.
// Several threads may call it at the same time.
std::string code_of(const std::string& source);
// Throws gpu::Error or std::runtime_error where it can't be loaded.
std::shared_ptr<const LoadedCode> loaded(const std::string& code);

}  // namespace runtime_code
