// Provokes errors and shows what HIP_CHECK says about each. The CPU backend explains some of them
// in a further line on stderr.
#include "stage0_infra/02_error_check/error_check.h"

#include <string>

#include "common/program.h"
#include "stage0_infra/02_error_check/reference.h"

int main(int argc, char** argv) {
  const ProgramInfo program{"0.2",
                            "error_check",
                            "errors, provoked and caught",
                            {},
                            version_infos(error_check::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    report.table("provoked errors");
    const bool on_amd = gpu::kBackend == std::string("hip");
    bool device_lost = false;
    for (const auto& version : error_check::kVersions) {
      if (!options.wants(version.name)) continue;
      Row row;
      row.name = version.name, row.lesson = version.lesson;
      row.work.limit = Work::Limit::none;
      const bool asked_for = !options.versions.empty();
      if (version.launch.loses_device && !asked_for && (options.quick || on_amd)) {
        row.skipped = std::string("only with --version ") + version.name +
                      (on_amd ? ": AMD's runtime ends the process" : ": it costs the device");
        report.add(row);
        continue;
      }
      const gpu::Error error = version.launch.provoke();
      if (error.code == hipSuccess && on_amd && !version.launch.reported_on_amd) {
        row.skipped = error.what();
        report.add(row);
        continue;
      }
      row.check = error_check::check_report(error, version.name);
      report.add(row);
      report.line(std::string("    ") + error.what());
      report.fact(std::string(version.name) + " code", error.code, "");
      device_lost = device_lost || version.launch.loses_device;
    }
    if (device_lost) {
      const gpu::Error after = error_check::caught([] { HIP_CHECK(hipDeviceSynchronize()); });
      report.line("after the fault, an innocent call:");
      report.line(std::string("    ") + after.what());
      // The CPU backend's device comes back, NVIDIA's does not.
      static_cast<void>(hipDeviceReset());
    }
  });
}
