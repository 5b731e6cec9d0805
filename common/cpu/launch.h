// How a kernel runs on host threads: the part that must be compiled together with the kernel.
//
// The threads of a block run as a plain loop into which the compiler inlines the kernel, so a
// kernel without barriers is an ordinary, vectorised loop. A GPU thread that has to wait (at a
// barrier, in a wave operation) keeps the stack that it is on, and the loop goes on with the next
// thread on another stack, a fiber. Which fiber runs next is decided in block.cpp; blocks are
// spread over the host's threads in execute.cpp.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <type_traits>

#include "common/cpu/runtime_api.h"
#include "common/cpu/types.h"

#if defined(COURSE_SANITIZE_ADDRESS) || defined(COURSE_SANITIZE_THREAD)  // set by the presets
#define CPU_SANITIZED_FIBERS 1
#endif

// The built-in variables are set for each thread in turn, which ThreadSanitizer, to which every GPU
// thread is a thread of its own, would take for a race: it must not see who sets them.
#if defined(COURSE_SANITIZE_THREAD)
#define CPU_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#else
#define CPU_UNSEEN
#endif

// The built-in variables. Internal linkage and an address that nobody takes let the compiler keep
// them in registers. Everything that reads them must therefore be inlined into a kernel of the same
// file, which is what __device__ (always_inline) is for.
[[maybe_unused]] static thread_local uint3 threadIdx;
[[maybe_unused]] static thread_local uint3 blockIdx;
[[maybe_unused]] static thread_local uint3 blockDim;
[[maybe_unused]] static thread_local uint3 gridDim;

namespace cpu {

// Set where the current GPU thread has waited: its loop does not go on behind it.
[[maybe_unused]] static thread_local bool has_waited;

inline constexpr unsigned kWholeGrid = 0;  // blocks of a cooperative launch

// How blocks are begun.
struct Manner {
  unsigned together;  // so many neighbours along x run at the same time; kWholeGrid: all blocks do
  bool early;         // on a GPU before the launch before it has ended: common/early_launch_sm90.h
  constexpr Manner(unsigned blocks_together, bool is_early = false)
      : together(blocks_together), early(is_early) {}
};

// What one launch asks for, and the function that runs its threads.
struct Position {
  uint3 block, block_dim, grid_dim;
};
struct Range {
  unsigned finished;  // threads that have returned
  bool detached;      // the last of them had waited: other fibers run the threads behind it
};
struct Launch {
  const char* kernel;  // its name, for messages
  dim3 grid, block;
  size_t shared_bytes;
  hipStream_t stream;
  Manner manner;
  Range (*run)(const void* body, const Position& position, unsigned first, unsigned last);
  size_t body_bytes;
};

extern int device_count;  // 1 until the environment has been read

// Runs threads [first, last) of one block, numbered x fastest, up to the first that has to wait.
template <class Body>
CPU_UNSEEN Range run_threads(const void* body, const Position& position, unsigned first,
                             unsigned last) {
  const Body kernel = *static_cast<const Body*>(body);  // a copy that no kernel can alias
  const uint3 size = position.block_dim, block = position.block;
  // Promises that let the compiler see that a global index does not wrap.
  if (size.x > 1024 || block.x > 2147483647u) __builtin_unreachable();
  blockIdx = block, blockDim = size, gridDim = position.grid_dim;
  has_waited = false;
  unsigned x = first % size.x, y = first / size.x % size.y, z = first / size.x / size.y;
  for (unsigned done = 0;;) {
    const unsigned left = last - first - done;
    const unsigned row = left < size.x - x ? left : size.x - x, end = x + row;
    if (end > 1024) __builtin_unreachable();  // so that an index made of it is known not to wrap
    threadIdx.y = y, threadIdx.z = z;
    for (unsigned i = x; i < end; ++i) {
      threadIdx.x = i;
      kernel();
      if (has_waited) return {done + i - x + 1, true};
    }
    done += row;
    if (first + done == last) return {done, false};
    x = 0;
    if (++y == size.y) y = 0, ++z;
  }
}

// The rest of a launch, in execute.cpp. Checks it as a device would, and that the pointers among
// the kernel's arguments are the device's. A refusal is left for hipGetLastError, as HIP leaves it.
bool check_launch(const Launch& launch, const void* const* pointers, int count);
// Runs the kernel to its end. What goes wrong inside is reported by the next call that waits.
void execute(const Launch& launch, const void* body);
// The same as a node of the graph that launch.stream is capturing, with a copy of the body's bytes.
void execute_later(const Launch& launch, const void* body);

// Bytes that belong to no argument must not look like a pointer to another device's memory.
template <class Body>
void clear_padding([[maybe_unused]] Body* body) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(body);
#endif
#endif
}

