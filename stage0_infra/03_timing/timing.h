// 0.3  What the machine can do, measured: the limits that every later program divides by.
//
//   copy   bytes/s of a copy within device memory, each byte counted once read and once written
//   read   bytes/s of reading device memory and keeping only a sum
//   fma    float operations/s, two per fused multiply-add, with nothing to wait for
//
// No single kernel reaches the limit on every device. So each limit has several probes, and is the
// rate of the best of them. common/timer.h takes the times: events, warm-up, median.
#pragma once

#include <cstddef>

#include "common/options.h"
#include "common/report.h"
#include "common/version.h"

namespace timing {

// What a probe works on. arena.h owns such memory.
struct Memory {
  uint4* from;        // device: n vectors of 16 bytes; n is a multiple of kWholeTiles
  uint4* to;          // device: as many, right after `from`
  size_t n;           // vectors
  unsigned* sums;     // device: most_read_threads(n) words
  float* chain_ends;  // device: fma_threads() floats
  void* pageable;     // host: host_bytes of ordinary memory; null where no transfer is probed
  void* pinned;       // host: as much that the operating system may not move; or null
  size_t host_bytes;

  size_t bytes() const { return n * sizeof(uint4); }  // of `from`, and of `to`
};
inline constexpr int kWholeTiles = 4096;       // every probe's tile divides this many vectors
inline constexpr int kMultiplyAdds = 1 << 15;  // of one thread of an fma probe

// What one run of a probe does; its time gives the rate.
enum class Does {
  Copy,  // to = from
  Read,  // sums of all words of `from` and `to`, one for each thread, mod 2^32
  Fma,   // kMultiplyAdds steps in each of fma_threads() threads
  UploadPageable,
  UploadPinned,  // the first host_bytes of `to` = host memory
  DownloadPageable,
  DownloadPinned  // host memory = the first host_bytes of `to`
};
Work work_of(Does does, const Memory& memory);
size_t most_read_threads(size_t n);
size_t fma_threads();

struct Launch {
  Does does;
  void (*launch)(const Memory& memory, hipStream_t stream);
  int chains = 0;  // of an fma probe: how many independent sums a thread keeps
};

// versions/copy.hip: kernels that copy.
void launch_copy_1_vector(const Memory& memory, hipStream_t stream = nullptr);
void launch_copy_4_vectors(const Memory& memory, hipStream_t stream = nullptr);
void launch_copy_resident(const Memory& memory, hipStream_t stream = nullptr);
// versions/read.hip: kernels that sum.
void launch_read_4_vectors(const Memory& memory, hipStream_t stream = nullptr);
void launch_read_8_vectors(const Memory& memory, hipStream_t stream = nullptr);
void launch_read_16_vectors(const Memory& memory, hipStream_t stream = nullptr);
void launch_read_stream(const Memory& memory, hipStream_t stream = nullptr);
// versions/fma.hip: kernels that multiply and add.
void launch_fma_32_chains(const Memory& memory, hipStream_t stream = nullptr);
void launch_fma_128_chains(const Memory& memory, hipStream_t stream = nullptr);
// versions/transfers.hip: copies by the runtime, within the device and to and from the host.
void launch_copy_runtime(const Memory& memory, hipStream_t stream = nullptr);
void launch_upload_pageable(const Memory& memory, hipStream_t stream = nullptr);
void launch_upload_pinned(const Memory& memory, hipStream_t stream = nullptr);
void launch_download_pageable(const Memory& memory, hipStream_t stream = nullptr);
void launch_download_pinned(const Memory& memory, hipStream_t stream = nullptr);
// versions/empty.hip: a kernel that does nothing.
void launch_empty(hipStream_t stream = nullptr);

inline constexpr Version<Launch> kVersions[] = {
    {"copy_runtime", {Does::Copy, launch_copy_runtime}, "hipMemcpy within the device"},
    {"copy_1_vector", {Does::Copy, launch_copy_1_vector}, "16 bytes per thread, a block per tile"},
    {"copy_4_vectors", {Does::Copy, launch_copy_4_vectors}, "64 bytes in flight per thread"},
    {"copy_resident",
     {Does::Copy, launch_copy_resident},
     "only as many blocks as fit, each walks on"},
    {"read_4_vectors", {Does::Read, launch_read_4_vectors}, "64 bytes in flight per thread"},
    {"read_8_vectors", {Does::Read, launch_read_8_vectors}, "128 bytes in flight per thread"},
    {"read_16_vectors", {Does::Read, launch_read_16_vectors}, "256 bytes, in half the threads"},
    {"read_stream", {Does::Read, launch_read_stream}, "one thread a block: for processors"},
    {"fma_32_chains", {Does::Fma, launch_fma_32_chains, 32}, "32 independent sums per thread"},
    {"fma_128_chains",
     {Does::Fma, launch_fma_128_chains, 128},
     "128 sums: fills a processor's vector units"},
    {"upload_pageable",
     {Does::UploadPageable, launch_upload_pageable},
     "the driver copies it to pinned memory first"},
    {"upload_pinned",
     {Does::UploadPinned, launch_upload_pinned},
     "the device fetches it from where it lies"},
    {"download_pageable",
     {Does::DownloadPageable, launch_download_pageable},
     "into ordinary host memory"},
    {"download_pinned", {Does::DownloadPinned, launch_download_pinned}, "into pinned host memory"},
};

// The limits of the selected device: for each the best probe's rate, from the median of its runs.
// Takes about 0.3 s on two processor cores and less on a GPU, where it allocates 2 GiB and frees
// them. Throws gpu::Error where the device fails.
Limits measure_limits(bool quick);
// The same, or none where the command line wants none.
Limits measure_limits(const Options& options);

}  // namespace timing
