// The network of train_cnn, its training's memory, and which versions can train it.
#include <algorithm>

#include "stage6_cnn/04_train_cnn/detail/sizes.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

Sequential make_model(size_t hidden) { return Sequential(make_layers(hidden, kLayers)); }

double operations_of(const mnist::Settings& settings, double steps) {
  constexpr double kFirst = double{kTaps} * kChannels1 * kSide * kSide;
  constexpr double kSecond = double{kTaps} * kChannels1 * kChannels2 * kSide1 * kSide1;
  const double dense = static_cast<double>(settings.hidden) * (kFeatures + kClasses);
  return steps * static_cast<double>(settings.batch) * 2 * (2 * kFirst + 3 * (kSecond + dense));
}

double memory_of(const mnist::Settings& settings) {
  constexpr double kOutputs = 2.5 * kChannels1 * kSide * kSide + 2.5 * kChannels2 * kSide1 * kSide1;
  const double hidden = static_cast<double>(settings.hidden);
  const double batch = static_cast<double>(std::max(settings.batch, mnist::kEvaluationBatch));
  return sizeof(float) * (4 * hidden * kFeatures + batch * (2 * kOutputs + hidden * kClasses));
}

// A model keeps the outputs that its backward pass needs, not all of them: a shorter model with the
// same parameters tells.
std::vector<float> outputs_of(const Sequential& model, size_t hidden, size_t count,
                              const std::vector<std::uint8_t>& pixels) {
  Sequential first(make_layers(hidden, count));
  for (size_t k = 0; k < first.tensors().size(); ++k)
    HIP_CHECK(hipMemcpy(first.tensors()[k].w, model.tensors()[k].w,
                        first.tensors()[k].n * sizeof(float), hipMemcpyDeviceToDevice));
  std::vector<float> x(kPixels);
  for (size_t i = 0; i < kPixels; ++i) x[i] = mnist::kPixelScale * static_cast<float>(pixels[i]);
  const gpu::DeviceBuffer<float> d_x(x);
  std::vector<float> y(first.outputs());
  HIP_CHECK(hipMemcpy(y.data(), first.forward(d_x.data(), 1), y.size() * sizeof(float),
                      hipMemcpyDeviceToHost));
  return y;
}

// ---- A training -------------------------------------------------------------------------------

Training::Training(const mnist::Settings& wanted, const mnist::Samples& images)
    : mnist::Training(wanted, images, make_model(wanted.hidden)),
      rows(wanted.batch),
      features(wanted.batch * kFeatures),
      parts(wanted.batch * Row{static_cast<unsigned>(wanted.hidden)}.end()),
      row_losses(wanted.batch) {}

void Training::use(const sequential::Mode& mode, mnist::LaunchLoss loss_of_mode) {
  launch_loss = loss_of_mode;
  if (mode.fuse == fuses_) return;
  HIP_CHECK(hipStreamSynchronize(stream));
  model.set_mode(mode);
  reserve();
  fuses_ = mode.fuse;
}

Weights weights_of(const Training& t) {
  const auto tensor = [&](size_t k) {
    const sequential::NamedTensor& named = t.model.tensors()[k];
    return optimizers::ParameterArena{named.w, named.grad, named.m, named.v, named.n};
  };
  return {tensor(0), tensor(1), tensor(2),
          tensor(3), tensor(4), tensor(5),
          tensor(6), tensor(7), static_cast<unsigned>(t.hidden)};
}

std::string takes_any(const Training&) { return ""; }

std::string takes_few_units(const Training& t) {
  return t.hidden <= kMostHidden ? "" : "takes up to " + std::to_string(kMostHidden) + " units";
}

const Version<Launch>& best(const Training& t) {
  const Version<Launch>* chosen = &kVersions[1];
  if (std::string(gpu::kBackend) == "cpu") return *chosen;
  for (const auto& version : kVersions)
    if (version.launch.obstacle(t).empty()) chosen = &version;
  return *chosen;
}

}  // namespace train_cnn
