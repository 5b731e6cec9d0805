#include "stage5_training/08_train_mnist/mnist_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "common/idx.h"
#include "common/input_file.h"
#include "common/random.h"

namespace mnist {

// ---- MNIST's files ----------------------------------------------------------------------------

namespace {

// The file's path as it is there, packed or plain; empty where it is not.
std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* ending : {".gz", ""}) {
    const std::string path = folder + "/mnist/" + name + ending;
    std::error_code unreadable;
    if (std::filesystem::exists(path, unreadable)) return path;
  }
  return "";
}

File read_file(const std::string& folder, const char* name) {
  const std::string path = find_file(folder, name);
  return {path, input_file::read(path)};
}

Digits read_part(const std::string& folder, const char* images_name, const char* labels_name) {
  return parse(read_file(folder, images_name), read_file(folder, labels_name));
}

}  // namespace

Digits parse(const File& images_file, const File& labels_file) {
  IdxImages images = parse_idx_images(images_file.path, images_file.bytes);
  if (images.rows != kSide || images.cols != kSide)
    throw std::runtime_error(images_file.path + " has images of " + std::to_string(images.rows) +
                             " x " + std::to_string(images.cols) + ", not of 28 x 28");
  Digits digits{std::move(images.pixels),
                parse_idx_labels(labels_file.path, labels_file.bytes, kClasses)};
  if (images.count != digits.count())
    throw std::runtime_error(images_file.path + " has " + std::to_string(images.count) +
                             " images, but " + labels_file.path + " has " +
                             std::to_string(digits.count()) + " labels");
  return digits;
}

std::vector<std::string> missing_files(const std::string& folder) {
  std::vector<std::string> missing;
  for (const char* name : kFiles)
    if (find_file(folder, name).empty()) missing.push_back(std::string(name) + ".gz");
  return missing;
}

DataSet read(const std::string& folder) {
  std::string names;
  for (const std::string& name : missing_files(folder)) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty())
    throw std::runtime_error(folder + "/mnist lacks " + names + ": get them with " +
                             "`python3 scripts/data.py`");
  return {read_part(folder, kFiles[0], kFiles[1]), read_part(folder, kFiles[2], kFiles[3])};
}

// ---- Drawn digits -----------------------------------------------------------------------------

namespace {

struct Point {
  double x, y;  // from the left and from the top, both from 0 to 1
};

// What a pen draws for each digit without being lifted: points xxyy in hundredths.
constexpr const char* kStrokes[kClasses] = {
    "5007 3016 2240 2260 3084 5093 7084 7860 7840 7016 5007",
    "3525 5508 5592",
    "2228 3212 5507 7418 7436 2292 8092",
    "2414 5007 7318 7236 4648 7460 7680 5293 2284",
    "6293 6207 1865 8465",
    "7608 3008 2646 5240 7654 7680 5093 2284",
    "6808 3830 2462 3488 5892 7676 7056 4850 2764",
    "2008 8008 4293",
    "5048 2834 3014 5007 7014 7234 5048 2464 2686 5093 7486 7664 5048",
    "7336 5050 2840 2718 4807 7014 7436 7068 5093"};

std::vector<Point> stroke_of(std::size_t digit) {
  std::vector<Point> stroke;
  std::istringstream numbers(kStrokes[digit]);
  for (int point = 0; numbers >> point;)
    stroke.push_back({point / 100 / 100.0, point % 100 / 100.0});
  return stroke;
}

double distance_to_segment(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double along = ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy);
  const double t = std::clamp(along, 0.0, 1.0);
  const double ex = a.x + t * dx - p.x, ey = a.y + t * dy - p.y;
  return std::sqrt(ex * ex + ey * ey);
}

// Ink where the pen's middle passes within `radius` pixels, fading out over one pixel.
void draw_segment(std::uint8_t* image, Point a, Point b, double radius) {
  const auto first = [&](double u, double v) {
    return static_cast<std::size_t>(std::clamp(std::min(u, v) - radius - 1, 0.0, 27.0));
  };
  const auto last = [&](double u, double v) {
    return static_cast<std::size_t>(std::clamp(std::max(u, v) + radius + 1, 0.0, 27.0));
  };
  for (std::size_t y = first(a.y, b.y); y <= last(a.y, b.y); ++y)
    for (std::size_t x = first(a.x, b.x); x <= last(a.x, b.x); ++x) {
      const Point pixel{static_cast<double>(x), static_cast<double>(y)};
      const double ink = std::clamp(radius + 0.5 - distance_to_segment(pixel, a, b), 0.0, 1.0);
      std::uint8_t& value = image[y * kSide + x];
      value = std::max(value, static_cast<std::uint8_t>(255 * ink));
    }
}

}  // namespace

Digits draw(std::size_t count, std::uint64_t seed) {
  constexpr std::uint32_t kStream = 0xD16175u;  // a sequence that nothing else uses
  constexpr std::size_t kNumbers = 64;          // for a digit, at most
  Digits digits{std::vector<std::uint8_t>(count * kPixels), std::vector<std::uint8_t>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t used = i * kNumbers;
    const auto between = [&](double low, double high) {
      const double x = static_cast<double>(random_numbers::uniform(seed, kStream, used++));
      return low + (high - low) * (x + 1) / 2;
    };
    const std::size_t label = random_numbers::word(seed, kStream, used++) % kClasses;
    digits.labels[i] = static_cast<std::uint8_t>(label);
    const double width = between(14, 20), height = between(16, 21), slant = between(-7, 5);
    const double tilt = between(-3, 3), middle_x = between(11, 16), middle_y = between(11, 16);
    const double radius = between(0.7, 1.6);
    std::vector<Point> stroke;
    for (const Point& p : stroke_of(label)) {
      const double across = between(-0.03, 0.03), down = between(-0.03, 0.03);
      const double x = p.x - 0.5 + across, y = p.y - 0.5 + down;
      stroke.push_back({middle_x + width * x - slant * y, middle_y + height * y + tilt * x});
    }
    for (std::size_t k = 1; k < stroke.size(); ++k)
      draw_segment(digits.pixels.data() + i * kPixels, stroke[k - 1], stroke[k], radius);
  }
  return digits;
}

}  // namespace mnist
