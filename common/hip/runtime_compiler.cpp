// hiprtc, which old releases have in the runtime's own library, and the runtime's modules.
#include "common/runtime_compiler.h"

#include <stdexcept>
#include <vector>

#include "common/rtc.h"

namespace runtime_code {

namespace {

const rtc::Library& hiprtc() {
  static const rtc::Library once = [] {
    const std::string major = std::to_string(HIP_VERSION_MAJOR);
    void* const library =
        rtc::opened({"libhiprtc.so." + major, "libhiprtc.so", "libamdhip64.so." + major});
    if (library == nullptr) throw std::runtime_error("no compiler: libhiprtc.so is not found");
    return rtc::library_of(library, "hiprtc", "Code");
  }();
  return once;
}

class HipModule : public LoadedCode {
 public:
  explicit HipModule(const std::string& code) {
    HIP_CHECK(hipModuleLoadData(&module_, code.data()));
  }
  // May fail once the device is lost only.
  ~HipModule() override { static_cast<void>(hipModuleUnload(module_)); }
  HipModule(const HipModule&) = delete;
  HipModule& operator=(const HipModule&) = delete;

  Kernel kernel(const std::string& name) const override {
    hipFunction_t function = nullptr;
    HIP_CHECK(hipModuleGetFunction(&function, module_, name.c_str()));
    return function;
  }
  void launch(Kernel kernel, dim3 grid, dim3 block, const KernelArguments& arguments,
              hipStream_t stream) const override {
    KernelArguments copied = arguments;
    HIP_CHECK(hipModuleLaunchKernel(static_cast<hipFunction_t>(kernel), grid.x, grid.y, grid.z,
                                    block.x, block.y, block.z, 0, stream, copied.addresses().data(),
                                    nullptr));
  }

 private:
  hipModule_t module_ = nullptr;
};

// A product and the sum behind it stay two roundings, as cmake/formulas.cmake has it for hipcc.
std::vector<std::string> options() {
  int device = 0;
  hipDeviceProp_t properties{};
  HIP_CHECK(hipGetDevice(&device));
  HIP_CHECK(hipGetDeviceProperties(&properties, device));
  return {std::string("--offload-arch=") + properties.gcnArchName, "-O3", "-std=c++17",
          "-ffp-contract=off"};
}

}  // namespace

std::string compiler_identity() {
  int major = 0, minor = 0;
  static_cast<void>(hiprtc().version(&major, &minor));
  std::string identity = "hiprtc " + std::to_string(major) + "." + std::to_string(minor) + " of " +
                         std::to_string(HIP_VERSION);
  for (const std::string& option : options()) identity += " " + option;
  return identity;
}

unsigned texts_at_once() { return 1; }  // more were not tried

std::string code_of(const std::string& source) {
  return rtc::compiled(hiprtc(), source, options());
}

std::shared_ptr<const LoadedCode> loaded(const std::string& code) {
  return std::make_shared<HipModule>(code);
}

}  // namespace runtime_code
