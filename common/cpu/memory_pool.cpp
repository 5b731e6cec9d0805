// Memory pools: one for each device, which keeps nothing that was freed.
#include <cstdint>
#include <cstring>
#include <mutex>

#include "common/cpu/heap.h"

using cpu::set_error;

namespace {

hipMemPool_t pool_of(int device) {  // each device's only one
  return reinterpret_cast<hipMemPool_t>((static_cast<std::uintptr_t>(device) + 1) * 0x10);
}

int device_of(hipMemPool_t pool) {  // -1: there is no such pool
  for (int device = 0; device < cpu::device_count; ++device)
    if (pool == pool_of(device)) return device;
  return -1;
}

}  // namespace

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (pool == nullptr) return set_error(hipErrorInvalidValue);
  if (!cpu::exists(device)) return set_error(hipErrorInvalidDevice);
  *pool = pool_of(device);
  return hipSuccess;
}

hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t) {  // freed memory never stays in the pool
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  return set_error(device_of(pool) >= 0 ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const int device = device_of(pool);
  if (device < 0 || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const std::lock_guard lock(h.mutex);
  cpu::Heap::PerDevice& owner = h.of[device];
  const auto answer = [&](std::uint64_t bytes) { return std::memcpy(value, &bytes, sizeof bytes); };
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      answer(owner.release_threshold);
      return hipSuccess;
    case hipMemPoolAttrReservedMemCurrent:
    case hipMemPoolAttrUsedMemCurrent:
      answer(owner.bytes);
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:
      answer(owner.most_bytes);
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const int device = device_of(pool);
  if (device < 0 || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const std::lock_guard lock(h.mutex);
  cpu::Heap::PerDevice& owner = h.of[device];
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, value, sizeof bytes);
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      owner.release_threshold = bytes;
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:  // the high-water mark can only be reset
      if (bytes != 0) return set_error(hipErrorInvalidValue);
      owner.most_bytes = owner.bytes;
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}
