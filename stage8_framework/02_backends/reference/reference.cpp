// The plug-in `reference`: every operation of kOps in plain loops, in double, for any strides. It
// is what an operation means, and what all other backends are compared with. It works in the memory
// of the host, and has done its work when run() returns.
#include <cstdlib>
#include <cstring>
#include <exception>

#include "stage8_framework/02_backends/c_tensor.h"
#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (const auto& part : {elementwise(), moves(), reductions(), products(), rows(), losses(),
                             convolutions(), attentions(), updates()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

// ---- Memory: the host's -------------------------------------------------------------------------

std::int32_t device_count() { return 1; }

std::int32_t open(std::int32_t, void** state, CourseError*) {
  *state = nullptr;  // it has nothing to remember
  return 0;
}
void close(void*) {}

std::int32_t allocate(void*, size_t bytes, void** block, CourseError* error) {
  constexpr size_t kAlignment = 256;
  *block = nullptr;
  if (bytes == 0) return 0;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded >= bytes) *block = std::aligned_alloc(kAlignment, rounded);
  return *block == nullptr ? framework::fail(error, -1, "out of memory on the host") : 0;
}
void free_block(void*, void* block) { std::free(block); }

std::int32_t copy_bytes(void*, void* to, const void* from, size_t bytes, void*, CourseError*) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return 0;
}

// ---- Operations ---------------------------------------------------------------------------------

std::int32_t find(void*, const char* name) {
  for (size_t i = 0; i < operations().size(); ++i)
    if (std::strcmp(operations()[i].name, name) == 0) return static_cast<std::int32_t>(i);
  return -1;
}

// Each operation has one kernel.
const char* kernel_name(void*, std::int32_t, std::int32_t kernel) {
  return kernel == 1 ? "loops" : nullptr;
}

// It takes every call whose shapes and types the row of kOps allows.
const char* supports(void*, const CourseCall*) { return nullptr; }
size_t workspace(void*, const CourseCall*) { return 0; }

std::int32_t run(void*, const CourseCall* call, void*, CourseError* error) {
  try {
    operations()[static_cast<size_t>(call->op)].run(Arguments(*call));
    return 0;
  } catch (const std::exception& exception) {  // no memory for sums
    return framework::fail(error, -1, exception.what());
  }
}

const CourseBackend kPlugin = [] {
  CourseBackend backend = {};
  backend.abi_version = COURSE_ABI_VERSION;
  backend.struct_bytes = sizeof(CourseBackend);
  backend.name = "reference";
  backend.memory = "host";
  backend.device_count = device_count;
  backend.open = open;
  backend.close = close;
  backend.allocate = allocate;
  backend.free = free_block;
  backend.to_device = copy_bytes;
  backend.to_host = copy_bytes;
  backend.find = find;
  backend.kernel_name = kernel_name;
  backend.supports = supports;
  backend.workspace = workspace;
  backend.run = run;
  return backend;
}();

}  // namespace
}  // namespace reference

extern "C" __attribute__((visibility("default"))) const CourseBackend* course_backend() {
  return &reference::kPlugin;
}
