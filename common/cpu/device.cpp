// The devices that the CPU backend pretends to be: their properties, limits and memory.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "common/cpu/internal.h"
#include "common/host_memory.h"

namespace cpu {

namespace {

constexpr int kVersion = 1000;  // 1.0, as CUDA counts
constexpr int kMaxBlocksPerMultiprocessor = 32;

// A variable that is a number from 1 to 1024, or `otherwise` where it is not set.
int count_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || count < 1 || count > 1024)
    refuse(variable, text, "a number from 1 to 1024");
  return static_cast<int>(count);
}

// A variable that is 0 or 1; not set counts as 0.
bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return false;
  if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0)
    refuse(variable, value, "0 or 1");
  return *value == '1';
}

Device make_device() {
  Device d;
  d.threads = count_of("HIP_CPU_THREADS",  // else as many as the process may run on
                       static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  d.multiprocessors = count_of("HIP_CPU_MULTIPROCESSORS", d.threads);
  d.blocks = count_of("HIP_CPU_BLOCKS", d.blocks);
  std::string processor = host::proc_value("/proc/cpuinfo", "model name");
  if (utsname system; processor.empty() && uname(&system) == 0)  // as on aarch64
    processor = std::string(system.machine) + " CPU";
  d.name =
      processor + " (" + std::to_string(d.threads) + (d.threads == 1 ? " thread)" : " threads)");
  if (const char* wave = std::getenv("HIP_CPU_WAVE"); wave != nullptr && *wave != '\0') {
    if (std::strcmp(wave, "32") != 0 && std::strcmp(wave, "64") != 0)
      refuse("HIP_CPU_WAVE", wave, "32 or 64");
    d.wave = std::atoi(wave);
  }
  d.strict = is_set("HIP_CPU_STRICT");
  d.poison = is_set("HIP_CPU_POISON");
  if (const char* guard = std::getenv("HIP_CPU_GUARD"); guard != nullptr && *guard != '\0') {
    const std::string where = guard;
    if (where != "end" && where != "exact" && where != "begin")
      refuse("HIP_CPU_GUARD", guard, "end, exact or begin");
    d.guard = where == "end"     ? Device::Guard::end
              : where == "exact" ? Device::Guard::exact
                                 : Device::Guard::begin;
  }
  return d;
}

int count_devices() {
  const char* text = std::getenv("HIP_CPU_DEVICES");
  if (text == nullptr || *text == '\0') return 1;
  if (text[0] < '1' || text[0] > '0' + kMaxDevices || text[1] != '\0')
    refuse("HIP_CPU_DEVICES", text, "a number from 1 to 8");
  return text[0] - '0';
}

// The peers of each device, one way: bit b of peers[a] lets kernels of a use b's memory.
std::atomic<DeviceSet> peers[kMaxDevices];

int last_level_cache_bytes() {
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(level); bytes > 0)
      return static_cast<int>(std::min(bytes, 2147483647L));
  return 0;
}

// Every call that names a device begins here.
hipError_t check_device(int device_number) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  return set_error(exists(device_number) ? hipSuccess : hipErrorInvalidDevice);
}

// The same for calls that name another device than the current one.
hipError_t check_peer(int device_number) {
  if (const hipError_t error = check_device(device_number); error != hipSuccess) return error;
  return set_error(device_number != current_device() ? hipSuccess : hipErrorInvalidDevice);
}

}  // namespace

void refuse(const char* variable, const char* value, const char* allowed) {
  std::fflush(nullptr);
  std::fprintf(stderr, "cpu backend: %s=%s: must be %s\n", variable, value, allowed);
  std::_Exit(2);
}

int lanes_per_wave = 0;
int device_count = 1;
__thread int current_device_number = 0;

const Device& device() {
  static const Device* const instance = [] {
    const Device* opened = new Device(make_device());
    lanes_per_wave = opened->wave;
    device_count = count_devices();
    return opened;
  }();
  return *instance;
}

bool exists(int device_number) {
  static_cast<void>(device());
  return device_number >= 0 && device_number < device_count;
}

DeviceSet reachable_from(int device) { return 1u << device | peers[device]; }

unsigned most_blocks() { return static_cast<unsigned>(device().blocks); }

size_t available_memory() { return host::memory().available; }
size_t total_memory() { return host::memory().total; }

static std::atomic<size_t> asked_shared_bytes{Device::kMaxSharedBytes};
size_t allowed_shared_bytes() { return asked_shared_bytes; }
bool ask_for_shared_bytes(int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > Device::kMostSharedBytes) return false;
  const size_t asked = static_cast<size_t>(bytes);
  size_t before = asked_shared_bytes;
  while (before < asked && !asked_shared_bytes.compare_exchange_weak(before, asked)) {
  }
  return true;
}

