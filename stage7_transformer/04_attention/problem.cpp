#include "stage7_transformer/04_attention/problem.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "common/program.h"
#include "common/sample.h"
#include "common/sizes.h"
#include "stage7_transformer/04_attention/attention.h"

namespace attention {

namespace {
constexpr size_t kGrouped = 4;  // query heads that share a key head, where text is generated
}

std::vector<Size> sizes() {
  return {{"B", 4, 1, 2}, {"H", 16, 4, 3}, {"T", 4096, 256, 65}, {"D", 64, 64, 24}};
}

Problem problem_of(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal) {
  return {B, H, Tq, Tk, D, causal, 1 / std::sqrt(static_cast<float>(D))};
}

std::vector<Problem> printed(const std::vector<size_t>& sizes, bool backward, bool more) {
  const size_t B = sizes[0], H = sizes[1], T = sizes[2], D = sizes[3];
  std::vector<Problem> problems = {problem_of(B, H, T, T, D, true)};
  if (!more) {
    if (backward) return problems;
    problems.push_back(problem_of(B, H, T, T, D, false));
    problems.push_back(problem_of(B, H, kGrouped, T, D, false));
    return problems;
  }
  problems.push_back(problem_of(B, H, T, T, 2 * D, true));
  if (!backward) problems.push_back(problem_of(B, H, T, T, 2 * D, false));
  problems.push_back(problem_of(64, 6, 256, 256, 64, true));
  problems.push_back(problem_of(32, 4, 128, 128, 16, true));
  if (backward) return problems;
  problems.push_back(problem_of(8, 16, 1, T, D, true));
  problems.push_back(problem_of(16, 8, kGrouped, T, 2 * D, false));
  problems.push_back(problem_of(1, 8, kGrouped, 16 * T, 2 * D, false));
  return problems;
}

std::vector<Problem> printed_in_bf16(const std::vector<size_t>& sizes, bool backward, bool more) {
  std::vector<Problem> problems = printed(sizes, backward, more);
  if (!more) return problems;
  if (backward) problems.push_back(problem_of(4, 16, 4096, 4096, 128, false));
  for (const bool causal : {true, false})
    problems.push_back(problem_of(8, 16, 2048, 2048, 64, causal));
  return problems;
}

void require_sizes(const Options& options, double arrays) {
  require_work(options);
  const std::vector<size_t>& s = options.sizes;
  if (s[3] > kMostDepth)
    throw UsageError("--size: a head D has at most " + std::to_string(kMostDepth) + " numbers");
  const double needed = bytes(problem_of(s[0], s[1], s[2], s[2], s[3], true), arrays, arrays);
  require_device_memory(needed);
  // The host makes and compares the same arrays; on the CPU backend beside the device's.
  const bool on_host = gpu::kBackend == std::string("cpu");
  sizes::require_host_memory((on_host ? 2 : 1) * needed);
}

std::string name(const Problem& p) {
  std::string text = "B=" + size_text(p.B) + " H=" + size_text(p.H) + " T=" + size_text(p.Tk) +
                     " D=" + size_text(p.D);
  if (p.Tq != p.Tk) text += ", " + size_text(p.Tq) + (p.Tq == 1 ? " query" : " queries");
  return text + (p.causal ? ", causal" : ", full");
}

double pairs(const Problem& p) {
  double count = 0;
  for (size_t i = 0; i < p.Tq; ++i) count += static_cast<double>(visible_keys(p, i));
  return static_cast<double>(p.heads()) * count;
}

double bytes(const Problem& p, double queries, double keys) {
  return sizeof(float) * static_cast<double>(p.heads()) * static_cast<double>(p.D) *
         (queries * static_cast<double>(p.Tq) + keys * static_cast<double>(p.Tk));
}

std::string memory_text(double bytes) {
  if (bytes == 0) return "no memory beside";
  const char* const units[] = {"bytes", "KB", "MB", "GB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(units); ++unit) bytes /= 1000;
  char text[64];
  std::snprintf(text, sizeof text, "%.3g %s beside", bytes, units[unit]);
  return text;
}

// ---- What launchers share -----------------------------------------------------------------------

void check(const Problem& p) {
  if (p.D == 0 || p.D > kMostDepth)
    throw std::invalid_argument("attention: a head of " + std::to_string(p.D) +
                                " numbers; it must have 1 to " + std::to_string(kMostDepth));
  if (!(p.scale > 0) || std::isinf(p.scale))
    throw std::invalid_argument("attention: the scale must be above 0 and finite");
}
void check_array(const char* name, const float* data, size_t elements) {
  if (elements == 0) return;
  if (data == nullptr) throw std::invalid_argument("attention: " + std::string(name) + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
    throw std::invalid_argument("attention: " + std::string(name) + " is not aligned to 4 bytes");
}
void check_forward(const View& out, const ConstView& q, const ConstView& k, const ConstView& v,
                   const Problem& p) {
  check(p);
  const size_t queries = p.heads() * p.Tq, keys = p.heads() * p.Tk;
  check_array("out", out.data, queries);
  if (queries == 0 || keys == 0) return;
  check_array("q", q.data, queries), check_array("k", k.data, keys);
  check_array("v", v.data, keys);
}

unsigned grid_of(size_t blocks) {
  if (blocks > static_cast<size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument("attention: too many rows for one launch");
  return static_cast<unsigned>(blocks);
}

bool is_aligned(const ConstView& view, size_t D) {
  return reinterpret_cast<std::uintptr_t>(view.data) % sizeof(float4) == 0 &&
         (view.stride_batch | view.stride_head | view.stride_row | D) % 4 == 0;
}

void forward(const View& out, float* lse, const ConstView& q, const ConstView& k,
             const ConstView& v, const Problem& p, hipStream_t stream) {
  const auto launch = p.Tq <= 2 ? launch_fused : launch_flash;
  launch(out, lse, q, k, v, p, nullptr, stream);
}

}  // namespace attention
