// Trains the convolutional network on MNIST by every version: checks the first steps, times the
// training, tests what was learnt, shows what is still mistaken for what, and draws what the layers
// make of a digit.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/picture.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/06_train_toy/reference.h"
#include "stage6_cnn/03_train_cnn/train_cnn.h"

using train_cnn::kChannels1;
using train_cnn::kChannels2;
using train_cnn::kClasses;
using train_cnn::kLayers;
using train_cnn::kSide;
using train_cnn::kSide1;
using train_cnn::kSide2;
using train_cnn::Sequential;
using train_cnn::Training;

namespace {

// ---- A picture of the layers ------------------------------------------------------------------

// Writes line by line, from the top down.
class Page {
 public:
  static constexpr size_t kMargin = 24, kWidth = 1088;  // of what is between the margins
  static constexpr double kTitle = 22, kCaption = 15;

  Page() : picture(kWidth + 2 * kMargin, 1196) {}

  void caption(const std::string& line, double size = kCaption) {
    top += size == kTitle ? 0 : 22;
    picture.text(kMargin, top, line, size);
    top += static_cast<size_t>(size) + 10;
  }
  // `count` square images side by side, each of `rows` layers one below the other that color() is
  // asked for: color(image, layer, x, y). All of them share the width.
  template <class ColorOf>
  void images(size_t count, size_t layers, size_t side, size_t scale, ColorOf color) {
    const size_t height = side * scale + 4;
    for (size_t i = 0; i < count; ++i)
      for (size_t layer = 0; layer < layers; ++layer)
        picture.image(kMargin + i * (kWidth + 12) / count, top + layer * height, scale, side, side,
                      [&](size_t x, size_t y) { return color(i, layer, x, y); });
    top += layers * height;
  }

