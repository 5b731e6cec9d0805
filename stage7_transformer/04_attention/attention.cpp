// Runs, checks and times every version of attention, for float and for bf16.
#include "stage7_transformer/04_attention/attention.h"

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage7_transformer/04_attention/inputs.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/04_attention/reference.h"

using attention::Problem;
using gpu::DeviceBuffer;

namespace {

constexpr bool kOnGpu = std::string_view(gpu::kBackend) != "cpu";
constexpr size_t kRows = 64;  // of out that are compared

// The arrays of one problem, and what is expected of the sampled rows.
template <class T>
struct Arrays {
  static constexpr bool kFloat = std::is_same_v<T, float>;

  Arrays(const Problem& sizes, std::uint64_t random_seed)
      : p(sizes),
        seed(random_seed),
        q(p.heads() * p.Tq * p.D),
        k(p.heads() * p.Tk * p.D),
        v(k.size()),
        out(q.size()),
        lse(p.heads() * p.Tq),
        sample(choose_rows(p.heads() * p.Tq, p.D, kRows, seed)),
        of_lse{sample.rows, 1, sample.text} {}

  void fill_uniform() {
    attention::fill(q, attention::kSpread, seed, 0);
    attention::fill(k, attention::kSpread, seed, 1);
    attention::fill(v, 1, seed, 2);
    is_exact = false;
    expect();
  }
  // Equal scores and integer values: where a query sees as many keys as a power of two, their mean
  // is exact in every order.
  bool has_exact() const { return kFloat && !p.causal && (p.Tk & (p.Tk - 1)) == 0; }
  void fill_integers() {
    attention::fill(q, 0, seed, 0);
    attention::fill(k, 1, seed, 1, random_numbers::launch_fill_integers);
    attention::fill(v, 1, seed, 2, random_numbers::launch_fill_integers);
    is_exact = true;
    expect();
  }
  Comparison compare() const {
    std::vector<Comparison> parts = {
        attention::compare_rows(sample, out.data(), want.out, is_exact)};
    if (!is_exact) parts.push_back(attention::compare_rows(of_lse, lse.data(), want.lse));
    return together(parts);
  }

  Problem p;
  std::uint64_t seed;
  DeviceBuffer<T> q, k, v, out;
  DeviceBuffer<float> lse;
  RowSample sample, of_lse;
  bool is_exact = false;
  attention::Expected want;

 private:
  void expect() {
    const attention::Roundings roundings =
        kFloat ? attention::float_roundings(p) : attention::bf16_roundings(p);
    want = attention::forward_cpu(attention::floats_of(q), attention::floats_of(k),
                                  attention::floats_of(v), p, roundings, sample.rows,
                                  attention::Terms::mean_zero);
  }
};

template <class T, class Versions>
void run(const Problem& p, const char* type, const Versions& versions, const Options& options,
         Report& report) {
  Arrays<T> a(p, options.seed);
  // Few queries leave nothing to do but to read the keys and values. Float's units are not in use
  // where the products are those of a matrix unit.
  const bool few = p.Tq <= attention::kFewQueries;
  const double bytes = attention::bytes(p, 2, 2) * sizeof(T) / sizeof(float);
  const Work work{few || a.kFloat ? bytes : 0, 4 * attention::pairs(p) * static_cast<double>(p.D),
                  few        ? Work::Limit::read
                  : a.kFloat ? Work::Limit::fma
                             : Work::Limit::none};
  const auto of_queries = [&](DeviceBuffer<T>& array) {
    return attention::heads_first(array.data(), p.H, p.Tq, p.D);
  };
  const auto of_keys = [&](DeviceBuffer<T>& array) {
    return attention::heads_first(array.data(), p.H, p.Tk, p.D);
  };
  DeviceBuffer<float> memory;
  Measurement table(options);
  for (const auto& version : versions) {
    if (!options.wants(version.name)) continue;
    Measured measured{work,
                      [&, launch = version.launch](hipStream_t stream) {
                        launch.run(of_queries(a.out), a.lse.data(), of_queries(a.q), of_keys(a.k),
                                   of_keys(a.v), p, memory.data(), stream);
                      },
                      [&] { return a.compare(); },
                      {{a.out.data(), a.out.bytes()}, {a.lse.data(), a.lse.bytes()}}};
    if (p.Tq > version.launch.most_queries)
      measured.skipped = "for few queries";
    else
      attention::give_memory(measured, memory, version.launch.memory(p));
    if (!a.kFloat) measured.settle_ms = settle_matrix_units(options);
    table.version(version, std::move(measured));
  }
  if (a.has_exact()) {
    a.fill_integers();
    table.check_exactly();
  }
  a.fill_uniform();
  report.table("forward   " + name(p) + " " + type, 0, a.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"7.4", "attention", "softmax(scale Q K^T + mask) V", attention::sizes(),
                            version_infos(attention::kVersions, attention::kBf16Versions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    attention::require_sizes(options, 2);
    report.limits(timing::measure_limits(options));
    const bool more = !options.sizes_given && !options.quick && kOnGpu;
    const std::vector<Problem> problems = attention::printed(options.sizes, false, more);
    report.headline("forward   " + name(problems.front()) + " float32");
    if (wants_any(options, attention::kVersions))
      for (const Problem& p : problems)
        run<float>(p, "float32", attention::kVersions, options, report);
    if (wants_any(options, attention::kBf16Versions))
      for (const Problem& p : attention::printed_in_bf16(options.sizes, false, more))
        run<gpu::bfloat16>(p, "bf16", attention::kBf16Versions, options, report);
  });
}
