// Runs, checks and times every version of attention, forwards and backwards.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/sample.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/attention_sm80.h"

using attention::Keeps;
using attention::Problem;
using device_matrix::DeviceBuffer;
namespace sm80 = attention::sm80;

namespace {

constexpr bool kOnGpu = std::string_view(gpu::kBackend) != "cpu";
constexpr size_t kRows = 64;    // of out that are compared
constexpr size_t kOfHead = 4;   // queries and keys of one head whose gradients are compared
constexpr float kSpread = 2.5;  // of queries and keys: some keys fit much better than others

// What is stored, and who computes with it.
struct Float {
  using Number = float;
  using View = attention::View;
  using Workspace = attention::Workspace;
  static constexpr const char* kName = "float32";
  static constexpr auto& kVersions = attention::kVersions;
  static constexpr Work::Limit kLimit = Work::Limit::fma;

  static Keeps forward_keeps(const attention::Launch& launch) { return launch.forward_keeps; }
  static Keeps backward_keeps(const attention::Launch& launch) { return launch.backward_keeps; }
  static Workspace workspace(const Problem& p, Keeps keeps) { return Workspace(p, keeps); }
  template <class... Arguments>
  static void forward(const attention::Launch& launch, Workspace& workspace,
                      const Arguments&... arguments) {
    launch.forward(arguments..., workspace, nullptr);
  }
};
struct Bfloat16 {
  using Number = gpu::bfloat16;
  using View = sm80::View;
  using Workspace = sm80::Workspace;
  static constexpr const char* kName = "bf16";
  static constexpr auto& kVersions = sm80::kVersions;
  static constexpr Work::Limit kLimit = Work::Limit::none;  // float's units are not in use

  static Keeps forward_keeps(const sm80::Launch&) { return Keeps::rows; }
  static Keeps backward_keeps(const sm80::Launch&) { return Keeps::rows; }
  static Workspace workspace(const Problem& p, Keeps) { return Workspace(p); }
  template <class... Arguments>
  static void forward(const sm80::Launch& launch, Workspace&, const Arguments&... arguments) {
    launch.forward(arguments..., nullptr);
  }
};

Problem problem(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal) {
  return {B, H, Tq, Tk, D, causal, 1 / std::sqrt(static_cast<float>(D))};
}

std::string name_of(const Problem& p) {
  std::string text = "B=" + size_text(p.B) + " H=" + size_text(p.H) + " T=" + size_text(p.Tk) +
                     " D=" + size_text(p.D);
  if (p.Tq != p.Tk) text += ", " + size_text(p.Tq) + (p.Tq == 1 ? " query" : " queries");
  return text + (p.causal ? ", causal" : ", full");
}

// Pairs of a query and a key that it sees, in all heads.
double pairs(const Problem& p) {
  double count = 0;
  for (size_t i = 0; i < p.Tq; ++i) count += static_cast<double>(attention::visible_keys(p, i));
  return static_cast<double>(p.heads()) * count;
}

// Of arrays (B, H, T, D): `queries` of them with T = Tq, `keys` with T = Tk.
double bytes(const Problem& p, double queries, double keys) {
  return sizeof(float) * static_cast<double>(p.heads()) * static_cast<double>(p.D) *
         (queries * static_cast<double>(p.Tq) + keys * static_cast<double>(p.Tk));
}

// Of device memory beyond inputs and outputs.
double bytes_beside(const Problem& p, Keeps keeps, bool backward) {
  const double rows = static_cast<double>(p.heads()) * static_cast<double>(p.Tq);
  const double matrices = keeps == Keeps::rows ? 0 : keeps == Keeps::one_matrix ? 1 : 2;
  return sizeof(float) * rows * ((backward ? 1 : 0) + matrices * static_cast<double>(p.Tk));
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

// Why a version can't run at this size; empty: it can.
std::string too_large(double bytes) {
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  return bytes < 0.95 * static_cast<double>(free_bytes) ? "" : "needs " + memory_text(bytes);
}

template <class T>
Comparison compare_rows(const RowSample& sample, const T* array, const attention::Values& want) {
  const std::vector<T> got = sample.to_host(array);
  Comparison result = compare(
      got.size(), [&](size_t i) { return gpu::to_float(got[i]); },
      [&](size_t i) { return want.value[i]; }, [&](size_t i) { return want.error[i]; });
  result.index = sample.rows[result.index / sample.cols] * sample.cols + result.index % sample.cols;
  return result;
}

template <class T>
std::vector<float> to_floats(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T value : values) floats.push_back(gpu::to_float(value));
  return floats;
}

// Numbers in [-largest, largest), rounded to the type.
template <class T>
void fill(DeviceBuffer<T>& array, float largest, std::uint64_t seed, std::uint32_t stream) {
  if constexpr (std::is_same_v<T, float>) {
    random_numbers::launch_fill_uniform(array.data(), array.size(), seed, stream);
    axpy::launch_vectorized_scale(array.data(), largest, array.data(), array.size());
  } else {
    DeviceBuffer<float> exact(array.size());
    fill(exact, largest, seed, stream);
    gemm_mixed::launch_round<T>(array.data(), exact.data(), array.size());
  }
}

template <class Type>
struct Arrays {
  using Buffer = DeviceBuffer<typename Type::Number>;
  using View = typename Type::View;

