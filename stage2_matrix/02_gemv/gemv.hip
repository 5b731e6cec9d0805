// Runs, checks and times every version of the matrix-vector product, and of the transposed one.
#include <algorithm>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/02_gemv/gemv.h"

using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr size_t kComparedElements = 256;  // of y, where it has more
constexpr float kAlpha = 1.25f;            // beta is 0: y is poisoned and must not be read

struct Shape {
  bool transposed;
  size_t rows, cols;  // of A
  size_t terms() const { return transposed ? rows : cols; }
  size_t outputs() const { return transposed ? cols : rows; }
  // What is read and written at least.
  double bytes() const {
    const double m = static_cast<double>(rows), n = static_cast<double>(cols);
    return sizeof(float) * (m * n + m + n);
  }
};

// One table: the product of a random matrix and a random vector by every version that was asked
// for.
void run(const Shape& shape, const Options& options, Report& report) {
  const size_t rows = shape.rows, cols = shape.cols;
  Matrix<float> a(rows, cols);
  DeviceBuffer<float> d_x(shape.terms()), d_y(shape.outputs()), d_partials(gemv::kMaxPartials);
  random_numbers::launch_fill_uniform(a.data(), a.size(), options.seed, 0);
  random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), options.seed, 1);
  const gemv::Product product{rows, cols, kAlpha, a.data(), cols, d_x.data(), 0.0f, d_y.data()};

  // Element i of A is number i of the sequence that fills it: no need to fetch A.
  const RowSample sample = choose_rows(shape.outputs(), 1, kComparedElements, options.seed);
  const std::vector<float> x = d_x.to_host();
  std::vector<double> want, absolute;
  double reference_ms = 0;
  for (const size_t i : sample.rows) {
    std::vector<float> line(shape.terms());
    for (size_t k = 0; k < line.size(); ++k)
      line[k] =
          random_numbers::uniform(options.seed, 0, shape.transposed ? k * cols + i : i * cols + k);
    HostTimer timer;
    const gemv::Reference reference = gemv::gemv_cpu(kAlpha, line, x, 0.0f, 0.0f);
    reference_ms += timer.ms();
    want.push_back(reference.y), absolute.push_back(reference.absolute);
  }
  report.table((shape.transposed ? "y = alpha A^T x   A " : "y = alpha A x   A ") +
                   size_text(rows) + "x" + size_text(cols) + " float32",
               sample.text.empty() ? reference_ms : 0, sample.text);

  const double terms = static_cast<double>(shape.terms());
  const Work work{shape.bytes(), 2 * static_cast<double>(rows) * static_cast<double>(cols),
                  Work::Limit::read};
  const auto measure_row = [&](const char* name, const char* lesson, Needs needs, double roundings,
                               auto&& launch) {
    return measure(name, lesson, needs, work, {{d_y.data(), d_y.bytes()}}, options.repeat, launch,
                   [&] {
                     return sample.compare(d_y.data(), want, [&](size_t i) {
                       return gemv::bound(roundings, terms, absolute[i]);
                     });
                   });
  };
  if (blas::available()) {
    Row row = measure_row(blas::name(), "", Needs::Any, terms, [&] {
      blas::gemv(shape.transposed, rows, cols, kAlpha, a.data(), cols, d_x.data(), 0.0f,
                 d_y.data());
    });
    row.peer = true;
    report.add(row);
  }
  for (const auto& version : gemv::kVersions) {
    if (version.launch.transposed != shape.transposed || !options.wants(version.name)) continue;
    report.add(measure_row(version.name, version.lesson, version.needs,
                           version.launch.roundings(product),
                           [&] { version.launch.run(product, {d_partials.data()}, nullptr); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.2",
                            "gemv",
                            "y = alpha A x + beta y, and with A transposed",
                            {{"rows", 16384, 512, 43}, {"cols", 16384, 2048, 203}},
                            version_infos(gemv::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    std::vector<Shape> shapes = {{false, rows, cols}};
    if (!options.sizes_given) {  // fewer and longer rows
      shapes.push_back({false, rows / 16, 4 * cols});
      shapes.push_back({false, std::max(rows / 128, size_t{1}), 32 * cols});
    }
    shapes.push_back({true, rows, cols});
    require_device_memory(shapes[0].bytes() + sizeof(float) * double{gemv::kMaxPartials});
    report.limits(timing::measure_limits(options));
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
