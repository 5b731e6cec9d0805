// A matrix in device memory: filled, printed, and what allocating and copying it costs.
#include "stage0_infra/04_device_matrix/device_matrix.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/measure.h"
#include "common/program.h"
#include "common/timer.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/reference.h"

int main(int argc, char** argv) {
  const ProgramInfo program{"0.4",
                            "device_matrix",
                            "device memory with an owner",
                            {{"rows", 4096, 4096, 257}, {"cols", 4096, 4096, 1023}},
                            version_infos(device_matrix::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    require_device_memory(static_cast<double>(rows) * static_cast<double>(cols) * sizeof(float));
    report.limits(timing::measure_limits(options));
    constexpr float kValue = 3.14f;

    // A matrix small enough to look at.
    device_matrix::Matrix<float> small(4, 4);
    small.fill(kValue);
    report.line("4x4, filled on the device:\n" + to_string(small));

    device_matrix::Matrix<float> matrix(rows, cols);
    report.table(std::to_string(rows) + "x" + std::to_string(cols) + " float32");
    Measurement table(options);
    for (const auto& version : device_matrix::kVersions) {
      const auto launch = [&](hipStream_t stream) {
        version.launch(matrix.data(), rows, cols, kValue, stream);
      };
      Measured measured{{static_cast<double>(matrix.bytes()), 0, Work::Limit::none},
                        launch,
                        [&] { return device_matrix::compare_fill(matrix.to_host(), kValue); },
                        {{matrix.data(), matrix.bytes()}}};
      measured.shape = {rows, cols};
      table.version(version, measured);
    }
    table.run(report);

    // To the device and back: every bit must arrive. The values are random bits, NaNs included.
    std::vector<float> host(matrix.size());
    for (size_t i = 0; i < host.size(); ++i) {
      const std::uint32_t bits = static_cast<std::uint32_t>((i + options.seed) * 2654435761u);
      std::memcpy(&host[i], &bits, sizeof bits);
    }
    std::vector<float> back;
    const int repeat = options.repeat > 0 ? options.repeat : 3;
    const Timing allocate = time_host([&] { device_matrix::Matrix<float>(rows, cols); }, repeat);
    const Timing upload = time_host([&] { matrix.to_device(host); }, repeat);
    const Timing download = time_host([&] { back = matrix.to_host(); }, repeat);

    Row round_trip;
    round_trip.name = "transfers", round_trip.lesson = "to_device, to_host: the same bits";
    round_trip.work = {2.0 * static_cast<double>(matrix.bytes()), 0, Work::Limit::none};
    round_trip.ms = round_trip.ms_p10 = round_trip.ms_p90 = upload.median + download.median;
    round_trip.check = device_matrix::compare_bits(back, host);
    round_trip.shape = {rows, cols};
    report.add(round_trip);
    report.fact("allocate and free", allocate.median, "ms");
    report.fact("to_device", upload.median, "ms");
    report.fact("to_host", download.median, "ms");
  });
}
