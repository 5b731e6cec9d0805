// Runs, checks and times every version of attention's gradients, for float and for bf16.
#include "stage7_transformer/05_attention_backward/attention_backward.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/inputs.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/05_attention_backward/reference.h"

using attention_backward::Problem;
using gpu::DeviceBuffer;

namespace {

constexpr bool kOnGpu = std::string_view(gpu::kBackend) != "cpu";
constexpr size_t kOfHead = 4;  // queries and keys of one head whose gradients are compared

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
  return {std::move(rows), p.D, ""};
}

template <class T>
struct Arrays {
  static constexpr bool kFloat = std::is_same_v<T, float>;

  Arrays(const Problem& sizes, std::uint64_t seed)
      : p(sizes),
        q(p.heads() * p.Tq * p.D),
        k(p.heads() * p.Tk * p.D),
        v(k.size()),
        out(q.size()),
        grad_out(q.size()),
        grad_q(q.size()),
        grad_k(k.size()),
        grad_v(k.size()),
        lse(p.heads() * p.Tq),
        queries(of_last_head(p, p.Tq, some_of(p.Tq))),
        keys(of_last_head(p, p.Tk, some_of(p.Tk))) {
    attention::fill(q, attention::kSpread, seed, 0);
    attention::fill(k, attention::kSpread, seed, 1);
    attention::fill(v, 1, seed, 2), attention::fill(grad_out, 1, seed, 3);
    const auto head_of = [&](const DeviceBuffer<T>& array, size_t length) {
      std::vector<size_t> all(length);
      for (size_t t = 0; t < length; ++t) all[t] = t;
      return attention::floats_of(of_last_head(p, length, all).to_host(array.data()));
    };
    const std::vector<float> of_q = head_of(q, p.Tq), of_k = head_of(k, p.Tk),
                             of_v = head_of(v, p.Tk), grad = head_of(grad_out, p.Tq);
    want = attention_backward::backward_cpu(
        {of_q.data(), of_k.data(), of_v.data(), grad.data()}, p,
        kFloat ? attention::float_roundings(p) : attention::bf16_roundings(p), some_of(p.Tq),
        some_of(p.Tk), attention::Terms::mean_zero);
  }

  auto of_queries(DeviceBuffer<T>& array) {
    return attention::heads_first(array.data(), p.H, p.Tq, p.D);
  }
  auto of_keys(DeviceBuffer<T>& array) {
    return attention::heads_first(array.data(), p.H, p.Tk, p.D);
  }
  // out and lse.
  void forward() {
    if constexpr (kFloat)
      attention::forward(of_queries(out), lse.data(), of_queries(q), of_keys(k), of_keys(v), p);
    else
      attention::launch_flash_bf16(of_queries(out), lse.data(), of_queries(q), of_keys(k),
                                   of_keys(v), p, nullptr, nullptr);
  }
  Comparison compare() const {
    return together({attention::compare_rows(queries, grad_q.data(), want.q),
                     attention::compare_rows(keys, grad_k.data(), want.k),
                     attention::compare_rows(keys, grad_v.data(), want.v)});
  }

  Problem p;
  DeviceBuffer<T> q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  DeviceBuffer<float> lse;
  RowSample queries, keys;
  attention_backward::ExpectedGradients want;
};

template <class T, class Versions>
void run(const Problem& p, const char* type, const Versions& versions, const Options& options,
         Report& report) {
  Arrays<T> a(p, options.seed);
  if (missing(versions[0].needs).empty()) a.forward();
  const Work work{a.kFloat ? attention::bytes(p, 4, 4) : 0,
                  10 * attention::pairs(p) * static_cast<double>(p.D),
                  a.kFloat ? Work::Limit::fma : Work::Limit::none};
  DeviceBuffer<float> memory;
  Measurement table(options);
  for (const auto& version : versions) {
    if (!options.wants(version.name)) continue;
    Measured measured{work,
                      [&, launch = version.launch](hipStream_t stream) {
                        launch.run(a.of_queries(a.grad_q), a.of_keys(a.grad_k), a.of_keys(a.grad_v),
                                   a.of_queries(a.grad_out), a.of_queries(a.out), a.lse.data(),
                                   a.of_queries(a.q), a.of_keys(a.k), a.of_keys(a.v), p,
                                   memory.data(), stream);
                      },
                      [&] { return a.compare(); },
                      {{a.grad_q.data(), a.grad_q.bytes()},
                       {a.grad_k.data(), a.grad_k.bytes()},
                       {a.grad_v.data(), a.grad_v.bytes()}}};
    attention::give_memory(measured, memory, version.launch.memory(p));
    if (!a.kFloat) measured.settle_ms = settle_matrix_units(options);
    table.version(version, std::move(measured));
  }
  report.table("backward   " + name(p) + " " + type, 0,
               "checked on " + std::to_string(a.queries.rows.size()) + " queries and " +
                   std::to_string(a.keys.rows.size()) + " keys of one head");
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.5", "attention_backward", "the gradients of attention: q, k and v", attention::sizes(),
      version_infos(attention_backward::kVersions, attention_backward::kBf16Versions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    attention::require_sizes(options, 4);
    report.limits(timing::measure_limits(options));
    const bool more = !options.sizes_given && !options.quick && kOnGpu;
    const std::vector<Problem> problems = attention::printed(options.sizes, true, more);
    report.headline("backward   " + name(problems.front()) + " float32");
    if (wants_any(options, attention_backward::kVersions))
      for (const Problem& p : problems)
        run<float>(p, "float32", attention_backward::kVersions, options, report);
    if (wants_any(options, attention_backward::kBf16Versions))
      for (const Problem& p : attention::printed_in_bf16(options.sizes, true, more))
        if (p.D <= attention_backward::kMostBf16Depth)
          run<gpu::bfloat16>(p, "bf16", attention_backward::kBf16Versions, options, report);
  });
}
