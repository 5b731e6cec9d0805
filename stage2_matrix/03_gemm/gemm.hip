// Runs, checks and times every version of the matrix product, in all layouts.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/blas.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/03_gemm/gemm.h"

using device_matrix::DeviceBuffer;
using gemm::Layout;

namespace {

constexpr size_t kFastVersions = 4;  // the last ones of kVersions, shown at every size and layout
constexpr bool kOnGpu = std::string_view(gpu::kBackend) != "cpu";
constexpr int kCpuRepeat = 3;  // timed launches there, unless --repeat says other

const char* name_of(Layout layout) {
  return layout == Layout::NN ? "NN" : layout == Layout::NT ? "NT" : "TN";
}

// values[i] = the integer nearest to 3 values[i].
static __global__ void round_to_integers(float* values, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    values[i] = rintf(3.0f * values[i]);
}

// C = op(A) op(B) on the device, and the rows of it that are compared. As many rows as the host
// multiplies in a moment, and never fewer than kFewRows.
struct Problem {
  static constexpr size_t kFewRows = 8;

  Problem(Layout layout, size_t M, size_t N, size_t K, std::uint64_t random_seed)
      : seed(random_seed), d_a(M * K), d_b(K * N), d_c(M * N) {
    const size_t row_cost = std::max(N * K, size_t{1});
    sample = choose_rows(M, N, std::max((size_t{1} << 28) / row_cost, kFewRows), seed);
    product.layout = layout, product.M = M, product.N = N, product.K = K;
    product.a = d_a.data(), product.b = d_b.data(), product.c = d_c.data();
    product.lda = std::max(layout == Layout::TN ? M : K, size_t{1});
    product.ldb = std::max(layout == Layout::NT ? K : N, size_t{1});
    product.ldc = std::max(N, size_t{1});
  }

  // Fills A and B with numbers in [-1, 1), or with integers in [-3, 3], and computes the reference.
  // The integers' sums stay far below 2^24, so that float adds them exactly in every order.
  void fill(bool integers) {
    std::uint32_t stream = 0;
    for (DeviceBuffer<float>* matrix : {&d_a, &d_b}) {
      random_numbers::launch_fill_uniform(matrix->data(), matrix->size(), seed, stream++);
      if (integers && matrix->size() > 0)
        LAUNCH(round_to_integers, vector_add::grid_stride_blocks(matrix->size()),
               vector_add::kBlock, 0, matrix->data(), matrix->size());
    }
    const std::vector<float> a = d_a.to_host(), b = d_b.to_host();
    HostTimer timer;
    reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
    reference_ms = timer.ms();
  }
  Comparison compare(bool exact) const {
    return sample.compare(d_c.data(), reference.c,
                          [&](size_t i) { return exact ? 0 : gemm::bound(product, reference, i); });
  }

  std::uint64_t seed;
  DeviceBuffer<float> d_a, d_b, d_c;
  gemm::Product product;
  RowSample sample;
  gemm::Reference reference;
  double reference_ms = 0;
};

// One table: the vendor's library, then the versions asked for, or else all of the ladder or its
// fast end.
void run(Problem& p, bool whole_ladder, const Options& options, Report& report) {
  const gemm::Product& product = p.product;
  const size_t slow = std::size(gemm::kVersions) - kFastVersions;
  const int repeat = options.repeat > 0 || kOnGpu ? options.repeat : kCpuRepeat;
  std::vector<Version<gemm::Launch>> versions;
  for (size_t v = 0; v < std::size(gemm::kVersions); ++v)
    if (options.wants(gemm::kVersions[v].name) &&
        (whole_ladder || v >= slow || !options.versions.empty()))
      versions.push_back(gemm::kVersions[v]);

  // Rounding must not hide a product that is missed or added twice: first exact sums.
  p.fill(true);
  std::vector<Comparison> exact;
  for (const auto& version : versions) {
    p.d_c.poison();
    version.launch(product, nullptr);
    exact.push_back(p.compare(true));
  }

  p.fill(false);
  const double M = static_cast<double>(product.M), N = static_cast<double>(product.N);
  const double K = static_cast<double>(product.K);
  report.table(std::string(name_of(product.layout)) + "   M=" + size_text(product.M) +
                   " N=" + size_text(product.N) + " K=" + size_text(product.K) + " float32",
               p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  const Work work{sizeof(float) * (M * K + K * N + M * N), 2 * M * N * K, Work::Limit::fma};
  const std::vector<std::pair<void*, size_t>> outputs = {{p.d_c.data(), p.d_c.bytes()}};
  if (blas::available()) {
    Row row = measure(
        blas::name(), "", Needs::Any, work, outputs, repeat,
        [&] {
          blas::gemm(product.layout == Layout::TN, product.layout == Layout::NT, product.M,
                     product.N, product.K, 1, product.a, product.lda, product.b, product.ldb, 0,
                     product.c, product.ldc);
        },
        [&] { return p.compare(false); });
    row.peer = true, row.shape = {product.M, product.N};
    report.add(row);
  }
  for (size_t v = 0; v < versions.size(); ++v) {
    Row row = measure(
        versions[v].name, versions[v].lesson, versions[v].needs, work, outputs, repeat,
        [&] { versions[v].launch(product, nullptr); },
        [&] { return exact[v].ok ? p.compare(false) : exact[v]; });
    row.shape = {product.M, product.N};
    report.add(row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.3",
                            "gemm",
                            "C = A B",
                            {{"M", 4096, 384, 129}, {"N", 4096, 384, 65}, {"K", 4096, 384, 255}},
                            version_infos(gemm::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    struct Table {
      Layout layout;
      size_t M, N, K;
      bool whole_ladder;
    };
    const size_t M = options.sizes[0], N = options.sizes[1], K = options.sizes[2];
    std::vector<Table> tables = {{Layout::NN, M, N, K, true}};
    if (kOnGpu && !options.sizes_given && !options.quick)
      tables.push_back({Layout::NN, 2 * M, 2 * N, 2 * K, false});
    tables.push_back({Layout::NT, M, N, K, false});
    tables.push_back({Layout::TN, M, N, K, false});
    for (const Table& t : tables) {
      const double m = static_cast<double>(t.M), n = static_cast<double>(t.N);
      require_device_memory(sizeof(float) *
                            (m * static_cast<double>(t.K) + n * static_cast<double>(t.K) + m * n));
    }
    report.limits(timing::measure_limits(options));
    for (const Table& t : tables) {
      Problem problem(t.layout, t.M, t.N, t.K, options.seed);
      run(problem, t.whole_ladder, options, report);
    }
  });
}
