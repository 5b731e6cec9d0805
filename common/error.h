// The exception of a failed HIP call. Plain C++: common/check.h throws it, any main may catch it.
#pragma once

#include <stdexcept>
#include <string>

namespace gpu {

// what() reads "file:line: expression: name of the error (text)"; code is the hipError_t.
struct Error : std::runtime_error {
  Error(int error_code, const std::string& text) : std::runtime_error(text), code(error_code) {}
  int code;
};

// Throws Error. Compiled once, in check.cpp, so that HIP_CHECK costs its callers little.
[[noreturn]] void throw_error(int code, const char* name, const char* text, const char* expr,
                              const char* file, int line);

}  // namespace gpu
