// NVRTC and the driver, both looked for when they are needed: a program is built without them, and
// runs without NVRTC.
#include "common/runtime_compiler.h"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/rtc.h"

namespace runtime_code {

namespace {

const rtc::Library& nvrtc() {
  static const rtc::Library once = [] {
    std::vector<std::string> names;
    for (const char* folder : {"", COURSE_TOOLKIT_LIBRARIES "/", "/usr/local/cuda/lib64/"})
      for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
        names.push_back(std::string(folder) + name);
    void* const library = rtc::opened(names);
    if (library == nullptr) throw std::runtime_error("no compiler: libnvrtc.so is not found");
    return rtc::library_of(library, "nvrtc", "CUBIN");
  }();
  return once;
}

// What the driver's functions take and return, as cuda.h has them: CUresult is an int.
struct Driver {
  int (*load)(void** module, const void* image);
  int (*unload)(void* module);
  int (*function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** arguments, void** extra);
  int (*error_name)(int error, const char** name);
  int (*error_string)(int error, const char** text);
};

const Driver& driver() {
  static const Driver once = [] {
    void* const library = rtc::opened({"libcuda.so.1"});
    if (library == nullptr) throw std::runtime_error("libcuda.so.1 is not found");
    Driver found{};
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
          rtc::function_of(library, name));
    };
    find(&found.load, "cuModuleLoadData");
    find(&found.unload, "cuModuleUnload");
    find(&found.function, "cuModuleGetFunction");
    find(&found.launch, "cuLaunchKernel");
    find(&found.error_name, "cuGetErrorName");
    find(&found.error_string, "cuGetErrorString");
    return found;
  }();
  return once;
}

#define DRIVER_CHECK(call, what) check_driver(call, what, __FILE__, __LINE__)
void check_driver(int error, const char* what, const char* file, int line) {
  if (error == 0) return;
  const char *name = "an unknown error", *text = "";
  static_cast<void>(driver().error_name(error, &name));
  static_cast<void>(driver().error_string(error, &text));
  gpu::throw_error(error, name, text, what, file, line);
}

class DriverModule : public LoadedCode {
 public:
  explicit DriverModule(const std::string& code) {
    HIP_CHECK(hipFree(nullptr));  // the runtime's context becomes the driver's current one
    DRIVER_CHECK(driver().load(&module_, code.data()), "cuModuleLoadData");
  }
  // May fail once the device is lost only.
  ~DriverModule() override { static_cast<void>(driver().unload(module_)); }
  DriverModule(const DriverModule&) = delete;
  DriverModule& operator=(const DriverModule&) = delete;

  Kernel kernel(const std::string& name) const override {
    void* function = nullptr;
    DRIVER_CHECK(driver().function(&function, module_, name.c_str()), "cuModuleGetFunction");
    return function;
  }
  void launch(Kernel kernel, dim3 grid, dim3 block, const KernelArguments& arguments,
              hipStream_t stream) const override {
    KernelArguments copied = arguments;
    DRIVER_CHECK(driver().launch(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0,
                                 stream, copied.addresses().data(), nullptr),
                 "cuLaunchKernel");
  }

 private:
  void* module_ = nullptr;
};

struct NvrtcVersion {
  int major = 0, minor = 0;
};
NvrtcVersion version_of_nvrtc() {
  NvrtcVersion version;
  static_cast<void>(nvrtc().version(&version.major, &version.minor));
  return version;
}

// A product and the sum behind it stay two roundings, as cmake/formulas.cmake has it for nvcc.
// Without textures, surfaces and the like, which no text here uses, NVRTC declares less before each
// text. --Ofast-compile=max saves a fifth of its time, 11 ms of 58 on an H100's host, and makes
// kernels that take six times as long.
std::vector<std::string> options() {
  constexpr int kFirstWithMinimal = 13;  // that was tried
  const int major = gpu::device_attribute(hipDeviceAttributeComputeCapabilityMajor);
  const int minor = gpu::device_attribute(hipDeviceAttributeComputeCapabilityMinor);
  std::vector<std::string> all{"-arch=sm_" + std::to_string(major) + std::to_string(minor),
                               "-std=c++17", "--fmad=false"};
  if (version_of_nvrtc().major >= kFirstWithMinimal) all.push_back("-minimal");
  return all;
}

}  // namespace

std::string compiler_identity() {
  const NvrtcVersion version = version_of_nvrtc();
  std::string identity =
      "nvrtc " + std::to_string(version.major) + "." + std::to_string(version.minor);
  for (const std::string& option : options()) identity += " " + option;
  return identity;
}

// NVRTC 12.4 and 13.0 compile in as many threads as call them.
unsigned texts_at_once() { return std::max(1u, std::thread::hardware_concurrency()); }

std::string code_of(const std::string& source) { return rtc::compiled(nvrtc(), source, options()); }

std::shared_ptr<const LoadedCode> loaded(const std::string& code) {
  return std::make_shared<DriverModule>(code);
}

}  // namespace runtime_code
