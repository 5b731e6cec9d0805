// Runs and checks the eight kernels of 0.6.
#include "stage0_infra/06_first_kernels/first_kernels.h"

#include <optional>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/sizes.h"

namespace {

constexpr size_t kMost = (size_t{1} << 31) - 1;  // elements

// The measured launch of one kernel: `want` outlives it.
Measured measured(const first_kernels::Launch& launch, const gpu::DeviceBuffer<int>& x,
                  gpu::DeviceBuffer<int>& out, const std::vector<double>& want, size_t rows,
                  size_t cols) {
  const Work work{static_cast<double>(sizeof(int) * (x.size() + want.size())), 0,
                  Work::Limit::none};
  return {work,
          [&launch, &x, &out, rows, cols](hipStream_t stream) {
            launch.run(out.data(), x.data(), rows, cols, stream);
          },
          [&out, &want] {
            const std::vector<int> got = out.to_host();
            return compare(
                want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
                [](size_t) { return 0.0; });
          },
          {{out.data(), out.bytes()}}};
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"0.6",
                            "first_kernels",
                            "eight kernels of a few lines",
                            {{"rows", 1024, 256, 37}, {"cols", 1024, 256, 29}},
                            version_infos(first_kernels::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    const std::optional<size_t> product = sizes::product({rows, cols}, kMost);
    if (!product)
      throw UsageError("--size rows x cols: at most " + std::to_string(kMost) + " elements");
    const size_t n = *product;
    require_device_memory(2.0 * sizeof(int) * static_cast<double>(n));
    sizes::require_host_memory(20.0 * static_cast<double>(n));  // x, got and two results in double

    const std::vector<int> elements = first_kernels::random_elements(rows, cols, options.seed);
    const gpu::DeviceBuffer<int> x(elements);
    report.table(std::to_string(rows) + "x" + std::to_string(cols) + " int32");
    for (const auto& version : first_kernels::kVersions) {
      const std::vector<double> want = version.launch.want(elements, rows, cols);
      gpu::DeviceBuffer<int> out(want.size());
      Measurement table(options);
      table.version(version, measured(version.launch, x, out, want, rows, cols));
      table.run(report);
    }
  });
}
