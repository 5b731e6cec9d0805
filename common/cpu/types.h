// The CPU backend's types: qualifiers, vector types, error codes, handles and flags, under HIP's
// names and, where programs may print them, with HIP's numbers.
#pragma once

#include <cstddef>

// ---- Qualifiers -------------------------------------------------------------------------------
// A kernel is an ordinary function here. Headers hold kernels that not every program launches, so
// an unused one must not warn.
#define __global__ __attribute__((unused))
// The built-in variables belong to one source file, so what reads them must become part of a kernel
// of that file: the linker may otherwise keep another file's copy of an inline function.
#define __device__ __attribute__((always_inline))
#define __host__
#define __constant__ __attribute__((unused))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// One host thread runs one block at a time, so what a block shares is what its host thread owns.
#define __shared__ static thread_local

// ---- Grids ------------------------------------------------------------------------------------

// Must stay a plain aggregate: the loop over a block's threads vectorises only if the compiler sees
// through threadIdx.
struct uint3 {
  unsigned x, y, z;
};

// The extent of a grid or a block; a plain number means so many in x.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1, unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// ---- Vectors ----------------------------------------------------------------------------------
// Aligned as on a GPU, where a vector of 2 or 4 is loaded by one instruction and must lie at a
// multiple of its size (at most 16 bytes); a vector of 3 lies as its elements do. There are no
// operators: CUDA has none either.

#define CPU_VECTOR_TYPES(scalar, name, align2, align4)                                 \
  struct name##1 {                                                                     \
    scalar x;                                                                          \
  };                                                                                   \
  struct alignas(align2) name##2 {                                                     \
    scalar x, y;                                                                       \
  };                                                                                   \
  struct name##3 {                                                                     \
    scalar x, y, z;                                                                    \
  };                                                                                   \
  struct alignas(align4) name##4 {                                                     \
    scalar x, y, z, w;                                                                 \
  };                                                                                   \
  constexpr name##1 make_##name##1(scalar x) { return {x}; }                           \
  constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }              \
  constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

CPU_VECTOR_TYPES(signed char, char, 2, 4)
CPU_VECTOR_TYPES(unsigned char, uchar, 2, 4)
CPU_VECTOR_TYPES(short, short, 4, 8)
CPU_VECTOR_TYPES(unsigned short, ushort, 4, 8)
CPU_VECTOR_TYPES(int, int, 8, 16)
CPU_VECTOR_TYPES(long long, longlong, 16, 16)
CPU_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
CPU_VECTOR_TYPES(float, float, 8, 16)
CPU_VECTOR_TYPES(double, double, 16, 16)
#undef CPU_VECTOR_TYPES

struct uint1 {  // uint3 stands above
  unsigned x;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
constexpr uint1 make_uint1(unsigned x) { return {x}; }
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- Errors -----------------------------------------------------------------------------------

// What a call returns. The compiler warns where one is dropped. Names and texts: errors.cpp. Like
// all enumerations here it is as wide as an int, so that a wrong value can be passed and refused.
enum [[nodiscard]] hipError_t : int{
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorMemoryAllocation = 2,
    hipErrorNotInitialized = 3,
    hipErrorInitializationError = 3,
    hipErrorDeinitialized = 4,
    hipErrorInvalidConfiguration = 9,
    hipErrorInvalidPitchValue = 12,
    hipErrorInvalidSymbol = 13,
    hipErrorInvalidDevicePointer = 17,
    hipErrorInvalidMemcpyDirection = 21,
    hipErrorInsufficientDriver = 35,
    hipErrorInvalidDeviceFunction = 98,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidContext = 201,
    hipErrorNoBinaryForGpu = 209,
    hipErrorPeerAccessUnsupported = 217,
    hipErrorInvalidHandle = 400,
    hipErrorInvalidResourceHandle = 400,
    hipErrorIllegalState = 401,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorIllegalAddress = 700,
    hipErrorLaunchOutOfResources = 701,
    hipErrorLaunchTimeOut = 702,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled = 705,
    hipErrorContextIsDestroyed = 709,
    hipErrorAssert = 710,
    hipErrorLaunchFailure = 719,
    hipErrorCooperativeLaunchTooLarge = 720,
    hipErrorNotSupported = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorStreamCaptureMerge = 902,
    hipErrorStreamCaptureUnmatched = 903,
    hipErrorStreamCaptureUnjoined = 904,
    hipErrorStreamCaptureIsolation = 905,
    hipErrorStreamCaptureImplicit = 906,
    hipErrorCapturedEvent = 907,
    hipErrorStreamCaptureWrongThread = 908,
    hipErrorUnknown = 999,
};

// ---- Handles ----------------------------------------------------------------------------------
// Opaque: the structures behind them are never defined, a handle is a number that handles.h looks
// up. So a destroyed or made-up handle is an error and not a crash.
using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipGraph_t = struct ihipGraph*;
using hipGraphNode_t = struct hipGraphNode*;
using hipGraphExec_t = struct hipGraphExec*;
using hipMemPool_t = struct ihipMemPoolHandle_t*;

// ---- Flags and small enumerations -------------------------------------------------------------

inline constexpr unsigned hipStreamDefault = 0x0;
inline constexpr unsigned hipStreamNonBlocking = 0x1;
inline constexpr unsigned hipEventDefault = 0x0;
inline constexpr unsigned hipEventBlockingSync = 0x1;
inline constexpr unsigned hipEventDisableTiming = 0x2;
inline constexpr unsigned hipHostMallocDefault = 0x0;
inline constexpr unsigned hipHostMallocPortable = 0x1;
inline constexpr unsigned hipHostMallocMapped = 0x2;
inline constexpr unsigned hipHostMallocWriteCombined = 0x4;

enum hipMemcpyKind : int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,  // the runtime looks at the pointers
};

