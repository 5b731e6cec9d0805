#include "stage5_training/07_train_sales/reference.h"

#include <cmath>

#include "common/rounding.h"
#include "stage5_training/06_train_toy/reference.h"

namespace train_sales {

std::vector<double> row_cpu(const Sale& sale, const Normalization& normalization) {
  std::vector<double> row(4 * kParts);
  if (sale.category < kCategories) row[sale.category] = 1;
  const double angle = 2 * std::acos(-1.0) * static_cast<double>(place_in_year(sale.day));
  row[kYearSine] = std::sin(angle), row[kYearCosine] = std::cos(angle);
  row[kHalfYearSine] = std::sin(2 * angle), row[kHalfYearCosine] = std::cos(2 * angle);
  row[kWeekend] = is_weekend(sale.day);
  const double quantity = static_cast<double>(sale.quantity);
  const double unit_price = static_cast<double>(sale.unit_price);
  const double measures[] = {quantity, std::log1p(unit_price), quantity * unit_price,
                             static_cast<double>(sale.total)};
  for (unsigned which = 0; which < kMeasures; ++which)
    row[kQuantity + which] = (measures[which] - static_cast<double>(normalization.mean[which])) *
                             static_cast<double>(normalization.scale[which]);
  return row;
}

double row_bound(double wanted, unsigned column, const Normalization& normalization) {
  constexpr double u = kFloatRoundoff, kAngle = 4 * 3.2;
  if (column < kYearSine || column == kWeekend) return 0;
  if (column < kWeekend) return 3 * u * kAngle + 4 * u;
  if (column > kFeatures) return 0;
  const double mean = std::fabs(static_cast<double>(normalization.mean[column - kQuantity]));
  const double scale = static_cast<double>(normalization.scale[column - kQuantity]);
  return u * (4 * (std::fabs(wanted) + mean * scale) + 3 * std::fabs(wanted));
}

Trajectory trajectory_cpu(const Sequential& model, const std::vector<float>& parameters,
                          const std::vector<float4>& rows, const Sampler& sampler,
                          const Settings& settings, size_t steps) {
  const auto row = [&](std::uint64_t step, size_t sample) {
    return rows.data() + sampler.row(step, sample) * kParts;
  };
  const train_toy::Examples sales{[&](std::uint64_t step) {
                                    std::vector<float> x;
                                    for (size_t sample = 0; sample < sampler.batch; ++sample)
                                      for (unsigned part = 0; part < kFeatureParts; ++part) {
                                        const float4 values = row(step, sample)[part];
                                        x.insert(x.end(), {values.x, values.y, values.z, values.w});
                                      }
                                    return dense::exactly(x);
                                  },
                                  [&](std::uint64_t step, const sequential::Values& y, bool) {
                                    std::vector<float> targets;
                                    for (size_t sample = 0; sample < sampler.batch; ++sample)
                                      targets.push_back(row(step, sample)[kFeatureParts].x);
                                    return sequential::mean_squared_error_cpu(y, targets);
                                  }};
  return train_toy::trajectory_cpu(model, parameters, settings, sampler.batch, sales, steps,
                                   train_toy::Twins(10));
}

}  // namespace train_sales
