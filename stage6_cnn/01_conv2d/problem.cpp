#include "stage6_cnn/01_conv2d/problem.h"

#include <algorithm>
#include <stdexcept>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/winograd_sizes.h"

namespace conv2d {

// ---- Sizes ----------------------------------------------------------------------------------

Extent output_of(const Problem& p) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("conv2d: " + why); };
  const auto by = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  constexpr size_t kMost = size_t{1} << 30;  // a place in an image, stride and all, is an int
  for (const size_t size : {p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    if (size >= kMost) refuse("a size of " + std::to_string(size) + " is not below 2^30");
  if (p.R == 0 || p.S == 0) refuse("a filter of " + by(p.R, p.S) + " has no elements");
  if (p.stride_h == 0 || p.stride_w == 0) refuse("a stride of " + by(p.stride_h, p.stride_w));
  const size_t height = p.H + 2 * p.pad_h, width = p.W + 2 * p.pad_w;
  if (height < p.R || width < p.S)
    refuse("a filter of " + by(p.R, p.S) + " does not fit an image of " + by(p.H, p.W) +
           " with padding " + by(p.pad_h, p.pad_w));
  const Extent out{(height - p.R) / p.stride_h + 1, (width - p.S) / p.stride_w + 1};
  const auto is_large = [](size_t a, size_t b, size_t c) {
    return a != 0 && b != 0 && c != 0 && (a >= kMost / b || a * b >= kMost / c);
  };
  if (height >= kMost || width >= kMost || is_large(std::max(p.C, size_t{1}), p.H, p.W) ||
      is_large(std::max(p.K, size_t{1}), out.height, out.width) ||
      is_large(std::max(p.C, size_t{1}), p.R, p.S) || is_large(p.K, p.C * p.R, p.S))
    refuse("an image or the filters have 2^30 or more elements");
  return out;
}

size_t window_of(const Problem& p) { return p.C * p.R * p.S; }
size_t size_of_x(const Problem& p) { return p.N * p.C * p.H * p.W; }
size_t size_of_w(const Problem& p) { return p.K * window_of(p); }
size_t size_of_y(const Problem& p) {
  const Extent out = output_of(p);
  return p.N * p.K * out.height * out.width;
}

std::vector<Size> sizes() {
  return {{"N", 64, 64, 3},  {"C", 64, 8, 5},     {"H", 56, 14, 13},
          {"W", 56, 14, 11}, {"K", 64, 16, 9},    {"R", 3, 3, 5},
          {"S", 3, 3, 2},    {"stride", 1, 1, 2}, {"pad", 1, 1, 1}};
}

Problem problem_of(const std::vector<size_t>& s) {
  for (size_t i = 0; i + 1 < s.size(); ++i)
    if (s[i] == 0) throw UsageError("--size: every dimension but the padding must be at least 1");
  const Problem p{s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[7], s[8], s[8]};
  try {
    output_of(p);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--size: ") + error.what());
  }
  return p;
}

std::vector<Problem> printed(const Problem& usual, bool sizes_given, bool quick) {
  if (sizes_given) return {usual};
  if (quick) return {usual, {2, 3, 9, 7, 5, 3, 3, 1, 1, 1, 1}};
  if (gpu::kBackend == std::string("cpu")) return {{64, 1, 28, 28, 8, 3, 3, 1, 1, 1, 1}, usual};
  return {{256, 8, 14, 14, 16, 3, 3, 1, 1, 1, 1}, usual};
}

std::string name(const Problem& p) {
  const auto by = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  return "(" + std::to_string(p.N) + "," + std::to_string(p.C) + "," + std::to_string(p.H) + "," +
         std::to_string(p.W) + ") -> " + std::to_string(p.K) + " filters " + by(p.R, p.S) +
         ", stride " + by(p.stride_h, p.stride_w) + ", padding " + by(p.pad_h, p.pad_w) +
         " float32";
}

double multiplications(const Problem& p) {
  return static_cast<double>(size_of_y(p)) * static_cast<double>(window_of(p));
}

RowSample choose_planes(const Problem& p, size_t planes, size_t elements, std::uint64_t seed) {
  constexpr double kWhole = 1 << 26;  // multiplications up to which everything is compared
  constexpr size_t kPlanes = 8;
  return choose_rows(planes, elements, multiplications(p) <= kWhole ? planes + 2 : kPlanes, seed);
}

std::string text_of(const RowSample& sample, const char* plane) {
  return sample.text.empty() ? "" : sample.text + ", a row being " + plane;
}

// ---- What launchers check -----------------------------------------------------------------------

void require_array(const char* name, const float* data, size_t size) {
  if (size == 0) return;
  if (data == nullptr) throw std::invalid_argument(std::string("conv2d: ") + name + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
    throw std::invalid_argument(std::string("conv2d: ") + name + " is not aligned to 4 bytes");
}

void check_forward(const float* y, const float* x, const float* w, const Problem& p) {
  const size_t size = size_of_y(p);
  require_array("y", y, size);
  if (size == 0) return;
  require_array("x", x, size_of_x(p)), require_array("w", w, size_of_w(p));
}

// ---- Memory -------------------------------------------------------------------------------------

size_t images_at_a_time(size_t images, size_t per_image, size_t room) {
  return std::min(images, std::max(room / std::max(per_image, size_t{1}), size_t{1}));
}

size_t columns_per_image(const Problem& p) {
  const Extent out = output_of(p);
  return window_of(p) * out.height * out.width;
}

// A row of tiles is as long as a multiple of 4 of them, whatever the number of images.
size_t tiles_per_image(size_t channels, size_t maps, size_t rows, size_t cols) {
  return kPlaces * (channels + maps) *
         (gpu::ceil_div(rows, kSideOut) * gpu::ceil_div(cols, kSideOut) + 3);
}

size_t transformed_filters(size_t channels, size_t maps) {
  return gpu::ceil_div(kPlaces * channels * maps, 4) * 4;
}

size_t winograd_elements(const Problem& p, const Extent& maps) {
  const size_t per_image = tiles_per_image(p.C, p.K, maps.height, maps.width);
  return transformed_filters(p.C, p.K) + images_at_a_time(p.N, per_image) * per_image;
}

Workspace::Workspace(const Problem& largest, gpu::DeviceParts* parts) {
  if (use_winograd(largest))
    tiles = gpu::take<float>(parts, winograd_elements(largest, output_of(largest)));
}

Workspace Workspace::for_all_versions(const Problem& largest, gpu::DeviceParts* parts) {
  Workspace made(largest, parts);
  const size_t per_image = columns_per_image(largest);
  made.columns = gpu::take<float>(parts, images_at_a_time(largest.N, per_image) * per_image);
  if (fits_winograd(largest) && made.tiles.size() == 0)
    made.tiles = gpu::take<float>(parts, winograd_elements(largest, output_of(largest)));
  return made;
}

// ---- The faster version -------------------------------------------------------------------------

bool fits_winograd(const Problem& p) {
  return p.R == 3 && p.S == 3 && p.stride_h == 1 && p.stride_w == 1;
}

// The transforms move 36/16 of x and of y to memory and back, however many multiplications they
// save for each of these elements: it takes many channels and pixels to win.
bool use_winograd(const Problem& p) {
  constexpr size_t kChannels = 32, kPixels = 32768;
  const Extent out = output_of(p);
  return fits_winograd(p) && std::min(p.C, p.K) >= kChannels &&
         p.N * out.height * out.width >= kPixels;
}

template <class Activation>
void forward(float* y, const float* x, const float* w, const float* bias, const Problem& problem,
             Workspace& workspace, hipStream_t stream) {
  const Run run =
      use_winograd(problem) ? launch_winograd<Activation> : launch_right_tile<Activation>;
  run(y, x, w, bias, problem, workspace, stream);
}

template void forward<dense::Linear>(float*, const float*, const float*, const float*,
                                     const Problem&, Workspace&, hipStream_t);
template void forward<activations::Relu>(float*, const float*, const float*, const float*,
                                         const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
