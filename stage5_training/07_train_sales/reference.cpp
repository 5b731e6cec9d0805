#include "stage5_training/07_train_sales/reference.h"

#include <cmath>

#include "common/rounding.h"
#include "stage5_training/04_optimizers/reference.h"

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

namespace {

// The network in double, and its training by the settings.
class Reference {
 public:
  // rows: the training split. The first twin decides otherwise where a float version might: whether
  // a hidden unit's sum that is nearly 0 is above ReLU's corner.
  Reference(const std::vector<float>& parameters, const std::vector<float4>& rows,
            const Batches& batches, const Settings& settings, unsigned twin)
      : rows_(rows),
        batches_(batches),
        settings_(settings),
        twin_(twin),
        elements_(parameters.size()) {
    for (size_t i = 0; i < elements_.size(); ++i)
      elements_[i].w = static_cast<double>(parameters[i]);
  }

  // The loss of step number `step`, the first being 0; leaves its gradient, and takes it.
  double step(size_t step) {
    gradient_.assign(elements_.size(), 0);
    double loss = 0;
    for (size_t sample = 0; sample < batches_.batch; ++sample)
      loss += sale(rows_.data() + batches_.row(step, sample) * kParts);
    // One rounding of each gradient: less than any version has made of it.
    const std::vector<float> rounded(gradient_.begin(), gradient_.end());
    optimizers::step_cpu(settings_.kind, settings_.hyper, step + 1, rounded, elements_);
    train_toy::Twins::move(elements_, twin_, step + 1);
    return loss;
  }
  const std::vector<double>& gradient() const { return gradient_; }

 private:
  // Its share in the loss; adds to the gradient.
  double sale(const float4* row) {
    constexpr size_t kBiases = size_t{kHidden} * kFeatures, kOuts = kBiases + kHidden;
    const double n = static_cast<double>(batches_.batch);
    double x[kFeatures], sums[kHidden], y = elements_.back().w;
    bool passes[kHidden];
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float values[] = {row[part].x, row[part].y, row[part].z, row[part].w};
      for (unsigned i = 0; i < 4; ++i) x[4 * part + i] = static_cast<double>(values[i]);
    }
    for (size_t unit = 0; unit < kHidden; ++unit) {
      double sum = elements_[kBiases + unit].w, terms = std::fabs(sum);
      for (size_t k = 0; k < kFeatures; ++k) {
        const double term = elements_[unit * kFeatures + k].w * x[k];
        sum += term, terms += std::fabs(term);
      }
      // What a float version's sum usually is off: sqrt(n) u of its terms.
      const double doubt = 2 * std::sqrt(double{kFeatures}) * kFloatRoundoff * terms;
      passes[unit] = (sum > 0) != (twin_ == 1 && sum != 0 && std::fabs(sum) <= doubt);
      sums[unit] = sum;
      y += std::fmax(sum, 0.0) * elements_[kOuts + unit].w;
    }
    const double error = y - static_cast<double>(row[kFeatureParts].x);
    const double grad_y = 2 * error / n;
    gradient_.back() += grad_y;
    for (size_t unit = 0; unit < kHidden; ++unit) {
      if (!passes[unit]) continue;
      const double grad_sum = grad_y * elements_[kOuts + unit].w;
      gradient_[kOuts + unit] += grad_y * sums[unit];
      gradient_[kBiases + unit] += grad_sum;
      for (size_t k = 0; k < kFeatures; ++k) gradient_[unit * kFeatures + k] += grad_sum * x[k];
    }
    return error * error / n;
  }

  const std::vector<float4>& rows_;
  Batches batches_;
  Settings settings_;
  unsigned twin_;
  std::vector<optimizers::Element> elements_;
  std::vector<double> gradient_;
};

}  // namespace

Trajectory trajectory_cpu(const std::vector<float>& parameters, const std::vector<float4>& rows,
                          const Batches& batches, const Settings& settings, size_t steps) {
  return train_toy::follow(
      steps, 3, train_toy::Twins(10),
      [&](unsigned twin) {
        return Reference(train_toy::Twins::beside(parameters, twin), rows, batches, settings, twin);
      },
      [](Reference& run, std::uint64_t t) { return run.step(t - 1); });
}

}  // namespace train_sales
