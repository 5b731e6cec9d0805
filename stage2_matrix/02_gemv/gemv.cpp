// Runs, checks and times every version of the matrix-vector product, and of the transposed one.
#include "stage2_matrix/02_gemv/gemv.h"

#include <algorithm>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage2_matrix/02_gemv/problem.h"
#include "stage2_matrix/02_gemv/reference.h"

namespace {

using gemv::Expected;
using gemv::Shape;
using gemv::Values;

// A and x, the place for y, and what the versions need beside them.
struct Arrays {
  explicit Arrays(const Shape& shape)
      : a(shape.rows * shape.cols),
        x(shape.terms()),
        y(shape.outputs()),
        product{shape.rows, shape.cols, 1, a.data(), shape.cols, x.data(), 0, y.data()},
        partials(gemv::workspace_bytes(shape.transposed, product) / sizeof(float)) {}

  void fill(Values values, std::uint64_t seed) {
    const auto launch_fill = values == Values::integers ? random_numbers::launch_fill_integers
                                                        : random_numbers::launch_fill_uniform;
    launch_fill(a.data(), a.size(), seed, 0, nullptr);
    launch_fill(x.data(), x.size(), seed, 1, nullptr);
  }

  gpu::DeviceBuffer<float> a, x, y;
  gemv::Product product;  // y = A x: alpha is 1 and beta 0
  gpu::DeviceBuffer<float> partials;
};

// One table: the product of a random matrix and a random vector by every version that was asked
// for.
void run(const Shape& shape, const Options& options, Report& report) {
  Arrays arrays(shape);
  const Expected exact = gemv::expect(shape, Values::integers, options.seed);
  const Expected expected = gemv::expect(shape, Values::uniform, options.seed);

  const double operations = 2 * static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  const Work work{shape.bytes(), operations, Work::Limit::read};
  const auto measured = [&](double depth, auto launch) {
    Measured result{work,
                    launch,
                    [&, depth] {
                      return expected.sample.compare(
                          arrays.y.data(), expected.values(),
                          [&](size_t i) { return gemv::bound(depth, expected.sums[i]); });
                    },
                    {{arrays.y.data(), arrays.y.bytes()}}};
    result.verify_exactly = [&] {
      return exact.sample.compare(arrays.y.data(), exact.values(), [](size_t) { return 0.0; });
    };
    return result;
  };
  Measurement table(options);
  if (blas::available())
    table.peer(blas::name(), measured(static_cast<double>(shape.terms()), [&](hipStream_t stream) {
                 const gemv::Product& p = arrays.product;
                 blas::gemv(shape.transposed, p.rows, p.cols, p.alpha, p.a, p.lda, p.x, p.beta, p.y,
                            stream);
               }));
  for (const auto& version : gemv::kVersions) {
    const gemv::Launch& launch = version.launch;
    if (launch.transposed != shape.transposed) continue;
    table.version(version, measured(launch.depth(arrays.product), [&](hipStream_t stream) {
                    launch(arrays.product, {arrays.partials.data()}, stream);
                  }));
  }
  arrays.fill(Values::integers, options.seed);
  table.check_exactly();
  arrays.fill(Values::uniform, options.seed);
  report.table(shape.name(), expected.sample.text.empty() ? expected.reference_ms : 0,
               expected.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.2", "gemv", "y = alpha A x + beta y, and with A transposed",
                            gemv::sizes(), version_infos(gemv::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const std::vector<Shape> shapes =
        gemv::printed(options.sizes[0], options.sizes[1], options.sizes_given);
    require_device_memory(shapes[0].bytes() + sizeof(float) * double{gemv::kMaxPartials});
    report.limits(timing::measure_limits(options));
    report.headline(shapes[0].name());
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
