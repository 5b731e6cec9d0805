// Provokes errors of every kind and shows what HIP_CHECK says about each. The CPU backend explains
// some of them in a further line on stderr.
#include "stage0_infra/02_error_check/error_check.h"

int main(int argc, char** argv) {
  const ProgramInfo program{"0.2",
                            "error_check",
                            "errors, provoked and caught",
                            {},
                            version_infos(error_check::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    report.table("provoked errors");
    bool device_lost = false;
    for (const auto& version : error_check::kVersions) {
      if (!options.wants(version.name)) continue;
      Row row;
      row.name = version.name, row.lesson = version.lesson;
      row.work.limit = Work::Limit::none;
      const bool asked_for = !options.versions.empty();
      const bool on_amd = gpu::kBackend == std::string("hip");
      if (error_check::loses_device(version.name) && !asked_for && (options.quick || on_amd)) {
        row.skipped = std::string("only with --version ") + version.name +
                      (on_amd ? ": AMD's runtime ends the process" : ": it costs the device");
        report.add(row);
        continue;
      }
      const gpu::Error error = version.launch();
      if (error.code == hipSuccess && on_amd && error_check::uncaught_on_amd(version.name)) {
        row.skipped = error.what();
        report.add(row);
        continue;
      }
      // Right is: an error was caught, and its text names a line of the header that provoked it.
      const error_check::Place place = error_check::place_of(error);
      const bool named = error.code != hipSuccess && place.line > 0 &&
                         place.file.find("error_check.h") != std::string::npos;
      row.check = compare(
          1, [&](size_t) { return named ? 1.0 : 0.0; }, [](size_t) { return 1.0; },
          [](size_t) { return 0.0; });
      report.add(row);
      report.line(std::string("    ") + error.what());
      report.fact(std::string(version.name) + " code", error.code, "");
      device_lost = device_lost || error_check::loses_device(version.name);
    }
    if (device_lost) {
      const gpu::Error after = error_check::caught([] { HIP_CHECK(hipDeviceSynchronize()); });
      report.line("after the fault, an innocent call:");
      report.line(std::string("    ") + after.what());
      static_cast<void>(
          hipDeviceReset());  // the CPU backend's device comes back, NVIDIA's does not
    }
  });
}
