// The memory of the machine, as far as this process may take it. Implemented in host_memory.cpp.
#pragma once

#include <cstddef>
#include <string>

namespace host {

struct MemoryLimit {
  std::size_t total, available;  // bytes
};

// What the machine has, or less where a control group (a container) or RLIMIT_AS says so; total is
// 0 where the system does not say.
MemoryLimit memory();

// The value of the first "key : value" line of a file in /proc, or an empty string.
std::string proc_value(const char* file, const std::string& key);

}  // namespace host
