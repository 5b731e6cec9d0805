// What the sanitizers must be told about fibers; nothing at all in other builds.
//
// AddressSanitizer has to know which stack is in use. ThreadSanitizer gets one of its own fibers
// per GPU thread, and an order between them only where HIP gives one: barriers, wave operations,
// the beginning and the end of a launch. Interfaces: sanitizer/common_interface_defs.h and
// sanitizer/tsan_interface.h of compiler-rt.
#pragma once

#include <atomic>
#include <cstddef>

#if defined(COURSE_SANITIZE_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(COURSE_SANITIZE_THREAD)
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace cpu {

// Released by every GPU thread that ends, acquired by the host when the launch has ended.
inline char launch_sync;
// How many launches ThreadSanitizer has seen.
inline std::atomic<unsigned> launch_number{0};

namespace sanitizer {

#if defined(COURSE_SANITIZE_THREAD)
inline constexpr bool kThreads = true;
inline void* current_fiber() { return __tsan_get_current_fiber(); }
inline void* create_fiber() { return __tsan_create_fiber(0); }
inline void destroy_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
// For its reports; the name is copied.
inline void name_fiber(void* fiber, const char* name) { __tsan_set_fiber_name(fiber, name); }
inline void start_switch(void**, const void*, size_t, void* fiber) {
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
inline void finish_switch(void*, const void**, size_t*) {}
inline void acquire(void* sync) {
  if (sync != nullptr) __tsan_acquire(sync);
}
inline void release(void* sync) { __tsan_release(sync); }
// While one lives, ThreadSanitizer does not look at what the thread reads and writes: what fibers
// share on purpose is also reached by functions that it knows, such as memmove and new.
class Unseen {
 public:
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};
#else
inline constexpr bool kThreads = false;
inline void* current_fiber() { return nullptr; }
inline void* create_fiber() { return nullptr; }
inline void destroy_fiber(void*) {}
inline void name_fiber(void*, const char*) {}
inline void acquire(void*) {}
inline void release(void*) {}
class Unseen {
 public:
  Unseen() {}
  ~Unseen() {}
};
#if defined(COURSE_SANITIZE_ADDRESS)
inline void start_switch(void** fake_stack, const void* stack, size_t bytes, void*) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
inline void finish_switch(void* fake_stack, const void** old_stack, size_t* old_bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, old_stack, old_bytes);
}
#else
inline void start_switch(void**, const void*, size_t, void*) {}
inline void finish_switch(void*, const void**, size_t*) {}
#endif
#endif

// A stack whose frames were given up without returning.
#if defined(COURSE_SANITIZE_ADDRESS)
inline void forget_frames(const void* stack, size_t bytes) {
  __asan_unpoison_memory_region(stack, bytes);
}
#else
inline void forget_frames(const void*, size_t) {}
#endif

}  // namespace sanitizer
}  // namespace cpu
