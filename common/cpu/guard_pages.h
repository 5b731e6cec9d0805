// Memory between two guard pages: stacks and shared memory. For common/cpu/*.cpp only.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace cpu {

// Whole pages on every machine: 4, 16 or 64 KiB. So long is also the guard that compilers expect
// below a stack on aarch64, where they touch only every 64 KiB of a large frame. It is address
// space, no memory.
inline constexpr size_t kGuard = 64 * 1024;

// Ends the program where there is no memory.
inline char* map_with_guards(size_t bytes) {
  void* memory = mmap(nullptr, bytes + 2 * kGuard, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "cpu backend: no memory for the stacks of a block\n");
    std::exit(1);
  }
  char* begin = static_cast<char*>(memory);
  mprotect(begin, kGuard, PROT_NONE);
  mprotect(begin + kGuard + bytes, kGuard, PROT_NONE);
  return begin + kGuard;
}

inline void unmap_with_guards(char* memory, size_t bytes) {
  munmap(memory - kGuard, bytes + 2 * kGuard);
}

}  // namespace cpu
