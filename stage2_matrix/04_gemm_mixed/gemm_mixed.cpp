// Runs, checks and times every version of the product on matrix units, in bf16, fp16 and tf32,
// those of floats, and those of fp8.
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/rounding.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage2_matrix/03_gemm/problem.h"
#include "stage2_matrix/03_gemm/reference.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/fp8.h"
#include "stage2_matrix/04_gemm_mixed/fp8_reference.h"
#include "stage2_matrix/04_gemm_mixed/product.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"

namespace {

constexpr size_t kRows = 16;  // of C that are compared with the reference
// Products of few rows that are printed beside the others: one reads B and does little else.
constexpr size_t kFewRowsPrinted[] = {16, 64, 128};
// The products of floats, of fp8 and in other layouts, M = N = K.
constexpr size_t kFloatsPrinted[] = {4096, 8192};
constexpr size_t kFp8Printed[] = {4096, 8192};

// The product of 16-bit matrices in any layout.
template <class T>
using LaunchProduct = void (*)(const gemm_mixed::Product<T>& p, hipStream_t stream);
template <class T>
constexpr Version<LaunchProduct<T>> kVersionsOfLayouts[] = {
    {"any_layout", gemm_mixed::best<T, float>,
     "either matrix along K or across it, as bits of wgmma say"}};
constexpr gemm_mixed::Layout kLayoutsPrinted[] = {gemm_mixed::Layout::NT, gemm_mixed::Layout::TN};
constexpr gemm::Layout kLayoutsOfFloats[] = {gemm::Layout::NN, gemm::Layout::NT, gemm::Layout::TN};

template <class T>
constexpr blas::Input kInput = blas::Input::tf32;
template <>
constexpr blas::Input kInput<gpu::half> = blas::Input::float16;
template <>
constexpr blas::Input kInput<gpu::bfloat16> = blas::Input::bfloat16;

// A and B on the device, the place for C, and the reference of some rows of C. kRounded: A and B
// are rounded to T; else T is float, and they keep all of its bits. B is (N, K) of fp8, else (K,
// N).
template <class T, bool kRounded = true>
struct Problem {
  static constexpr bool kIsFp8 = std::is_same_v<T, gpu::fp8>;

  Problem(size_t rows, size_t columns, size_t depth, std::uint64_t random_seed)
      : M(rows),
        N(columns),
        K(depth),
        seed(random_seed),
        d_floats(kRounded ? std::max(M * K, K * N) : 0),
        d_a(M * K),
        d_b(K * N),
        d_c(M * N),
        sample(choose_rows(M, N, kRows, seed)) {}

  // Fills A and B with numbers in [-1, 1), or with integers in [-3, 3], and computes the reference.
  // The sums of integers stay below 2^24, so float adds them exactly in every order. With K = 8192
  // they stay below 2^13, too, which fp8's sums hold.
  using Fill = void (*)(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                        hipStream_t queue);
  void fill(Fill launch_fill) {
    std::uint32_t stream = 0;
    for (gpu::DeviceBuffer<T>* matrix : {&d_a, &d_b}) {
      if constexpr (kRounded) {
        launch_fill(d_floats.data(), matrix->size(), seed, stream++, nullptr);
        gemm_mixed::launch_round<T>(matrix->data(), d_floats.data(), matrix->size());
      } else {
        launch_fill(matrix->data(), matrix->size(), seed, stream++, nullptr);
      }
    }
    RowSample rows_of_a = sample;
    rows_of_a.cols = K;
    const std::vector<T> a = rows_of_a.to_host(d_a.data()), b = d_b.to_host();
    HostTimer timer;
    if constexpr (kIsFp8) {
      gemm_mixed::Fp8Reference fp8 = gemm_mixed::gemm_fp8_cpu(a, b, sample.rows.size(), N, K);
      want.value = std::move(fp8.value), bound_of_fp8 = std::move(fp8.bound);
    } else {
      want = gemm_mixed::gemm_mixed_cpu(a, b, sample.rows.size(), N, K);
    }
    reference_ms = timer.ms();
    if (filled) filled();
  }

