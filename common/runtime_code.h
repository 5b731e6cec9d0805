// Source code that is compiled while the program runs, for the device that is the current one then.
//
//   CUDA   NVRTC               compiles, the driver loads    common/cuda/runtime_compiler.cpp
//   HIP    hiprtc              compiles, the runtime loads   common/hip/runtime_compiler.cpp
//   CPU    $CXX, g++, clang++  compiles, dlopen loads        common/cpu/runtime_compiler.cpp
//
// Options of $CXX come behind the usual ones, so that they count: CXX="g++ -O1".
//
// A text is compiled once in a process. What came of it is kept on the disk for later ones
// (common/code_cache.h). A kernel of the CPU backend is a function that does the work of one block:
//
//   extern "C" void name(unsigned block_x, unsigned block_y, const unsigned long long* arguments)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/gpu_runtime.h"

namespace runtime_code {

// What a kernel is given: addresses and whole numbers, 8 bytes each.
struct KernelArguments {
  static constexpr int kMost = 16;
  std::uint64_t values[kMost] = {};
  int count = 0;

  // Where each of them lies, as the launchers of GPUs want to know.
  std::array<void*, kMost> addresses() {
    std::array<void*, kMost> all{};
    for (int i = 0; i < count; ++i) all[static_cast<size_t>(i)] = &values[i];
    return all;
  }

  void add(const void* address) { add(std::uint64_t{reinterpret_cast<std::uintptr_t>(address)}); }
  void add(std::uint64_t number) { values[count++] = number; }
};

// A kernel of a module: what its backend calls a function.
using Kernel = void*;

// Code that is loaded on a device. It must outlive what it has queued.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  // Throws gpu::Error or std::runtime_error where there is no such kernel.
  virtual Kernel kernel(const std::string& name) const = 0;
  // Queues it. The CPU backend calls it once for each block and takes no notice of `block`. Throws
  // gpu::Error.
  virtual void launch(Kernel kernel, dim3 grid, dim3 block, const KernelArguments& arguments,
                      hipStream_t stream) const = 0;
};

struct Compiled {
  std::shared_ptr<const LoadedCode> module;
  std::string note;  // "compiled in 12.3 ms", "compiled, kept", "compiled in 9.8 ms, not kept: ..."
};

// Throws std::runtime_error, one line that says why, where there is no compiler or it refuses the
// text: "no compiler: libnvrtc.so is not found". Any thread may call it; one compiles at a time.
Compiled compile(const std::string& source);
// Several texts, each by a thread of its own. Throws what the first one throws that can't be had.
std::vector<Compiled> compile(const std::vector<std::string>& sources);

// Of how many texts many kernels are best made: as many as the compiler takes at the same time.
unsigned texts_at_once();

}  // namespace runtime_code