enum hipMemoryType : int { hipMemoryTypeHost = 0, hipMemoryTypeDevice = 1 };

enum hipStreamCaptureMode : int {
  hipStreamCaptureModeGlobal = 0,       // no thread may call what a capture can't record
  hipStreamCaptureModeThreadLocal = 1,  // the capturing thread may not
  hipStreamCaptureModeRelaxed = 2,      // all may
};

enum hipStreamCaptureStatus : int {
  hipStreamCaptureStatusNone = 0,
  hipStreamCaptureStatusActive = 1,
  hipStreamCaptureStatusInvalidated = 2,
};

enum hipFuncAttribute : int {
  hipFuncAttributeMaxDynamicSharedMemorySize = 8,
  hipFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum hipMemPoolAttr : int {
  hipMemPoolReuseFollowEventDependencies = 1,
  hipMemPoolReuseAllowOpportunistic = 2,
  hipMemPoolReuseAllowInternalDependencies = 3,
  hipMemPoolAttrReleaseThreshold = 4,
  hipMemPoolAttrReservedMemCurrent = 5,
  hipMemPoolAttrReservedMemHigh = 6,
  hipMemPoolAttrUsedMemCurrent = 7,
  hipMemPoolAttrUsedMemHigh = 8,
};

// The questions to hipDeviceGetAttribute that both vendors answer.
enum hipDeviceAttribute_t : int {
  hipDeviceAttributeComputeCapabilityMajor,
  hipDeviceAttributeComputeCapabilityMinor,
  hipDeviceAttributeWarpSize,
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeMaxThreadsPerBlock,
  hipDeviceAttributeMaxThreadsPerMultiProcessor,
  hipDeviceAttributeMaxBlockDimX,
  hipDeviceAttributeMaxBlockDimY,
  hipDeviceAttributeMaxBlockDimZ,
  hipDeviceAttributeMaxGridDimX,
  hipDeviceAttributeMaxGridDimY,
  hipDeviceAttributeMaxGridDimZ,
  hipDeviceAttributeMaxSharedMemoryPerBlock,
  hipDeviceAttributeMaxSharedMemoryPerMultiprocessor,
  hipDeviceAttributeMaxRegistersPerBlock,
  hipDeviceAttributeTotalConstantMemory,
  hipDeviceAttributeL2CacheSize,
  hipDeviceAttributeClockRate,        // kHz
  hipDeviceAttributeMemoryClockRate,  // kHz
  hipDeviceAttributeMemoryBusWidth,   // bits
  hipDeviceAttributeConcurrentKernels,
  hipDeviceAttributeIntegrated,
  hipDeviceAttributeCooperativeLaunch,
  hipDeviceAttributeMemoryPoolsSupported,
  hipDeviceAttributeUnifiedAddressing,
};

// What the device is and how much of everything it allows: the fields that both vendors have.
struct hipDeviceProp_t {
  char name[256];
  size_t totalGlobalMem;     // bytes
  size_t sharedMemPerBlock;  // bytes
  int regsPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  size_t totalConstMem;  // bytes
  int major, minor;
  int multiProcessorCount;
  int maxThreadsPerMultiProcessor;
  size_t sharedMemPerMultiprocessor;  // bytes
  int l2CacheSize;                    // bytes; here the processor's last-level cache
  int memoryBusWidth;                 // bits; 0: unknown
  int concurrentKernels;
  int integrated;
  int cooperativeLaunch;
};

struct hipFuncAttributes {
  int binaryVersion;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxDynamicSharedSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  size_t sharedSizeBytes;
};

struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
};
