#include "stage7_transformer/04_attention/bf16.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/program.h"
#include "stage7_transformer/04_attention/attention.h"

namespace attention {

bool suits_wgmma(const Problem& problem) {
  static const bool has_sm90 = missing(gemm_mixed::kNeedsOfWgmma<gpu::bfloat16>).empty();
  constexpr size_t kLeast = 33;
  return has_sm90 && problem.D >= kLeast;
}

size_t memory_of_forward_bf16(const Problem& problem) {
  return suits_wgmma(problem) ? memory_of_flash_persistent(problem) : 0;
}

void forward_bf16(const Bf16View& out, float* lse, const ConstBf16View& q, const ConstBf16View& k,
                  const ConstBf16View& v, const Problem& problem, float* memory,
                  hipStream_t stream) {
  const auto launch = suits_wgmma(problem) ? launch_flash_persistent : launch_flash_bf16;
  launch(out, lse, q, k, v, problem, memory, stream);
}

void check_bf16(const Problem& problem, size_t most) {
  if (problem.D > most)
    throw std::invalid_argument("attention: heads of " + std::to_string(problem.D) +
                                " elements, at most " + std::to_string(most) + " fit");
  if (!(problem.scale > 0)) throw std::invalid_argument("attention: the scale must be positive");
  constexpr size_t kMost = size_t{1} << 30;
  if (problem.Tq > kMost || problem.Tk > kMost || problem.B * problem.H > kMost ||
      (problem.Tq / 64 + 1) * problem.H * problem.B > kMost)
    throw std::invalid_argument("attention: more than 2^30 tokens or tiles");
}

bool have_aligned_rows(std::initializer_list<ConstBf16View> views, size_t D) {
  constexpr size_t kInChunk = 16 / sizeof(gpu::bfloat16);
  bool aligned = D % kInChunk == 0;
  for (const ConstBf16View& view : views)
    aligned = aligned && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
              (view.stride_batch | view.stride_head | view.stride_row) % kInChunk == 0;
  return aligned;
}

bool tma_takes(const Problem& problem, std::initializer_list<ConstBf16View> views) {
  return problem.Tk > 0 && problem.D <= 128 && have_aligned_rows(views, problem.D);
}

void refuse_bf16() { throw std::runtime_error("flash_bf16 needs sm_80"); }

}  // namespace attention
