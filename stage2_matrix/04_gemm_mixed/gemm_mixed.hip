// Runs, checks and times every version of the product on matrix units, in bf16, fp16 and tf32.
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

using device_matrix::DeviceBuffer;

namespace {

constexpr size_t kRows = 16;  // of C that are held against the reference
constexpr int kRepeat = 10;   // timed launches of each row, unless --repeat says other
// Matrix units draw so much power that the clock gives way: every row is timed after half a second
// of its own work, not in the coolness that the row before has left it.
constexpr double kSettleMs = 500;

template <class T>
constexpr blas::Input kInput = blas::Input::tf32;
template <>
constexpr blas::Input kInput<gpu::half> = blas::Input::float16;
template <>
constexpr blas::Input kInput<gpu::bfloat16> = blas::Input::bfloat16;

// out[i] = the T nearest to a number in [-1, 1), or an integer in [-3, 3].
template <class T>
static __global__ void fill_inputs(T* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                                   bool integers) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const float value = random_numbers::uniform(seed, stream, i);
    out[i] = gemm_mixed::round_to<T>(integers ? rintf(3 * value) : value);
  }
}

template <class T>
void launch_fill_inputs(DeviceBuffer<T>& out, std::uint64_t seed, std::uint32_t stream,
                        bool integers) {
  constexpr size_t kBlock = 256, kMaxBlocks = 4096;
  if (out.size() == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min(gpu::ceil_div(out.size(), kBlock), kMaxBlocks));
  LAUNCH((fill_inputs<T>), blocks, static_cast<unsigned>(kBlock), 0, out.data(), out.size(), seed,
         stream, integers);
}

template <class T>
struct Problem {
  explicit Problem(const Options& options)
      : M(options.sizes[0]),
        N(options.sizes[1]),
        K(options.sizes[2]),
        seed(options.seed),
        d_a(M * K),
        d_b(K * N),
        d_c(M * N),
        sample(choose_rows(M, N, kRows, seed)) {}

  // Fills A and B and computes the reference. The sums of integers stay far below 2^24, so that
  // float adds them exactly in every order.
  void fill(bool integers) {
    launch_fill_inputs(d_a, seed, 0, integers);
    launch_fill_inputs(d_b, seed, 1, integers);
    RowSample rows_of_a = sample;
    rows_of_a.cols = K;
    const std::vector<T> a = rows_of_a.to_host(d_a.data()), b = d_b.to_host();
    HostTimer timer;
    want = gemm_mixed::gemm_mixed_cpu(a, b, sample.rows.size(), N, K);
    reference_ms = timer.ms();
  }
  void launch(gemm_mixed::Launch<T> version) {
    version(d_c.data(), d_a.data(), d_b.data(), M, N, K, nullptr);
  }
  Comparison compare(bool exactly) const {
    return sample.compare(d_c.data(), want.product, [&](size_t i) {
      return exactly ? 0.0 : gemm_mixed::bound(static_cast<double>(K), want.absolute[i]);
    });
  }

  size_t M, N, K;
  std::uint64_t seed;
  DeviceBuffer<T> d_a, d_b;
  DeviceBuffer<float> d_c;
  RowSample sample;
  gemm_mixed::Reference want;
  double reference_ms = 0;
};

template <class T>
void run(const Options& options, Report& report) {
  Problem<T> p(options);
  // Rounding must not hide an element that is missed or added twice: first exact sums.
  p.fill(true);
  std::vector<Comparison> exact;
  for (const auto& version : gemm_mixed::kVersions<T>) {
    exact.emplace_back();
    if (!options.wants(version.name) || !missing(version.needs).empty()) continue;
    p.d_c.poison();
    p.launch(version.launch);
    exact.back() = p.compare(true);
  }

  p.fill(false);
  const bool whole = p.sample.text.empty();
  report.table(std::string(gemm_mixed::kTypeName<T>) + "   M=" + size_text(p.M) +
                   " N=" + size_text(p.N) + " K=" + size_text(p.K),
               whole ? p.reference_ms : 0, p.sample.text);
  // No bytes and no limit: the measured rate of float's units says nothing about matrix units.
  const double multiplications =
      static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
  const Work work{0, 2 * multiplications, Work::Limit::none};
  const std::vector<std::pair<void*, size_t>> outputs = {{p.d_c.data(), p.d_c.bytes()}};
  const int repeat = options.repeat > 0 ? options.repeat : kRepeat;
  const double settle_ms = options.quick || gpu::kBackend == std::string("cpu") ? 0 : kSettleMs;

  const bool known = kInput<T> != blas::Input::tf32 || std::string(blas::name()) != "rocBLAS";
  if (blas::available() && known) {
    Row row = measure(
        blas::name(), "", Needs::Any, work, outputs, repeat,
        [&] {
          blas::gemm_mixed(kInput<T>, p.M, p.N, p.K, p.d_a.data(), p.d_b.data(), p.d_c.data());
        },
        [&] { return p.compare(false); }, settle_ms);
    row.peer = true, row.shape = {p.M, p.N};
    report.add(row);
  }
  size_t next = 0;
  for (const auto& version : gemm_mixed::kVersions<T>) {
    const Comparison& exact_check = exact[next++];
    if (!options.wants(version.name)) continue;
    Row row = measure(
        version.name, version.lesson, version.needs, work, outputs, repeat,
        [&] { p.launch(version.launch); },
        [&] { return exact_check.ok ? p.compare(false) : exact_check; }, settle_ms);
    row.shape = {p.M, p.N};
    report.add(row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.4",
                            "gemm_mixed",
                            "C = A B on matrix units: bf16, fp16, tf32",
                            {{"M", 8192, 160, 129}, {"N", 8192, 160, 65}, {"K", 8192, 160, 255}},
                            version_infos(gemm_mixed::kVersions<gpu::bfloat16>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const double M = static_cast<double>(options.sizes[0]);
    const double N = static_cast<double>(options.sizes[1]);
    const double K = static_cast<double>(options.sizes[2]);
    require_device_memory(sizeof(float) * (M * K + K * N + M * N));  // of tf32, the largest
    report.limits(timing::measure_limits(options));
    run<gpu::bfloat16>(options, report);
    run<gpu::half>(options, report);
    run<float>(options, report);
  });
}