// Kernels have no registers to run out of here, so which one it is does not matter.
hipError_t occupancy(int* blocks, const void*, int block_size, size_t dynamic_shared_bytes) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (blocks == nullptr || block_size <= 0) return set_error(hipErrorInvalidValue);
  *blocks = 0;  // a block that is too large never runs
  if (block_size > Device::kMaxThreadsPerBlock || dynamic_shared_bytes > Device::kMaxSharedBytes)
    return hipSuccess;
  const int wave = device().wave;
  const int threads = (block_size + wave - 1) / wave * wave;
  *blocks = std::min(kMaxBlocksPerMultiprocessor, Device::kMaxThreadsPerMultiprocessor / threads);
  if (dynamic_shared_bytes != 0)
    *blocks = std::min(*blocks, static_cast<int>(Device::kMaxSharedBytes / dynamic_shared_bytes));
  return hipSuccess;
}

hipError_t best_block_size(int* min_grid_size, int* block_size, const void* kernel,
                           size_t dynamic_shared_bytes, int block_size_limit) {
  if (min_grid_size == nullptr || block_size == nullptr || block_size_limit < 0)
    return set_error(hipErrorInvalidValue);
  int limit = Device::kMaxThreadsPerBlock;
  if (block_size_limit != 0) limit = std::min(limit, block_size_limit);
  int best_threads = 0, best_blocks = 0;
  const int step = std::min(device().wave, limit);
  for (int size = step; size <= limit; size += step) {
    int blocks = 0;
    if (const hipError_t error = occupancy(&blocks, kernel, size, dynamic_shared_bytes);
        error != hipSuccess)
      return error;
    if (blocks * size < best_threads) continue;
    best_threads = blocks * size, best_blocks = blocks;
    *block_size = size;
  }
  *min_grid_size = best_blocks * device().multiprocessors;
  return hipSuccess;
}

}  // namespace cpu

using cpu::Device;
using cpu::set_error;

hipError_t hipGetDeviceCount(int* count) {
  if (count == nullptr) return set_error(hipErrorInvalidValue);
  static_cast<void>(cpu::device());
  *count = cpu::device_count;
  return cpu::device_state();
}

hipError_t hipGetDevice(int* device) {
  if (device == nullptr) return set_error(hipErrorInvalidValue);
  *device = cpu::current_device();
  return cpu::device_state();
}

// A lost device can be made the current one, to reset it, but the call says that it is lost.
hipError_t hipSetDevice(int device) {
  if (!cpu::exists(device)) return set_error(hipErrorInvalidDevice);
  cpu::current_device_number = device;
  return cpu::device_state();
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  if (const hipError_t error = cpu::check_device(device); error != hipSuccess) return error;
  if (properties == nullptr) return set_error(hipErrorInvalidValue);
  hipDeviceProp_t p{};
  std::string name = cpu::device().name;
  const std::string which = std::to_string(device) + " of " + std::to_string(cpu::device_count);
  if (cpu::device_count > 1) name += ", device " + which;
  std::snprintf(p.name, sizeof p.name, "%s", name.c_str());
  p.totalGlobalMem = cpu::total_memory() / static_cast<size_t>(cpu::device_count);
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = Device::kMaxSharedBytes;
  p.regsPerBlock = 65536;
  p.warpSize = cpu::device().wave;
  p.maxThreadsPerBlock = Device::kMaxThreadsPerBlock;
  std::copy(Device::kMaxBlockDim, Device::kMaxBlockDim + 3, p.maxThreadsDim);
  std::copy(Device::kMaxGridDim, Device::kMaxGridDim + 3, p.maxGridSize);
  p.totalConstMem = 65536;
  p.major = 1, p.minor = 0;
  p.multiProcessorCount = cpu::device().multiprocessors;
  p.maxThreadsPerMultiProcessor = Device::kMaxThreadsPerMultiprocessor;
  p.l2CacheSize = cpu::last_level_cache_bytes();
  p.memoryBusWidth = 0;
  p.concurrentKernels = 0;
  p.integrated = 1;
  p.cooperativeLaunch = 1;
  *properties = p;
  return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  if (const hipError_t error = cpu::check_device(device); error != hipSuccess) return error;
  if (value == nullptr) return set_error(hipErrorInvalidValue);
  switch (attribute) {
    case hipDeviceAttributeComputeCapabilityMajor:
      *value = 1;
      break;
    case hipDeviceAttributeComputeCapabilityMinor:
      *value = 0;
      break;
    case hipDeviceAttributeWarpSize:
      *value = cpu::device().wave;
      break;
    case hipDeviceAttributeMultiprocessorCount:
      *value = cpu::device().multiprocessors;
      break;
    case hipDeviceAttributeMaxThreadsPerBlock:
      *value = Device::kMaxThreadsPerBlock;
      break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor:
      *value = Device::kMaxThreadsPerMultiprocessor;
      break;
    case hipDeviceAttributeMaxBlockDimX:
      *value = Device::kMaxBlockDim[0];
      break;
    case hipDeviceAttributeMaxBlockDimY:
      *value = Device::kMaxBlockDim[1];
      break;
    case hipDeviceAttributeMaxBlockDimZ:
      *value = Device::kMaxBlockDim[2];
      break;
    case hipDeviceAttributeMaxGridDimX:
      *value = Device::kMaxGridDim[0];
      break;
    case hipDeviceAttributeMaxGridDimY:
      *value = Device::kMaxGridDim[1];
      break;
    case hipDeviceAttributeMaxGridDimZ:
      *value = Device::kMaxGridDim[2];
      break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(Device::kMaxSharedBytes);
      break;
    case hipDeviceAttributeMaxRegistersPerBlock:
    case hipDeviceAttributeTotalConstantMemory:
      *value = 65536;
      break;
    case hipDeviceAttributeL2CacheSize:
      *value = cpu::last_level_cache_bytes();
      break;
    case hipDeviceAttributeClockRate:  // unknown, as on GPUs that do not tell
    case hipDeviceAttributeMemoryClockRate:
    case hipDeviceAttributeMemoryBusWidth:
    case hipDeviceAttributeConcurrentKernels:
      *value = 0;
      break;
    case hipDeviceAttributeIntegrated:
    case hipDeviceAttributeCooperativeLaunch:
    case hipDeviceAttributeMemoryPoolsSupported:
    case hipDeviceAttributeUnifiedAddressing:
      *value = 1;
      break;
    default:
      return set_error(hipErrorInvalidValue);
  }
  return hipSuccess;
}

