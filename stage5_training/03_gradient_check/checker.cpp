#include "stage5_training/03_gradient_check/checker.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/device_buffer.h"

namespace gradient_check {

double relative_error(double analytic, double numeric, double floor) {
  if (analytic == numeric) return 0;
  const double error =
      std::fabs(analytic - numeric) / std::max({std::fabs(analytic), std::fabs(numeric), floor});
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<std::vector<float>> device_gradients(const Case& c) {
  std::vector<gpu::DeviceBuffer<float>> values, gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const Argument& argument : c.arguments) {
    values.emplace_back(argument.values), gradients.emplace_back(argument.values.size());
    gradients.back().poison();
    from.push_back(values.back().data()), to.push_back(gradients.back().data());
  }
  c.backward(to, from);
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<std::vector<float>> result;
  for (const gpu::DeviceBuffer<float>& gradient : gradients) result.push_back(gradient.to_host());
  return result;
}

namespace {

// An error of 0 always passes.
Finding check_within(double tolerance, const Case& c) {
  const std::vector<std::vector<float>> analytic = device_gradients(c);
  std::vector<std::vector<double>> values = wide(c.arguments);
  const double here = c.loss(values);
  const double noise = 10 * kDoubleRoundoff * std::max(1.0, std::fabs(here)) / kStep;
  const auto passes = [&](double error) { return error == 0 || error < tolerance; };

  Finding worst;
  worst.error = -1;
  for (size_t a = 0; a < values.size(); ++a) {
    std::vector<Slopes> slopes;
    std::vector<double> numeric;
    for (size_t i = 0; i < values[a].size(); ++i) {
      slopes.push_back(difference_quotients(c.loss, values, a, i, here));
      numeric.push_back(slopes.back().central);
    }
    const double floor = std::max(root_mean_square(numeric), noise / kTolerance);
    for (size_t i = 0; i < numeric.size(); ++i) {
      const double got = static_cast<double>(analytic[a][i]);
      const double error = relative_error(got, numeric[i], floor);
      ++worst.checked;
      if (!passes(error)) ++worst.failed;
      if (error <= worst.error) continue;
      worst.argument = a, worst.index = i, worst.error = error;
      worst.analytic = got, worst.numeric = numeric[i];
      // Of a smooth loss the two sides differ by about h L''.
      worst.kink = !passes(relative_error(slopes[i].above, slopes[i].below, floor));
    }
  }
  worst.error = std::max(worst.error, 0.0);
  worst.ok = worst.failed == 0;
  worst.kink = worst.kink && !worst.ok;
  return worst;
}

}  // namespace

Finding check(const Case& c) { return check_within(kTolerance, c); }
Finding check_exactly(const Case& c) { return check_within(0, c); }

}  // namespace gradient_check
