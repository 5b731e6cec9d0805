// Runs, checks and times every version of the matrix product, and the layouts of those that have
// them.
#include "stage2_matrix/03_gemm/gemm.h"

#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage2_matrix/03_gemm/problem.h"
#include "stage2_matrix/03_gemm/reference.h"

using gemm::Layout;
using gpu::DeviceBuffer;

namespace {

// The product of a table on the device, and the rows of it that are compared.
struct Problem {
  Problem(const gemm::Table& table, std::uint64_t random_seed)
      : seed(random_seed),
        d_a(table.M * table.K),
        d_b(table.K * table.N),
        d_c(table.M * table.N),
        product(gemm::product_of(table)),
        sample(gemm::rows_of(table, seed)) {
    product.a = d_a.data(), product.b = d_b.data(), product.c = d_c.data();
  }

  // Fills A and B with integers in [-3, 3], whose sums stay below 2^24, so that float adds them
  // exactly in every order; or with numbers in [-1, 1). Computes the reference.
  void fill_integers() { fill(random_numbers::launch_fill_integers), is_exact = true; }
  void fill_uniform() { fill(random_numbers::launch_fill_uniform), is_exact = false; }

  void launch(const gemm::Launch& version, hipStream_t stream) const {
    const gemm::Product& p = product;
    if (version.general != nullptr) return version.general(p, stream);
    version.contiguous(p.c, p.a, p.b, p.M, p.N, p.K, stream);
  }
  Comparison compare() const {
    return sample.compare(d_c.data(), reference.c, [&](size_t i) {
      return is_exact ? 0 : gemm::bound_of_mean_zero(product, reference, i);
    });
  }

  std::uint64_t seed;
  DeviceBuffer<float> d_a, d_b, d_c;
  gemm::Product product;
  RowSample sample;
  gemm::Reference reference;
  bool is_exact = false;
  double reference_ms = 0;

 private:
  template <class Fill>
  void fill(Fill&& launch_fill) {
    launch_fill(d_a.data(), d_a.size(), seed, 0, nullptr);
    launch_fill(d_b.data(), d_b.size(), seed, 1, nullptr);
    const std::vector<float> a = d_a.to_host(), b = d_b.to_host();
    HostTimer timer;
    reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
    reference_ms = timer.ms();
  }
};

// The versions of a table: those asked for, as far as they take its product.
std::vector<Version<gemm::Launch>> versions_of(const gemm::Table& table, const Options& options) {
  std::vector<Version<gemm::Launch>> versions;
  for (const auto& version : gemm::kVersions) {
    const bool takes_nn = table.whole_ladder || !options.versions.empty();
    const bool takes_it =
        version.launch.general != nullptr || (table.layout == Layout::NN && takes_nn);
    if (takes_it && options.wants(version.name)) versions.push_back(version);
  }
  return versions;
}

void run(const gemm::Table& table, const Options& options, Report& report) {
  const auto versions = versions_of(table, options);
  if (versions.empty()) return;
  Problem p(table, options.seed);
  const double M = static_cast<double>(table.M), N = static_cast<double>(table.N);
  const double K = static_cast<double>(table.K);
  const auto measured = [&](auto launch) {
    Measured row{{sizeof(float) * (M * K + K * N + M * N), 2 * M * N * K, Work::Limit::fma},
                 launch,
                 [&] { return p.compare(); },
                 {{p.d_c.data(), p.d_c.bytes()}}};
    row.shape = {table.M, table.N};
    return row;
  };

  Measurement measurement(options);
  if (blas::available())
    measurement.peer(blas::name(), measured([&](hipStream_t stream) {
                       const gemm::Product& product = p.product;
                       blas::gemm(product.layout == Layout::TN, product.layout == Layout::NT,
                                  product.M, product.N, product.K, 1, product.a, product.lda,
                                  product.b, product.ldb, 0, product.c, product.ldc, stream);
                     }));
  for (const auto& version : versions)
    measurement.version(version, measured([&p, &version](hipStream_t stream) {
                          p.launch(version.launch, stream);
                        }));

  // Rounding must not hide a product that is missed or added twice: exact sums come first.
  p.fill_integers();
  measurement.check_exactly();
  p.fill_uniform();
  report.table(table.name(), p.sample.text.empty() ? p.reference_ms : 0, p.sample.text);
  measurement.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.3", "gemm", "C = A B", gemm::sizes(),
                            version_infos(gemm::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const std::vector<gemm::Table> tables = gemm::printed(
        options.sizes[0], options.sizes[1], options.sizes[2], options.sizes_given || options.quick);
    for (const gemm::Table& t : tables) {
      const double M = static_cast<double>(t.M), N = static_cast<double>(t.N);
      require_device_memory(sizeof(float) * ((M + N) * static_cast<double>(t.K) + M * N));
    }
    report.limits(timing::measure_limits(options));
    report.headline(tables[0].name());
    for (const gemm::Table& table : tables) run(table, options, report);
  });
}
