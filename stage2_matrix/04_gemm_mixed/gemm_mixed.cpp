// Runs, checks and times every version of the product on matrix units, in bf16, fp16 and tf32.
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"

namespace {

constexpr size_t kRows = 16;  // of C that are compared with the reference
// Matrix units draw so much power that the device lowers its clock within half a second. Every row
// runs for that long before it is timed, so that all are timed at the clock that lasts.
constexpr double kSettleMs = 500;
// Products of few rows that are printed beside the others: one reads B and does little else.
constexpr size_t kFewRowsPrinted[] = {16, 64, 128};

template <class T>
constexpr blas::Input kInput = blas::Input::tf32;
template <>
constexpr blas::Input kInput<gpu::half> = blas::Input::float16;
template <>
constexpr blas::Input kInput<gpu::bfloat16> = blas::Input::bfloat16;

// A and B on the device, the place for C, and the reference of some rows of C.
template <class T>
struct Problem {
  Problem(size_t rows, const Options& options)
      : M(rows),
        N(options.sizes[1]),
        K(options.sizes[2]),
        seed(options.seed),
        d_floats(std::max(M * K, K * N)),
        d_a(M * K),
        d_b(K * N),
        d_c(M * N),
        sample(choose_rows(M, N, kRows, seed)) {}

  // Fills A and B with rounded numbers in [-1, 1), or with integers in [-3, 3], and computes the
  // reference. The sums of integers stay below 2^24, so float adds them exactly in every order.
  using Fill = void (*)(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                        hipStream_t queue);
  void fill(Fill launch_fill) {
    std::uint32_t stream = 0;
    for (gpu::DeviceBuffer<T>* matrix : {&d_a, &d_b}) {
      launch_fill(d_floats.data(), matrix->size(), seed, stream++, nullptr);
      gemm_mixed::launch_round<T>(matrix->data(), d_floats.data(), matrix->size());
    }
    RowSample rows_of_a = sample;
    rows_of_a.cols = K;
    const std::vector<T> a = rows_of_a.to_host(d_a.data()), b = d_b.to_host();
    HostTimer timer;
    want = gemm_mixed::gemm_mixed_cpu(a, b, sample.rows.size(), N, K);
    reference_ms = timer.ms();
  }

  Comparison compare_exactly() const {
    return sample.compare(d_c.data(), want.value, [](size_t) { return 0.0; });
  }
  Comparison compare() const {
    return sample.compare(d_c.data(), want.value, [&](size_t i) {
      return gemm_mixed::mean_zero_bound(static_cast<double>(K), want.squares[i]);
    });
  }

  size_t M, N, K;
  std::uint64_t seed;
  gpu::DeviceBuffer<float> d_floats;  // the inputs before they are rounded
  gpu::DeviceBuffer<T> d_a, d_b;
  gpu::DeviceBuffer<float> d_c;
  RowSample sample;
  rounding::Sums want{0};
  double reference_ms = 0;
};

template <class T>
std::string title(size_t M, size_t N, size_t K) {
  return std::string(gemm_mixed::kTypeName<T>) + "   M=" + size_text(M) + " N=" + size_text(N) +
         " K=" + size_text(K);
}

// The table of C (rows, N).
template <class T>
void run(size_t rows, const Options& options, Report& report) {
  Problem<T> p(rows, options);
  const bool few = p.M <= gemm_mixed::kFewRows;
  const double multiplications =
      static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
  const double inputs = static_cast<double>(p.d_a.bytes() + p.d_b.bytes());
  Measured row;
  // With many rows no bytes and no limit: float's units, whose rate is measured, say nothing about
  // matrix units.
  row.work = few ? Work{inputs + static_cast<double>(p.d_c.bytes()), 2 * multiplications,
                        Work::Limit::read}
                 : Work{0, 2 * multiplications, Work::Limit::none};
  row.verify = [&p] { return p.compare(); };
  row.verify_exactly = [&p] { return p.compare_exactly(); };
  row.outputs = {{p.d_c.data(), p.d_c.bytes()}};
  row.shape = {p.M, p.N};
  row.settle_ms = options.quick || gpu::kBackend == std::string("cpu") ? 0 : kSettleMs;

  // Few rows take about as long as what is timed in graphs: all of their versions are.
  Measurement table(options, (few ? 4 : 1) * Measurement::kGraphBelow);
  const bool known = kInput<T> != blas::Input::tf32 || std::string(blas::name()) != "rocBLAS";
  if (blas::available() && known) {
    row.launch = [&p](hipStream_t stream) {
      blas::gemm_mixed(kInput<T>, p.M, p.N, p.K, p.d_a.data(), p.d_b.data(), p.d_c.data(), stream);
    };
    table.peer(blas::name(), row);
  }
  std::vector<Row> left_out;
  for (const auto& version : gemm_mixed::kVersions<T>) {
    const auto launch = version.launch;
    if (!few && launch == gemm_mixed::launch_skinny<T> && missing(version.needs).empty()) {
      if (!options.wants(version.name)) continue;
      Row& out = left_out.emplace_back();
      out.name = version.name, out.lesson = version.lesson, out.skipped = "for few rows";
      continue;
    }
    row.launch = [&p, launch](hipStream_t stream) {
      launch(p.d_c.data(), p.d_a.data(), p.d_b.data(), p.M, p.N, p.K, stream);
    };
    table.version(version, row);
  }
  p.fill(random_numbers::launch_fill_integers);
  table.check_exactly();
  p.fill(random_numbers::launch_fill_uniform);
  const bool whole = p.sample.text.empty();
  report.table(title<T>(p.M, p.N, p.K), whole ? p.reference_ms : 0, p.sample.text);
  table.run(report);
  for (const Row& out : left_out) report.add(out);
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
    // Of tf32, the largest type, and of the floats that are rounded to it.
    require_device_memory(sizeof(float) * (M * K + K * N + M * N + std::max(M * K, K * N)));
    report.limits(timing::measure_limits(options));
    report.headline(title<gpu::bfloat16>(8192, 8192, 8192));
    run<gpu::bfloat16>(options.sizes[0], options, report);
    run<gpu::half>(options.sizes[0], options, report);
    run<float>(options.sizes[0], options, report);
    if (options.sizes_given || options.quick || gemm_mixed::kOnCpu) return;
    for (const size_t rows : kFewRowsPrinted) run<gpu::bfloat16>(rows, options, report);
  });
}
