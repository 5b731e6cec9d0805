// The plug-in `vendor`: the libraries that the makers of the hardware write, as far as CMake has
// found them. It works in the memory of `own`, on device 0: the libraries' handles belong to one
// device.
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>

#include "common/gpu_runtime.h"
#include "stage8_framework/02_backends/vendor/vendor.h"

namespace vendor {
namespace {

constexpr Operation kOperations[] = {
#if defined(COURSE_VENDOR_BLAS)
    {"matmul", COURSE_VENDOR_BLAS, supports_matmul, run_matmul},
    {"linear", COURSE_VENDOR_BLAS, supports_linear, run_linear},
#endif
#if defined(COURSE_VENDOR_DNN)
    {"conv2d", COURSE_VENDOR_DNN, supports_conv2d, run_conv2d},
#endif
#if defined(COURSE_VENDOR_ROWS)
    {"softmax", COURSE_VENDOR_ROWS, supports_softmax, run_softmax},
#endif
};
constexpr int kCount = static_cast<int>(std::size(kOperations));

std::mutex one_at_a_time;  // a library's handle has one stream and one workspace

std::int32_t device_count() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess && count > 0 ? 1 : 0;
}

std::int32_t open(std::int32_t device, void** state, CourseError* error) {
  if (device != 0) return framework::fail(error, -1, "vendor works on device 0 alone");
  static int opened;
  *state = &opened;
  return 0;
}

void close(void*) {}

std::int32_t find(void*, const char* op) {
  for (int i = 0; i < kCount; ++i)
    if (std::strcmp(kOperations[i].name, op) == 0) return i;
  return -1;
}

const char* kernel_name(void*, std::int32_t op, std::int32_t kernel) {
  return kernel == 1 ? kOperations[op].library : nullptr;
}

// Why a tensor is none that the libraries take, or nullptr.
const char* refusal(const CourseTensor& tensor) {
  if (is_absent(tensor)) return nullptr;
  if (!framework::is_of(tensor, framework::Dtype::f32)) return "only f32 is supported";
  return framework::elements(tensor) == 0 ? "an extent is 0" : nullptr;
}

const char* supports(void*, const CourseCall* call) {
  for (int i = 0; i < call->input_count; ++i)
    if (const char* reason = refusal(call->inputs[i])) return reason;
  for (int i = 0; i < call->output_count; ++i) {
    if (const char* reason = refusal(call->outputs[i])) return reason;
    if (!is_contiguous(call->outputs[i])) return "outputs must be row-major without gaps";
  }
  return kOperations[call->op].supports(*call);
}

std::size_t workspace(void*, const CourseCall*) { return 0; }

std::int32_t run(void*, const CourseCall* call, void* stream, CourseError* error) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  try {
    HIP_CHECK(hipSetDevice(0));
    kOperations[call->op].run(*call, stream);
    return 0;
  } catch (const gpu::Error& failed) {
    return framework::fail(error, failed.code, failed.what());
  } catch (const std::exception& failed) {
    return framework::fail(error, -1, failed.what());
  } catch (...) {  // a library may throw anything
    return framework::fail(error, -1, "the library threw what is no std::exception");
  }
}

constexpr CourseBackend make_table() {
  CourseBackend table{};
  table.abi_version = COURSE_ABI_VERSION, table.struct_bytes = sizeof(CourseBackend);
  table.name = "vendor", table.memory = gpu::kBackend;
  table.device_count = device_count, table.open = open, table.close = close;
  table.find = find, table.kernel_name = kernel_name, table.supports = supports;
  table.workspace = workspace, table.run = run;
  return table;
}
constexpr CourseBackend kTable = make_table();

}  // namespace
}  // namespace vendor

extern "C" __attribute__((visibility("default"))) const CourseBackend* course_backend() {
  return &vendor::kTable;
}
