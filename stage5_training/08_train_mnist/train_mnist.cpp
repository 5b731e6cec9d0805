// Trains a network of two layers on MNIST by every version: checks the first steps, times the
// training, tests what was learnt, and shows what is still mistaken for what.
#include <algorithm>
#include <iterator>
#include <string>

#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

using train_mnist::kClasses;
using train_mnist::kPixels;
using train_mnist::Training;

namespace {

// The products of so many steps: forward, and backward to the weights and to the hidden units.
Work work_of(const train_mnist::Settings& settings, double steps) {
  const double hidden = static_cast<double>(settings.hidden);
  const double batch = static_cast<double>(settings.batch);
  return {0, steps * batch * hidden * (4.0 * kPixels + 6.0 * kClasses), Work::Limit::fma};
}

void run(const Options& options, const mnist::Data& data, Report& report) {
  const mnist::DeviceDigits images(data.digits.train);
  const train_mnist::Settings settings = mnist::settings_of(options);
  Training training(settings, images.samples());
  HostTimer timer;
  mnist::Trajectory want;
  if (!options.training.resume)
    want = mnist::trajectory_cpu(training, data.digits.train,
                                 std::min(mnist::kCheckedSteps, training.steps_per_epoch()));
  const double reference_ms = want.losses.empty() ? 0 : timer.ms();
  const std::string network = std::to_string(kPixels) + "-" + std::to_string(settings.hidden) +
                              "-" + std::to_string(kClasses);
  report.table(mnist::problem_text(network, options, data), reference_ms,
               mnist::checked_text(want));
  mnist::run_versions(training, train_mnist::kVersions, train_mnist::best(training), want, data,
                      {train_mnist::kDefaults,
                       {std::begin(train_mnist::kPromises), std::end(train_mnist::kPromises)}},
                      options, report, [&](double steps) { return work_of(settings, steps); });
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"5.8",
                      "train_mnist",
                      "a network of two layers learns to read digits",
                      {{"hidden", 128, 128, 24}, {"images", 60000, 20000, 1300}},
                      version_infos(train_mnist::kVersions)};
  program.training = train_mnist::kDefaults;
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    require_device_memory(4.0 * sizeof(float) * kPixels *
                          static_cast<double>(options.sizes[0] + options.training.batch));
    // The reference keeps the weights, their gradients and two moments in double.
    sizes::require_host_memory(4.0 * sizeof(double) * kPixels *
                               static_cast<double>(options.sizes[0]));
    const mnist::Data data = mnist::find_data(options, report);
    if (!options.training.evaluate.empty()) {
      train_mnist::Sequential model = train_mnist::make_model(options.sizes[0]);
      return mnist::evaluate(model, options, data, report);
    }
    report.limits(timing::measure_limits(options));
    run(options, data, report);
  });
}