  Arrays(const Problem& sizes, std::uint64_t seed)
      : p(sizes),
        q(p.heads() * p.Tq * p.D),
        k(p.heads() * p.Tk * p.D),
        v(k.size()),
        out(q.size()),
        lse(p.heads() * p.Tq) {
    fill(q, kSpread, seed, 0), fill(k, kSpread, seed, 1), fill(v, 1, seed, 2);
  }
  View queries(Buffer& array) const { return {array.data(), p.H * p.Tq * p.D, p.Tq * p.D, p.D}; }
  View keys(Buffer& array) const { return {array.data(), p.H * p.Tk * p.D, p.Tk * p.D, p.D}; }

  Problem p;
  Buffer q, k, v, out;
  DeviceBuffer<float> lse;
};

template <class Type>
void run_forward(const Problem& p, const Options& options, Report& report) {
  Arrays<Type> a(p, options.seed);
  const RowSample sample = choose_rows(p.heads() * p.Tq, p.D, kRows, options.seed);
  RowSample of_lse = sample;
  of_lse.cols = 1;
  const std::vector<float> q = to_floats(a.q.to_host()), k = to_floats(a.k.to_host()),
                           v = to_floats(a.v.to_host());
  report.table("forward   " + name_of(p) + " " + Type::kName, 0, sample.text);
  const Work work{Type::kLimit == Work::Limit::none ? 0 : bytes(p, 2, 2),
                  4 * pairs(p) * static_cast<double>(p.D), Type::kLimit};
  for (const auto& version : Type::kVersions) {
    if (!options.wants(version.name)) continue;
    const auto& launch = version.launch;
    const double beside = bytes_beside(p, Type::forward_keeps(launch), false);
    Row row;
    row.name = version.name, row.lesson = version.lesson, row.skipped = too_large(beside);
    if (row.skipped.empty()) {
      const attention::Expected want =
          attention::forward_cpu(q, k, v, p, launch.roundings(p), sample.rows);
      auto workspace = Type::workspace(p, Type::forward_keeps(launch));
      row = measure(
          version.name, version.lesson, version.needs, work,
          {{a.out.data(), a.out.bytes()}, {a.lse.data(), a.lse.bytes()}}, options.repeat,
          [&] {
            Type::forward(launch, workspace, a.queries(a.out), a.lse.data(), a.queries(a.q),
                          a.keys(a.k), a.keys(a.v), p);
          },
          [&] {
            return together({compare_rows(sample, a.out.data(), want.out),
                             compare_rows(of_lse, a.lse.data(), want.lse)});
          });
      row.note = memory_text(beside);
    }
    report.add(row);
  }
}

// Up to kOfHead numbers of [0, n), the first and the last among them.
std::vector<size_t> some_of(size_t n) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < std::min(n, kOfHead); ++i)
    chosen.push_back(n <= kOfHead ? i : i * (n - 1) / (kOfHead - 1));
  return chosen;
}

// The rows `rows` of the last head of an array (B, H, T, D).
RowSample of_last_head(const Problem& p, size_t T, std::vector<size_t> rows) {
  for (size_t& row : rows) row += (p.heads() - 1) * T;
  RowSample sample;
  sample.rows = std::move(rows), sample.cols = p.D;
  return sample;
}

