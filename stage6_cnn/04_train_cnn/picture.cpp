// What the layers make of a digit, as a picture.
#include "stage6_cnn/04_train_cnn/picture.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/picture.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

namespace {

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
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
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

}  // namespace

void show(const Sequential& model, size_t hidden, const mnist::Data& data, const std::string& path,
          Report& report) {
  const mnist::Digits& digits = data.digits.test;
  const std::vector<std::uint8_t> pixels(digits.pixels.begin(), digits.pixels.begin() + kPixels);
  const auto outputs = [&](size_t count) { return outputs_of(model, hidden, count, pixels); };
  const auto weights = [&](size_t tensor) {
    const sequential::NamedTensor& named = model.tensors()[tensor];
    std::vector<float> w(named.n);
    HIP_CHECK(hipMemcpy(w.data(), named.w, named.n * sizeof(float), hipMemcpyDeviceToHost));
    return w;
  };

  Page page;
  page.caption("6.4 train_cnn: what the layers make of a " + std::to_string(digits.labels[0]) +
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

}  // namespace train_cnn