template <class Argument>
void collect_pointer(const void** pointers, int* count, const Argument& argument) {
  if constexpr (std::is_pointer_v<Argument>)
    if constexpr (!std::is_function_v<std::remove_pointer_t<Argument>>)
      pointers[(*count)++] = argument;
}

template <class Kernel, class... Arguments>
void launch(const char* name, dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream,
            Manner manner, Kernel kernel, Arguments... arguments) {
  auto body = [=] { kernel(arguments...); };
  using Body = decltype(body);
  static_assert(std::is_trivially_copyable_v<Body> && alignof(Body) <= alignof(std::max_align_t),
                "a kernel's arguments reach a GPU as bytes");
  const Launch launch{name,       grid, block, shared_bytes, stream, manner, &run_threads<Body>,
                      sizeof body};
  const void* pointers[sizeof...(Arguments) + 1] = {};
  int count = 0;
  (collect_pointer(pointers, &count, arguments), ...);
  if (!check_launch(launch, pointers, count)) return;
  if (device_count > 1) clear_padding(&body);
  if (is_capturing(stream))
    execute_later(launch, &body);
  else
    execute(launch, &body);
}

// The same for LAUNCH_ON_CPU, which calls the result with the arguments: there may be none.
template <class Kernel>
auto launcher(const char* name, dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream,
              Manner manner, Kernel kernel) {
  return [=](auto... arguments) {
    launch(name, grid, block, shared_bytes, stream, manner, kernel, arguments...);
  };
}

// ---- Waiting ----------------------------------------------------------------------------------

using Context = boost::context::detail::fcontext_t;

// Where a call in the source stands: what messages name.
struct Site {
  const char* file;
  int line;
  const char* what;  // "__syncthreads()"
};

// What a thread that arrives somewhere does next: nothing (it was the last one awaited), or jump to
// another fiber and leave its own context in *from.
struct Switch {
  Context to;
  Context* from;
};

#if defined(CPU_SANITIZED_FIBERS)
void jump(const Switch& next);  // tells the sanitizer that the stack changes
#else
// The jump stands in the kernel itself, so that the processor learns where each waiting place
// leads.
__attribute__((always_inline)) inline void jump(const Switch& next) {
  const auto came_from = boost::context::detail::jump_fcontext(next.to, next.from);
  *static_cast<Context*>(came_from.data) = came_from.fctx;
}
#endif

extern __thread bool block_aborted;  // the block can't go on: its threads unwind
[[noreturn]] void throw_aborted();

CPU_UNSEEN static inline void go_on_as(uint3 self) {
  threadIdx = self;
  has_waited = true;
}

// Waits, if `next` says so, and puts the built-in variables back as this thread knew them.
__attribute__((always_inline)) static inline void wait(const Switch& next, uint3 self) {
  if (next.to != nullptr) {
    jump(next);
    go_on_as(self);
  }
  if (__builtin_expect(block_aborted, false)) throw_aborted();
}

__attribute__((always_inline)) static inline unsigned thread_number(uint3 self) {
  return self.x + blockDim.x * (self.y + blockDim.y * self.z);
}

}  // namespace cpu