template <class Type>
void run_backward(const Problem& p, const Options& options, Report& report) {
  using Buffer = typename Arrays<Type>::Buffer;
  Arrays<Type> a(p, options.seed);
  Buffer grad_out(a.q.size()), grad_q(a.q.size()), grad_k(a.k.size()), grad_v(a.v.size());
  fill(grad_out, 1, options.seed, 3);
  const auto& last = *(std::end(Type::kVersions) - 1);
  if (missing(last.needs).empty()) {
    auto workspace = Type::workspace(p, Keeps::rows);
    Type::forward(last.launch, workspace, a.queries(a.out), a.lse.data(), a.queries(a.q),
                  a.keys(a.k), a.keys(a.v), p);
    HIP_CHECK(hipDeviceSynchronize());  // before the workspace goes
  }

  // The bound allows for the roundings of the version that has most.
  attention::Roundings roundings = last.launch.roundings(p);
  for (const auto& version : Type::kVersions) {
    const attention::Roundings r = version.launch.roundings(p);
    roundings.exponentials = std::max(roundings.exponentials, r.exponentials);
    roundings.additions = std::max(roundings.additions, r.additions);
  }
  const RowSample queries = of_last_head(p, p.Tq, some_of(p.Tq));
  const RowSample keys = of_last_head(p, p.Tk, some_of(p.Tk));
  const auto head_of = [&](const Buffer& array, size_t T) {
    RowSample head;
    head.cols = p.D;
    for (size_t t = 0; t < T; ++t) head.rows.push_back((p.heads() - 1) * T + t);
    return to_floats(head.to_host(array.data()));
  };
  const std::vector<float> q = head_of(a.q, p.Tq), k = head_of(a.k, p.Tk), v = head_of(a.v, p.Tk),
                           grad = head_of(grad_out, p.Tq);
  const attention::ExpectedGradients want = attention::backward_cpu(
      {q.data(), k.data(), v.data(), grad.data()}, p, roundings, some_of(p.Tq), some_of(p.Tk));
  const auto verify = [&] {
    return together({compare_rows(queries, grad_q.data(), want.q),
                     compare_rows(keys, grad_k.data(), want.k),
                     compare_rows(keys, grad_v.data(), want.v)});
  };

  report.table("backward   " + name_of(p) + " " + Type::kName, 0,
               "checked on " + std::to_string(queries.rows.size()) + " queries and " +
                   std::to_string(keys.rows.size()) + " keys of one head");
  const Work work{Type::kLimit == Work::Limit::none ? 0 : bytes(p, 4, 4),
                  10 * pairs(p) * static_cast<double>(p.D), Type::kLimit};
  for (const auto& version : Type::kVersions) {
    const auto& launch = version.launch;
    if (!options.wants(version.name) || launch.backward == nullptr) continue;
    const double beside = bytes_beside(p, Type::backward_keeps(launch), true);
    Row row;
    row.name = version.name, row.lesson = version.lesson, row.skipped = too_large(beside);
    if (row.skipped.empty()) {
      auto workspace = Type::workspace(p, Type::backward_keeps(launch));
      row = measure(
          version.name, version.lesson, version.needs, work,
          {{grad_q.data(), grad_q.bytes()},
           {grad_k.data(), grad_k.bytes()},
           {grad_v.data(), grad_v.bytes()}},
          options.repeat,
          [&] {
            launch.backward(a.queries(grad_q), a.keys(grad_k), a.keys(grad_v), a.queries(grad_out),
                            a.queries(a.out), a.lse.data(), a.queries(a.q), a.keys(a.k),
                            a.keys(a.v), p, workspace, nullptr);
          },
          verify);
      row.note = memory_text(beside);
    }
    report.add(row);
  }
}

// The versions for float, then those for bf16.
std::vector<VersionInfo> all_infos() {
  std::vector<VersionInfo> infos = version_infos(Float::kVersions);
  for (const VersionInfo& info : version_infos(Bfloat16::kVersions)) infos.push_back(info);
  return infos;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.4",
      "attention",
      "softmax(scale Q K^T + mask) V",
      {{"B", 4, 1, 2}, {"H", 16, 4, 3}, {"T", 4096, 256, 65}, {"D", 64, 64, 24}},
      all_infos()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t B = options.sizes[0], H = options.sizes[1], T = options.sizes[2],
                 D = options.sizes[3];
    if (D > 256) throw UsageError("--size: a head D has at most 256 numbers");
    const Problem asked = problem(B, H, T, T, D, true);
    require_device_memory(bytes(asked, 4, 4));
    // As much again for the arrays that the host makes and compares; on the CPU backend beside it.
    sizes::require_host_memory((kOnGpu ? 1 : 2) * bytes(asked, 4, 4));
    report.limits(timing::measure_limits(options));
    std::vector<Problem> forward = {asked, problem(B, H, T, T, D, false)}, backward = {asked};
    if (!options.sizes_given && !options.quick && kOnGpu) {
      // Larger heads, what stage 7.7 trains with, and a step of generating text with a cache.
      forward = {asked,
                 problem(B, H, T, T, 2 * D, true),
                 problem(B, H, T, T, 2 * D, false),
                 problem(64, 6, 256, 256, 64, true),
                 problem(32, 4, 128, 128, 16, true),
                 problem(8, 16, 1, T, D, true)};
      backward = {asked, problem(B, H, T, T, 2 * D, true), problem(64, 6, 256, 256, 64, true),
                  problem(32, 4, 128, 128, 16, true)};
    }
    if (wants_any(options, Float::kVersions)) {
      for (const Problem& p : forward) run_forward<Float>(p, options, report);
      for (const Problem& p : backward) run_backward<Float>(p, options, report);
    }
    if (wants_any(options, Bfloat16::kVersions)) {
      for (const Problem& p : forward)
        if (p.Tq > 1) run_forward<Bfloat16>(p, options, report);
      for (const Problem& p : backward)
        if (p.D <= sm80::kMostBackwardDepth) run_backward<Bfloat16>(p, options, report);
    }
  });
}
