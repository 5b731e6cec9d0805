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

Training::Training(const float4* train_rows, size_t count, const Settings& wanted)
    : rows(train_rows), settings(wanted), batches{count, wanted.batch, wanted.seed} {
  if (wanted.batch == 0 || wanted.batch > batches.rows)
    throw std::invalid_argument("a batch of " + std::to_string(wanted.batch) +
                                " is not from 1 to the " + std::to_string(batches.rows) +
                                " rows of the training split");
  schedule = DeviceBuffer<Schedule>(1);
  curve = DeviceBuffer<float>(batches.steps());
  x = DeviceBuffer<float4>(wanted.batch * kFeatureParts);
  target = DeviceBuffer<float>(wanted.batch);
  grad_y = DeviceBuffer<float>(wanted.batch);
  loss = DeviceBuffer<float>(1);
  sums = DeviceBuffer<float4>(size_t{2} * kMaxBlocks * kSlotParts);
  model.reserve(std::max(wanted.batch, kPredictionRows));  // before a graph knows where it is
  HIP_CHECK(hipStreamCreate(&stream));
  restart();
}

void Training::begin(std::uint64_t steps_behind) {
  Schedule behind;
  behind.hyper = settings.hyper, behind.step = steps_behind;
  schedule.to_device(&behind, 1);  // graphs know where it is
  curve.poison();
  steps = steps_behind;
}

void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

void replay(Training& t, size_t steps, void (*queue)(Training&)) {
  if (t.captured != queue) {
    const auto capture = [&](size_t count) {
      return std::make_unique<gpu::Graph>(t.stream, [&] {
        for (size_t i = 0; i < count; ++i) queue(t);
      });
    };
    t.model.use_branches(&t.branches);  // in a graph a fork costs nothing
    t.many = capture(kGraphSteps), t.one = capture(1);
    t.model.use_branches(nullptr);
    t.captured = queue;
  }
  t.steps += steps;
  for (; steps >= kGraphSteps; steps -= kGraphSteps) t.many->launch(t.stream);
  for (; steps > 0; --steps) t.one->launch(t.stream);
}

std::vector<float> parameters_of(const Sequential& model) {
  std::vector<float> result;
  for (const sequential::NamedTensor& tensor : model.tensors()) {
    result.resize(result.size() + tensor.n);
    HIP_CHECK(hipMemcpy(result.data() + result.size() - tensor.n, tensor.w,
                        tensor.n * sizeof(float), hipMemcpyDeviceToHost));
  }
  return result;
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

void Training::save(const std::string& path, const Encoding& encoding,
                    const std::string& source) const {
  HIP_CHECK(hipStreamSynchronize(stream));
  sequential::TrainingState state;
  state.steps = steps, state.epochs = steps / batches.steps();
  state.seed = settings.seed, state.optimizer = optimizers::name(settings.kind);
  state.more = texts_of(encoding);
  state.more["batch"] = std::to_string(settings.batch);
  state.more["source"] = source;
  sequential::save(path, model, &state);
}

void Training::resume(const std::string& path, const std::string& source) {
  const Checkpoint found = read_checkpoint(path);
  const auto more = [&](const char* key) {
    const auto text = found.state.more.find(key);
    return text == found.state.more.end() ? "" : text->second;
  };
  sequential::require_same(path, "optimizer", found.state.optimizer,
                           optimizers::name(settings.kind));
  sequential::require_same(path, "seed", std::to_string(found.state.seed),
                           std::to_string(settings.seed));
  sequential::require_same(path, "batch", more("batch"), std::to_string(settings.batch));
  sequential::require_same(path, "sales", more("source"), source);
  begin(sequential::load(path, model).steps);
}

}  // namespace train_sales