  Picture picture;
  size_t top = kMargin;
};

double largest_of(const std::vector<float>& values) {
  double largest = 1e-30;  // so that 0 is 0 of it
  for (const float value : values)
    largest = std::fmax(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

// The filters of a convolution, the darkest colours for the largest weight.
void draw_filters(Page& page, const std::vector<float>& w, size_t filters, size_t channels,
                  size_t scale) {
  const double largest = largest_of(w);
  page.images(filters, channels, 3, scale, [&](size_t k, size_t c, size_t x, size_t y) {
    return signed_color(static_cast<double>(w[((k * channels + c) * 3 + y) * 3 + x]) / largest);
  });
}

// What the first `count` layers make: images, the darkest where the largest value is.
void draw_maps(Page& page, const std::vector<float>& values, size_t channels, size_t side,
               size_t scale) {
  const double largest = largest_of(values);
  page.images(channels, 1, side, scale, [&](size_t k, size_t, size_t x, size_t y) {
    return grey(static_cast<double>(values[(k * side + y) * side + x]) / largest);
  });
}

// The digit, and beside it how probable the model thinks each answer.
void draw_answer(Page& page, const std::vector<std::uint8_t>& pixels,
                 const std::vector<float>& logits) {
  constexpr size_t kScale = 7, kBar = 560, kLine = kScale * kSide / kClasses;
  const size_t left = Page::kMargin + kScale * kSide + 40;
  page.picture.image(Page::kMargin, page.top, kScale, kSide, kSide,
                     [&](size_t x, size_t y) { return grey(pixels[y * kSide + x] / 255.0); });
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - logits[0]));
  for (size_t c = 0; c < kClasses; ++c) {
    const double share = std::exp(static_cast<double>(logits[c] - logits[0])) / sum;
    const size_t top = page.top + c * kLine;
    page.picture.text(left, top + 2, std::to_string(c), Page::kCaption);
    page.picture.fill(left + 20, top + 1, static_cast<size_t>(std::lround(kBar * share)) + 1,
                      kLine - 5, signed_color(1));
    page.picture.text(left + 30 + static_cast<size_t>(std::lround(kBar * share)), top + 2,
                      mnist::text("%.1f%%", 100 * share), Page::kCaption);
  }
  page.top += kScale * kSide;
}

void show(const Sequential& model, size_t hidden, const mnist::Data& data, const std::string& path,
          Report& report) {
  const mnist::Digits& digits = data.digits.test;
  const std::vector<std::uint8_t> pixels(digits.pixels.begin(),
                                         digits.pixels.begin() + train_cnn::kPixels);
  const auto outputs = [&](size_t count) {
    return train_cnn::outputs_of(model, hidden, count, pixels);
  };
  const auto weights = [&](size_t tensor) {
    const sequential::NamedTensor& named = model.tensors()[tensor];
    std::vector<float> w(named.n);
    HIP_CHECK(hipMemcpy(w.data(), named.w, named.n * sizeof(float), hipMemcpyDeviceToHost));
    return w;
  };

  Page page;
  page.caption("6.3 train_cnn: what the layers make of a " + std::to_string(digits.labels[0]) +
                   " (" + data.name + ")",
               Page::kTitle);
  draw_answer(page, pixels, outputs(kLayers));
  page.caption("Convolution 1: 8 filters of 3 x 3 pixels. Blue counts for it, orange against it.");
  draw_filters(page, weights(0), kChannels1, 1, 36);
  page.caption("What each of them finds in the image, after ReLU: 28 x 28");
  draw_maps(page, outputs(2), kChannels1, kSide, 4);
  page.caption("Pool 1, the largest of each 2 x 2: 14 x 14");
  draw_maps(page, outputs(3), kChannels1, kSide1, 8);
  page.caption("Convolution 2: 16 filters, each of 3 x 3 in all 8 channels");
  draw_filters(page, weights(2), kChannels2, kChannels1, 6);
  page.caption("What each of them finds, after ReLU: 14 x 14");
  draw_maps(page, outputs(5), kChannels2, kSide1, 4);
  page.caption(
      "Pool 2: 7 x 7. These 784 values are what the two dense layers read the digit from.");
  draw_maps(page, outputs(6), kChannels2, kSide2, 8);
  page.picture.write(path);
  report.line("the layers are drawn in " + path);
}

// ---- Training ---------------------------------------------------------------------------------

void report_memory(const Training& training, const train_cnn::DeviceDigits& images,
                   Report& report) {
  const auto megabytes = [](size_t bytes) { return static_cast<double>(bytes) / 1e6; };
  report.line("");
  report.line(training.model.description());
  report.line(std::to_string(training.model.parameter_count()) + " parameters");
  report.fact("parameters, gradients, m and v", megabytes(training.model.parameter_bytes()), "MB");
  report.fact("outputs and gradients of " +
                  std::to_string(std::max(training.batch, mnist::kEvaluationBatch)) + " images",
              megabytes(training.model.step_bytes()), "MB");
  report.fact("images", megabytes(images.pixels.bytes() + images.labels.bytes()), "MB");
}

void run(const Options& options, const mnist::Data& data, Report& report) {
  const train_cnn::DeviceDigits images(data.digits.train);
  const train_cnn::Settings settings(mnist::settings_of(options));
  Training training(settings, images.samples());
  HostTimer timer;
  train_cnn::Trajectory want;
  if (!options.training.resume)
    want = train_cnn::trajectory_cpu(
        settings, data.digits.train, train_toy::by_tensor(training.model, training.parameters()),
        std::min(train_cnn::kCheckedSteps, training.steps_per_epoch()));
  const double reference_ms = want.losses.empty() ? 0 : timer.ms();
  const std::string network = "8C3-P2-16C3-P2-" + std::to_string(settings.hidden) + "-10";
  report.table(mnist::problem_text(network, options, data), reference_ms,
               mnist::checked_text(want));
  mnist::run_versions(
      training, train_cnn::kVersions, train_cnn::best(training), want, data,
      {train_cnn::kDefaults, {std::begin(train_cnn::kPromises), std::end(train_cnn::kPromises)}},
      options, report, [&](double steps) {
        return Work{0, train_cnn::operations_of(settings, steps), Work::Limit::fma};
      });
  report_memory(training, images, report);
  if (!options.training.show.empty())
    show(training.model, settings.hidden, data, options.training.show, report);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"6.3",
                      "train_cnn",
                      "a convolutional network learns to read digits",
                      {{"hidden", 64, 64, 24}, {"images", 60000, 10000, 200}},
                      version_infos(train_cnn::kVersions)};
  program.training = train_cnn::kDefaults;
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const mnist::Data data = mnist::find_data(options, report);
    const double device_bytes = train_cnn::memory_of(mnist::settings_of(options));
    require_device_memory(device_bytes);
    sizes::require_host_memory(2 * device_bytes);  // the reference keeps the same arrays in double
    if (!options.training.evaluate.empty()) {
      Sequential model = train_cnn::make_model(options.sizes[0]);
      mnist::evaluate(model, options, data, report);
      if (!options.training.show.empty())
        show(model, options.sizes[0], data, options.training.show, report);
      return;
    }
    report.limits(timing::measure_limits(options));
    run(options, data, report);
  });
}
