// The host half of HIP on the CPU backend: the functions of the hip* API that the course calls.
// Implemented in the .cpp files beside it, a subject each.
//
// Everything runs at once, on the calling thread's behalf: when a launch or a copy returns, its
// work is done. Streams and events therefore order nothing by themselves, but their rules are kept:
// what a GPU refuses is refused here with the same error, and what goes wrong inside a kernel is
// told, as on a GPU, by the next call that waits.
//
// A call that fails sets the calling thread's last error and returns it; a success leaves the last
// error alone. Unlike a GPU, a wrong pointer is also explained in one line on stderr.
#pragma once

#include <cstddef>

#include "common/cpu/types.h"

// ---- Errors -----------------------------------------------------------------------------------

hipError_t hipGetLastError();     // returns this thread's last error and forgets it
hipError_t hipPeekAtLastError();  // returns it and keeps it
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);

// ---- Devices ----------------------------------------------------------------------------------
// There are HIP_CPU_DEVICES=1..8 of them, one unless asked for more: parts of the same machine,
// each with the same host threads, an equal share of the memory, and streams, events, faults and
// peer access of its own. Each host thread has a current device, at first device 0.
//
// A kernel may use the memory of its own device, pinned host memory, and the memory of those
// devices to which its own has peer access. What is found otherwise is an illegal access that loses
// the kernel's device:
//   always                  a pointer to another device's memory among the arguments of a launch,
//   or
//                           in a structure among them, when the kernel starts, used or not
//   with HIP_CPU_STRICT=1   every access, by whatever way the kernel came to its address
// Without HIP_CPU_STRICT an address that a kernel loads from memory (a table of pointers) or
// computes out of another is not seen. With it, kernels and copies run at the same time only where
// they may use the same devices' memory, and else take turns: kernels of two devices that wait for
// each other without peer access both ways hang until the watchdog ends them.

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceSynchronize();
hipError_t hipDeviceReset();  // frees all that is the current device's and brings it back if lost
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipDriverGetVersion(int* version);
hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes);
// May kernels of the current device use the memory of `peer`? One way, and not at first.
hipError_t hipDeviceCanAccessPeer(int* can_access, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceDisablePeerAccess(int peer);

// ---- Memory -----------------------------------------------------------------------------------
// Allocations remember the caller's file and line, to name them when they leak or are overrun.
// Fresh memory holds 0xFF bytes: NaN as floating point, -1 as an integer.

hipError_t hipMalloc(void** pointer, size_t bytes, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE());
hipError_t hipFree(void* pointer);
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags = hipHostMallocDefault,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE());
hipError_t hipHostFree(void* pointer);
hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE());
hipError_t hipFreeAsync(void* pointer, hipStream_t stream);

template <class T>
hipError_t hipMalloc(T** pointer, size_t bytes, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes, file, line);
}
template <class T>
hipError_t hipHostMalloc(T** pointer, size_t bytes, unsigned flags = hipHostMallocDefault,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return hipHostMalloc(reinterpret_cast<void**>(pointer), bytes, flags, file, line);
}
template <class T>
hipError_t hipMallocAsync(T** pointer, size_t bytes, hipStream_t stream,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return hipMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream, file, line);
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device);
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t min_bytes_to_keep);
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);

hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream = nullptr);
// Copies `rows` rows of `row_bytes`; consecutive rows lie to_pitch and from_pitch bytes apart.
hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                       size_t row_bytes, size_t rows, hipMemcpyKind kind);
// Between devices, which need no peer access for it; so do the copies above.
hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes);
hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                              size_t bytes, hipStream_t stream = nullptr);
hipError_t hipMemset(void* to, int value, size_t bytes);
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream = nullptr);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer);

// ---- Streams and events -----------------------------------------------------------------------
// They belong to the device that was current when they were made. As in CUDA a launch takes a
// stream of the current device only, and an event is recorded on a stream of its own device; a copy
// runs on whatever device its stream belongs to, and any stream may wait for any event.

hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags = 0);

hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop);

// ---- Graphs -----------------------------------------------------------------------------------

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph,
                               hipGraphNode_t* error_node, char* log, size_t log_bytes);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
// With nodes == nullptr: *count becomes the number of nodes. Else fills up to *count of them.
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count);

// ---- Kernels ----------------------------------------------------------------------------------

hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* kernel);

namespace cpu {
bool is_capturing(hipStream_t stream);  // what a launch asks first
unsigned most_blocks();                 // HIP_CPU_BLOCKS
hipError_t occupancy(int* blocks, const void* kernel, int block_size, size_t dynamic_shared_bytes);
hipError_t best_block_size(int* min_grid_size, int* block_size, const void* kernel,
                           size_t dynamic_shared_bytes, int block_size_limit);
}  // namespace cpu

// How many blocks of this size one multiprocessor holds at a time.
template <class Kernel>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int block_size,
                                                        size_t dynamic_shared_bytes) {
  return cpu::occupancy(blocks, reinterpret_cast<const void*>(kernel), block_size,
                        dynamic_shared_bytes);
}
// The block size that fills a multiprocessor, and the grid that then fills the device.
template <class Kernel>
hipError_t hipOccupancyMaxPotentialBlockSize(int* min_grid_size, int* block_size, Kernel* kernel,
                                             size_t dynamic_shared_bytes = 0,
                                             int block_size_limit = 0) {
  return cpu::best_block_size(min_grid_size, block_size, reinterpret_cast<const void*>(kernel),
                              dynamic_shared_bytes, block_size_limit);
}