  Comparison compare_exactly() const {
    return sample.compare(d_c.data(), want.value, [](size_t) { return 0.0; });
  }
  // Floats within the bound of 2.3.
  Comparison compare() const {
    const double terms = static_cast<double>(K);
    return sample.compare(d_c.data(), want.value, [&](size_t i) {
      if (kIsFp8) return bound_of_fp8[i];
      return kRounded ? gemm_mixed::mean_zero_bound(terms, want.squares[i])
                      : rounding::mean_zero_bound(terms + 2, want.squares[i], want.value[i]);
    });
  }

  // What the rows of its table share. `few`: C has few rows. With many no bytes and no limit:
  // float's units, whose rate is measured, say nothing about matrix units.
  Measured measured(const Options& options, bool few = false) {
    const double operations =
        2 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
    const double bytes = static_cast<double>(d_a.bytes() + d_b.bytes() + d_c.bytes());
    Measured row;
    row.work =
        few ? Work{bytes, operations, Work::Limit::read} : Work{0, operations, Work::Limit::none};
    row.verify = [this] { return compare(); };
    row.verify_exactly = [this] { return compare_exactly(); };
    row.outputs = {{d_c.data(), d_c.bytes()}};
    row.shape = {M, N};
    row.settle_ms = settle_matrix_units(options);
    return row;
  }

  // Checks and times the rows of `table`, which is called `of` and its sizes.
  void run(const std::string& of, Measurement& table, Report& report) {
    fill(random_numbers::launch_fill_integers);
    table.check_exactly();
    fill(random_numbers::launch_fill_uniform);
    report.table(title(of, M, N, K), sample.text.empty() ? reference_ms : 0, sample.text);
    table.run(report);
  }

  static std::string title(const std::string& of, size_t M, size_t N, size_t K) {
    return of + "   M=" + size_text(M) + " N=" + size_text(N) + " K=" + size_text(K);
  }

  size_t M, N, K;
  std::uint64_t seed;
  std::function<void()> filled;       // called when A and B have changed
  gpu::DeviceBuffer<float> d_floats;  // the inputs before they are rounded
  gpu::DeviceBuffer<T> d_a, d_b;
  gpu::DeviceBuffer<float> d_c;
  RowSample sample;
  rounding::Sums want{0};
  std::vector<double> bound_of_fp8;
  double reference_ms = 0;
};

// The table of C (rows, N).
template <class T>
void run(size_t rows, const Options& options, Report& report) {
  if (!wants_any(options, gemm_mixed::kVersions<T>)) return;
  Problem<T> p(rows, options.sizes[1], options.sizes[2], options.seed);
  const bool few = p.M <= gemm_mixed::kFewRows;
  Measured row = p.measured(options, few);

  Measurement table(options);
  const bool known = kInput<T> != blas::Input::tf32 || std::string(blas::name()) != "rocBLAS";
  if (blas::available() && known) {
    row.launch = [&p](hipStream_t stream) {
      blas::gemm_mixed(kInput<T>, p.M, p.N, p.K, p.d_a.data(), p.d_b.data(), p.d_c.data(), stream);
    };
    table.peer(blas::name(), row);
  }
  for (const auto& version : gemm_mixed::kVersions<T>) {
    const auto launch = version.launch;
    const bool is_for_few = launch == gemm_mixed::launch_skinny<T>;
    row.skipped = is_for_few && !few ? "for few rows" : "";
    row.launch = [&p, launch](hipStream_t stream) {
      launch(p.d_c.data(), p.d_a.data(), p.d_b.data(), p.M, p.N, p.K, stream);
    };
    table.version(version, row);
  }
  p.run(gemm_mixed::kTypeName<T>, table, report);
}

// matrix (rows, columns), transposed.
template <class T>
void transpose(gpu::DeviceBuffer<T>& to, const gpu::DeviceBuffer<T>& matrix, size_t rows,
               size_t columns) {
  const std::vector<T> from = matrix.to_host();
  std::vector<T> turned(from.size());
  constexpr size_t kTile = 64;  // of both stays in a cache
  for (size_t r0 = 0; r0 < rows; r0 += kTile)
    for (size_t c0 = 0; c0 < columns; c0 += kTile)
      for (size_t r = r0; r < std::min(r0 + kTile, rows); ++r)
        for (size_t c = c0; c < std::min(c0 + kTile, columns); ++c)
          turned[c * rows + r] = from[r * columns + c];
  HIP_CHECK(hipMemcpy(to.data(), turned.data(), to.bytes(), hipMemcpyHostToDevice));
}

// A problem's A and B as a layout stores them: B (N, K) in NT, as a layer's weights, or A (K, M) in
// TN, as in their gradient.
template <class T, bool kRounded = true>
struct InLayout {
  InLayout(Problem<T, kRounded>& p, gemm_mixed::Layout layout)
      : of_a(layout == gemm_mixed::Layout::TN),
        of_b(layout == gemm_mixed::Layout::NT),
        turned(of_a   ? p.d_a.size()
               : of_b ? p.d_b.size()
                      : 0),
        a(of_a ? turned.data() : p.d_a.data()),
        b(of_b ? turned.data() : p.d_b.data()) {
    p.filled = [this, &p] {
      if (of_a) transpose(turned, p.d_a, p.M, p.K);
      if (of_b) transpose(turned, p.d_b, p.K, p.N);
    };
  }
  InLayout(const InLayout&) = delete;
  InLayout& operator=(const InLayout&) = delete;

