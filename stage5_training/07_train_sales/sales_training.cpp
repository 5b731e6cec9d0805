#include "stage5_training/07_train_sales/sales_training.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "stage5_training/07_train_sales/checkpoint.h"
#include "stage5_training/07_train_sales/detail/slots.h"

namespace train_sales {

Sequential make_model() {
  return Sequential{sequential::Linear(kFeatures, kHidden), sequential::ReLU(),
                    sequential::Linear(kHidden, 1)};
}

Training::Training(const float4* train_rows, size_t count, const Settings& wanted,
                   const std::string& sales_source)
    : Training(train_rows, wanted, sales_source,
               train_toy::require_batch({count, wanted.batch, wanted.seed},
                                        "rows of the training split")) {}

Training::Training(const float4* train_rows, const Settings& wanted,
                   const std::string& sales_source, const Sampler& of_rows)
    : SequentialTrainer(make_model(), wanted, of_rows.batch, {of_rows.steps_per_epoch()}),
      rows(train_rows),
      sampler(of_rows),
      x(wanted.batch * kFeatureParts),
      target(wanted.batch),
      sums(size_t{2} * kMaxBlocks * kSlotParts),
      source_(sales_source) {
  model.reserve(std::max(wanted.batch, kPredictionRows));  // before a graph knows where it is
}

std::map<std::string, std::string> Training::facts() const {
  return {{"batch", std::to_string(batch)}, {"source", source_}};
}

void Training::resume(const std::string& path) {
  checkpoint_of(path, safetensors::read(path));
  Trainer::resume(path);
}

std::vector<float> predict(Sequential& model, const float4* rows, size_t count) {
  HIP_CHECK(hipDeviceSynchronize());
  const size_t most = std::min(kPredictionRows, count);
  DeviceBuffer<float4> x(most * kFeatureParts);
  DeviceBuffer<float> target(most);
  std::vector<float> totals(count);
  for (size_t first = 0; first < count; first += most) {
    const size_t some = std::min(most, count - first);
    launch_gather_in_order(x.data(), target.data(), rows, first, some);
    const float* y = model.forward(reinterpret_cast<const float*>(x.data()), some);
    HIP_CHECK(hipMemcpy(totals.data() + first, y, some * sizeof(float), hipMemcpyDeviceToHost));
  }
  return totals;
}

namespace {

// The mean of |total - prediction(i)| over the test split, in the currency of the file.
template <class Prediction>
double mean_absolute_error(const DataSet& data, Prediction prediction) {
  double sum = 0;
  for (size_t i = 0; i < data.test(); ++i)
    sum += std::fabs(static_cast<double>(data.totals()[data.train() + i]) - prediction(i));
  return sum / static_cast<double>(data.test());
}

}  // namespace

double error_of(const std::vector<float>& normalized, const DataSet& data) {
  const Normalization& normalization = data.encoding().normalization;
  return mean_absolute_error(data, [&](size_t i) { return normalization.total(normalized[i]); });
}
double error_of_mean(const DataSet& data) {
  const double mean = static_cast<double>(data.encoding().normalization.mean[kOfTotal]);
  return mean_absolute_error(data, [&](size_t) { return mean; });
}
double error_of_median(const DataSet& data) {
  std::vector<float> totals(data.totals().begin(),
                            data.totals().begin() + static_cast<std::ptrdiff_t>(data.train()));
  const auto middle = totals.begin() + static_cast<std::ptrdiff_t>(totals.size() / 2);
  std::nth_element(totals.begin(), middle, totals.end());
  return mean_absolute_error(data, [&](size_t) { return static_cast<double>(*middle); });
}

}  // namespace train_sales