hipError_t hipDeviceSynchronize() {
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::device_wait();
}

hipError_t hipDeviceReset() {
  cpu::destroy_all_handles();
  cpu::free_all_memory();
  cpu::forget_errors();
  const cpu::DeviceSet self = 1u << cpu::current_device();
  for (std::atomic<cpu::DeviceSet>& set : cpu::peers) set &= ~self;
  cpu::peers[cpu::current_device()] = 0;
  return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int* version) {
  if (version == nullptr) return set_error(hipErrorInvalidValue);
  *version = cpu::kVersion;
  return cpu::device_state();
}

hipError_t hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }

hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (free_bytes == nullptr || total_bytes == nullptr) return set_error(hipErrorInvalidValue);
  const host::MemoryLimit limit = host::memory();
  *free_bytes = limit.available, *total_bytes = limit.total;
  static_cast<void>(cpu::device());
  if (cpu::device_count == 1) return hipSuccess;
  *total_bytes = limit.total / static_cast<size_t>(cpu::device_count);
  const size_t left = *total_bytes - std::min(*total_bytes, cpu::used_memory());
  *free_bytes = std::min(limit.available, left);
  return hipSuccess;
}

hipError_t hipDeviceCanAccessPeer(int* can_access, int device, int peer) {
  if (const hipError_t error = cpu::check_device(device); error != hipSuccess) return error;
  if (can_access == nullptr) return set_error(hipErrorInvalidValue);
  if (!cpu::exists(peer)) return set_error(hipErrorInvalidDevice);
  *can_access = device != peer;
  return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (const hipError_t error = cpu::check_peer(peer); error != hipSuccess) return error;
  if (flags != 0) return set_error(hipErrorInvalidValue);
  const cpu::DeviceSet bit = 1u << peer;
  const bool already = (cpu::peers[cpu::current_device()].fetch_or(bit) & bit) != 0;
  return set_error(already ? hipErrorPeerAccessAlreadyEnabled : hipSuccess);
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
  if (const hipError_t error = cpu::check_peer(peer); error != hipSuccess) return error;
  const cpu::DeviceSet bit = 1u << peer;
  const bool enabled = (cpu::peers[cpu::current_device()].fetch_and(~bit) & bit) != 0;
  return set_error(enabled ? hipSuccess : hipErrorPeerAccessNotEnabled);
}

hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (kernel == nullptr) return set_error(hipErrorInvalidDeviceFunction);
  if (attribute == hipFuncAttributeMaxDynamicSharedMemorySize)
    return set_error(cpu::ask_for_shared_bytes(value) ? hipSuccess : hipErrorInvalidValue);
  return set_error(attribute == hipFuncAttributePreferredSharedMemoryCarveout
                       ? hipSuccess
                       : hipErrorInvalidValue);
}

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* kernel) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (attributes == nullptr) return set_error(hipErrorInvalidValue);
  if (kernel == nullptr) return set_error(hipErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = Device::kMaxThreadsPerBlock;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(Device::kMaxSharedBytes);
  return hipSuccess;
}