  bool of_a, of_b;  // which one is transposed
  gpu::DeviceBuffer<T> turned;
  const T *a, *b;
};

// The table of a layout. That of NN is called by its type alone, as those of all versions are.
template <class T>
void run_layout(gemm_mixed::Layout layout, size_t M, size_t N, size_t K, const Options& options,
                Report& report) {
  if (!wants_any(options, kVersionsOfLayouts<T>)) return;
  Problem<T> p(M, N, K, options.seed);
  const InLayout<T> in(p, layout);
  const auto product = gemm_mixed::contiguous(layout, p.d_c.data(), in.a, in.b, M, N, K);
  Measured row = p.measured(options);
  Measurement table(options);
  if (blas::available()) {
    row.launch = [&](hipStream_t stream) {
      blas::gemm_mixed(kInput<T>, M, N, K, product.a, product.b, product.c, stream, in.of_a,
                       in.of_b);
    };
    table.peer(blas::name(), row);
  }
  for (const auto& version : kVersionsOfLayouts<T>) {
    row.launch = [&](hipStream_t stream) { version.launch(product, stream); };
    table.version(version, row);
  }
  const std::string type = gemm_mixed::kTypeName<T>;
  p.run(layout == gemm_mixed::Layout::NN ? type : type + " " + gemm::name_of(layout), table,
        report);
}

// The tables of floats. three_products is for NN.
void run_floats(gemm::Layout layout, size_t M, size_t N, size_t K, const Options& options,
                Report& report) {
  if (!wants_any(options, gemm_mixed::kVersionsOfFloats)) return;
  Problem<float, false> p(M, N, K, options.seed);
  const InLayout<float, false> in(p, layout);
  gemm::Product product = gemm::product_of({layout, M, N, K, false});
  product.a = in.a, product.b = in.b, product.c = p.d_c.data();
  gpu::DeviceBuffer<unsigned char> workspace(gemm_mixed::workspace_bytes(product));
  Measured row = p.measured(options);
  Measurement table(options);
  if (blas::available()) {
    row.launch = [&](hipStream_t stream) {
      blas::gemm(in.of_a, in.of_b, M, N, K, 1, product.a, product.lda, product.b, product.ldb, 0,
                 product.c, product.ldc, stream);
    };
    table.peer(blas::name(), row);
  }
  row.outputs.push_back({workspace.data(), workspace.bytes()});
  for (const auto& version : gemm_mixed::kVersionsOfFloats) {
    const auto launch = version.launch;
    if (launch == gemm_mixed::launch_three_products && layout != gemm::Layout::NN) continue;
    row.launch = [&product, &workspace, launch](hipStream_t stream) {
      launch(product, workspace.data(), stream);
    };
    table.version(version, row);
  }
  p.run(std::string("fp32   ") + gemm::name_of(layout), table, report);
}

// The table of fp8.
void run_fp8(size_t M, size_t N, size_t K, const Options& options, Report& report) {
  if (!wants_any(options, gemm_mixed::kVersionsOfFp8)) return;
  Problem<gpu::fp8> p(M, N, K, options.seed);
  Measured row = p.measured(options);
  Measurement table(options);
  const bool takes_seconds = !options.sizes_given && M > kFp8Printed[0];
  for (const auto& version : gemm_mixed::kVersionsOfFp8) {
    const auto launch = version.launch;
    const bool is_naive = launch == gemm_mixed::launch_fp8_naive;
    row.skipped = is_naive && takes_seconds ? "takes seconds here" : "";
    row.launch = [&p, launch](hipStream_t stream) {
      launch(p.d_c.data(), p.d_a.data(), p.d_b.data(), p.M, p.N, p.K, stream);
    };
    table.version(version, row);
  }
  p.run("fp8   NT", table, report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "2.4",
      "gemm_mixed",
      "C = A B on matrix units: bf16, fp16, tf32, fp32, fp8",
      {{"M", 8192, 160, 129}, {"N", 8192, 160, 65}, {"K", 8192, 160, 255}},
      version_infos(gemm_mixed::kVersions<gpu::bfloat16>, gemm_mixed::kVersionsOfFloats,
                    gemm_mixed::kVersionsOfFp8, kVersionsOfLayouts<gpu::bfloat16>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const double M = static_cast<double>(options.sizes[0]);
    const double N = static_cast<double>(options.sizes[1]);
    const double K = static_cast<double>(options.sizes[2]);
    // Of tf32, the largest type, and of the floats that are rounded to it; or of floats and the
    // parts of A, or B in another layout and its copy.
    require_device_memory(sizeof(float) * (M * K + K * N + M * N + 2 * std::max(M * K, K * N)));
    report.limits(timing::measure_limits(options));
    report.headline(
        Problem<gpu::bfloat16>::title(gemm_mixed::kTypeName<gpu::bfloat16>, 8192, 8192, 8192));
    run<gpu::bfloat16>(options.sizes[0], options, report);
    run<gpu::half>(options.sizes[0], options, report);
    run<float>(options.sizes[0], options, report);
    if (options.sizes_given || options.quick || gemm_mixed::kOnCpu) {
      // The versions of floats and fp8 want rows of 16 bytes.
      const bool given = options.sizes_given;
      const size_t columns = given ? options.sizes[1] : options.sizes[1] / 4 * 4;
      const size_t depth = given ? options.sizes[2] : options.sizes[2] / 16 * 16;
      for (const auto layout : kLayoutsOfFloats)
        run_floats(layout, options.sizes[0], columns, depth, options, report);
      run_fp8(options.sizes[0], columns, depth, options, report);
      for (const auto layout : kLayoutsPrinted)
        run_layout<gpu::bfloat16>(layout, options.sizes[0], options.sizes[1], options.sizes[2],
                                  options, report);
      return;
    }
    for (const size_t rows : kFewRowsPrinted) run<gpu::bfloat16>(rows, options, report);
    for (const auto layout : kLayoutsOfFloats)
      for (const size_t size : kFloatsPrinted)
        run_floats(layout, size, size, size, options, report);
    for (const size_t size : kFp8Printed) run_fp8(size, size, size, options, report);
    for (const auto layout : kLayoutsPrinted)
      for (const size_t size : kFloatsPrinted)
        run_layout<gpu::bfloat16>(layout, size, size, size, options, report);
    constexpr size_t kSmaller = 4096;  // than what all versions are timed with
    run_layout<gpu::bfloat16>(gemm_mixed::Layout::NN, kSmaller, kSmaller, kSmaller, options,
                              report);
    run_layout<gpu::half>(gemm_mixed::Layout::NN, kSmaller, kSmaller, kSmaller, options, report);
  });
}
