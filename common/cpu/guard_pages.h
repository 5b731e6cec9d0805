// Memory between two guard pages: stacks and shared memory. For common/cpu/*.cpp only.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace cpu {

inline constexpr size_t kPage = 4096;

// Ends the program where there is no memory.
inline char* map_with_guards(size_t bytes) {
  void* memory = mmap(nullptr, bytes + 2 * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "cpu backend: no memory for the stacks of a block\n");
    std::exit(1);
  }
  char* begin = static_cast<char*>(memory);
  mprotect(begin, kPage, PROT_NONE);
  mprotect(begin + kPage + bytes, kPage, PROT_NONE);
  return begin + kPage;
}

inline void unmap_with_guards(char* memory, size_t bytes) {
  munmap(memory - kPage, bytes + 2 * kPage);
}

}  // namespace cpu
