// Three backends within the test, so that what is asked of a table, and when, can be seen. Their
// memory "fake" is the host's.
//
//   fake         memory; copy, cast, neg, add of contiguous f32, slow
//   fake_quick   no memory of its own; add of any strides; kernels naive and tiled
//   fake_none    no device
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "stage8_framework/02_backends/abi.h"
#include "stage8_framework/02_backends/c_tensor.h"
#include "stage8_framework/02_backends/registry.h"

namespace fake {

enum Op : std::int32_t { kAdd, kNeg, kCopy, kCast };

// What was done, and what shall go wrong next.
struct Record {
  int adds = 0, copies = 0, quick_adds = 0, kernel = -1;
  size_t workspace = 0;
  bool has_workspace = false;
  int fail_code = 0;  // of the next run(), or of a later one; -1: no error of a device
  int runs_before_failure = 0;
  bool is_out_of_memory = false;
};
inline Record record;

using framework::fail;

inline std::int32_t one_device() { return 1; }
inline std::int32_t no_device() { return 0; }
inline std::int32_t open(std::int32_t, void** state, CourseError*) {
  *state = &record;
  return 0;
}
inline void close(void*) {}
inline std::int32_t allocate(void*, size_t bytes, void** block, CourseError* error) {
  if (record.is_out_of_memory) return fail(error, 2, "out of memory");
  *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *block == nullptr ? fail(error, 2, "out of memory") : 0;
}
inline void release(void*, void* block) { std::free(block); }
inline std::int32_t move(void*, void* to, const void* from, size_t bytes, void*, CourseError*) {
  std::memcpy(to, from, bytes);
  return 0;
}

inline std::int32_t find(void*, const char* op) {
  const char* const names[] = {"add", "neg", "copy", "cast"};
  for (std::int32_t i = 0; i < 4; ++i)
    if (std::strcmp(names[i], op) == 0) return i;
  return -1;
}
inline std::int32_t find_add(void*, const char* op) {
  return find(nullptr, op) == kAdd ? kAdd : -1;
}
inline const char* no_kernel(void*, std::int32_t, std::int32_t) { return nullptr; }
inline const char* quick_kernel(void*, std::int32_t, std::int32_t kernel) {
  return kernel == 1 ? "naive" : kernel == 2 ? "tiled" : nullptr;
}

inline const char* supports_any(void*, const CourseCall* call) {
  return framework::is_of(call->inputs[0], framework::Dtype::f32) ? nullptr
                                                                  : "only f32 is supported";
}
inline const char* supports(void*, const CourseCall* call) {
  if (call->op == kCopy || call->op == kCast) return nullptr;
  for (int i = 0; i < call->input_count; ++i)
    if (!framework::is_contiguous(call->inputs[i])) return "inputs must be contiguous";
  return supports_any(nullptr, call);
}
inline size_t workspace(void*, const CourseCall*) { return record.workspace; }

// Element i in row-major order.
inline float& element(const CourseTensor& t, std::int64_t i) {
  std::int64_t place = 0;
  for (int axis = t.rank - 1; axis >= 0; i /= t.extent[axis--])
    place += i % t.extent[axis] * t.stride[axis];
  return framework::floats(t)[place];
}

inline std::int32_t run(void*, const CourseCall* call, void*, CourseError* error) {
  if (record.fail_code != 0 && record.runs_before_failure-- <= 0)
    return fail(error, std::exchange(record.fail_code, 0), "it broke");
  record.kernel = call->kernel;
  record.has_workspace = call->workspace != nullptr;
  const CourseTensor& out = call->outputs[0];
  const auto count = static_cast<std::int64_t>(framework::elements(out));
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = element(call->inputs[0], i);
    element(out, i) = call->op == kAdd   ? a + element(call->inputs[1], i)
                      : call->op == kNeg ? -a
                                         : a;
  }
  return 0;
}
inline std::int32_t run_slowly(void* state, const CourseCall* call, void* stream,
                               CourseError* error) {
  if (call->op == kAdd) {
    ++record.adds;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  record.copies += call->op == kCopy;
  return run(state, call, stream, error);
}
inline std::int32_t run_quickly(void* state, const CourseCall* call, void* stream,
                                CourseError* error) {
  ++record.quick_adds;
  return run(state, call, stream, error);
}

inline CourseBackend table(const char* name) {
  CourseBackend t{};
  t.abi_version = COURSE_ABI_VERSION, t.struct_bytes = sizeof t;
  t.name = name, t.memory = "fake";
  t.device_count = one_device, t.open = open, t.close = close;
  t.find = find_add, t.kernel_name = quick_kernel, t.supports = supports_any;
  t.workspace = workspace, t.run = run_quickly;
  return t;
}

// The device "fake", as new.
inline framework::Device& device() {
  static framework::Device& only = []() -> framework::Device& {
    static CourseBackend slow = table("fake"), quick = table("fake_quick"),
                         none = table("fake_none");
    slow.allocate = allocate, slow.free = release, slow.to_device = move;
    slow.to_host = [](void* state, void* host, const void* from, size_t bytes, void* stream,
                      CourseError* error) { return move(state, host, from, bytes, stream, error); };
    slow.find = find, slow.kernel_name = no_kernel, slow.supports = supports, slow.run = run_slowly;
    none.device_count = no_device, none.memory = "nothing";
    for (const CourseBackend* t : {&slow, &quick, &none}) framework::add_backend(t);
    return framework::device("fake");
  }();
  record = {};
  return only;
}

}  // namespace fake
