// Attention of bf16 as later steps call it, and what its launchers check on the host.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "stage7_transformer/04_attention/attention.h"

namespace attention {

inline constexpr size_t kMostBf16Depth = 256;

// Throws std::invalid_argument, one line, for what the kernels can't do with heads of up to `most`
// numbers.
void check_bf16(const Problem& problem, size_t most);

// Whether the start of every row of all the views is aligned to 16 bytes.
bool have_aligned_rows(std::initializer_list<ConstBf16View> views, size_t D);

// Whether the TMA copies all of it: heads of up to 128 numbers, rows that begin at multiples of 16
// bytes, and any keys at all.
bool tma_takes(const Problem& problem, std::initializer_list<ConstBf16View> views);

// From so many queries on, tiles of 192 of them have few empty rows. Heads of up to 64 numbers
// leave three warp groups registers enough.
inline constexpr size_t kManyQueries = 1024;

// Whether a version for sm_90 is the one to take: a device with its instructions, and heads that
// fill them. They multiply heads of 64 or 128 numbers, and pad others with zeros.
bool suits_wgmma(const Problem& problem);

// flash_persistent where it suits, else flash_bf16: what that takes, on every device that has
// the matrix instructions of sm_80. It works in `memory`: so many floats on the device.
size_t memory_of_forward_bf16(const Problem& problem);
void forward_bf16(const Bf16View& out, float* lse, const ConstBf16View& q, const ConstBf16View& k,
                  const ConstBf16View& v, const Problem& problem, float* memory,
                  hipStream_t stream = nullptr);

// Throws std::runtime_error: matrix instructions of sm_80 are NVIDIA's.
[[noreturn]] void refuse_bf16();

}  // namespace attention
