// Checks the gradients of every layer and loss against finite differences.
#include "stage5_training/03_gradient_check/gradient_check.h"

#include <cstdio>
#include <string>

#include "common/program.h"
#include "common/timer.h"

using gradient_check::Case;
using gradient_check::Finding;
using gradient_check::Sizes;

namespace {

// Multiplications of one loss times parameters to be moved: some minutes of the host's time.
constexpr double kMostWork = 1e11;

void require_little_work(const Sizes& sizes) {
  const double batch = static_cast<double>(sizes.batch), in = static_cast<double>(sizes.in);
  const double out = static_cast<double>(sizes.out);
  if (batch * in * (in + out) * (batch * in + in * in + in * out) > kMostWork)
    throw UsageError(
        "--size: the loss is computed twice for every parameter; that would take hours");
}

// As a row: the relative error of the worst parameter, held against the tolerance.
Row row_of(const Version<gradient_check::MakeCase>& version, const Sizes& sizes,
           std::uint64_t seed) {
  version.launch(sizes, seed);  // a GPU loads kernels at their first launch: that is not timed
  HostTimer timer;
  Case c = version.launch(sizes, seed);
  Finding found = gradient_check::check(c);
  if (found.ok && version.launch == gradient_check::dense_layer) {  // linear: integers are exact
    const Case of_integers = gradient_check::dense_layer_of_integers(sizes, seed);
    const Finding exactly = gradient_check::check_exactly(of_integers);
    if (!exactly.ok) c = of_integers, found = exactly;
  }
  Row row;
  row.name = version.name, row.lesson = version.lesson;
  row.ms = row.ms_p10 = row.ms_p90 = timer.ms();
  row.work.limit = Work::Limit::none;
  row.check.ok = found.ok, row.check.compared = found.checked, row.check.failed = found.failed;
  row.check.max_error = found.error, row.check.bound = gradient_check::kTolerance;
  row.check.of_bound = found.error / gradient_check::kTolerance;
  row.check.index = found.index, row.check.got = found.analytic, row.check.want = found.numeric;
  row.shape = c.arguments[found.argument].shape;
  char text[160];
  std::snprintf(text, sizeof text, "worst of %zu: %s = %.7g, numerically %.7g%s", found.checked,
                gradient_check::name_of(c.arguments[found.argument], found.index).c_str(),
                found.analytic, found.numeric, found.kink ? ", at a kink" : "");
  row.note = text;
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.3",
                            "gradient_check",
                            "every gradient against (L(p + h) - L(p - h)) / 2h",
                            {{"batch", 17, 17, 5}, {"in", 33, 33, 7}, {"out", 19, 19, 6}},
                            version_infos(gradient_check::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Sizes sizes{options.sizes[0], options.sizes[1], options.sizes[2]};
    require_little_work(sizes);
    report.table("relative errors, batch " + std::to_string(sizes.batch) + ", " +
                 std::to_string(sizes.in) + " -> " + std::to_string(sizes.out));
    for (const auto& version : gradient_check::kVersions)
      if (options.wants(version.name)) report.add(row_of(version, sizes, options.seed));
  });
}
