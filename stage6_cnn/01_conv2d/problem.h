// The layers that the programs of 6.1 and 6.2 print, and what every launcher checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage6_cnn/01_conv2d/conv2d.h"

namespace conv2d {

// N, C, H, W, K, R, S, stride and padding: on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();
// The problem that such sizes mean. Throws UsageError where it can't be.
Problem problem_of(const std::vector<size_t>& sizes);

// One table each: `usual` alone where the user has chosen it; else a small layer, whose launches
// are over before the device is busy, and `usual`, one of the layers that vision networks have.
std::vector<Problem> printed(const Problem& usual, bool sizes_given, bool quick);

// "(64,8,14,14) -> 16 filters 3x3, stride 1x1, padding 1x1 float32"
std::string name(const Problem& p);
double multiplications(const Problem& p);  // of the forward pass, or of one gradient

// The planes of an array of `planes` planes that are compared: all of a small problem, else 8.
RowSample choose_planes(const Problem& p, size_t planes, size_t elements, std::uint64_t seed);
// choose_planes's text with what a plane is, for Report::table; "" where all are compared.
std::string text_of(const RowSample& sample, const char* plane);

// With x and w integers in [-3, 3], and w multiplied by this, `winograd` computes with integers,
// too: its transforms divide by 24 * 24 at most. Up to kExactChannels channels they stay below 2^24
// by eight standard deviations.
inline constexpr float kExactFilter = 576;
inline constexpr size_t kExactChannels = 1024;

// ---- What launchers check -----------------------------------------------------------------------

// Throws std::invalid_argument where an array of `size` elements is null or begins between two
// floats; `name` is the array's.
void require_array(const char* name, const float* data, size_t size);
void check_forward(const float* y, const float* x, const float* w, const Problem& p);

// ---- Memory, in elements of float ---------------------------------------------------------------

// Images out of `images` that are computed at a time where each takes `per_image` elements of
// `room`: one at least.
inline constexpr size_t kMostElements = size_t{1} << 26;  // 256 MiB
size_t images_at_a_time(size_t images, size_t per_image, size_t room = kMostElements);

size_t columns_per_image(const Problem& p);  // C R S P Q, for im2col

// Winograd's tiles and the products of them, of an image with `channels` channels that makes
// `maps` maps of rows x cols; and the transformed filters.
size_t tiles_per_image(size_t channels, size_t maps, size_t rows, size_t cols);
size_t transformed_filters(size_t channels, size_t maps);
// What `winograd` needs, if it fits, for maps of this size: output_of(p), and that of x where it
// makes the gradient by x (step 6.2).
size_t winograd_elements(const Problem& p, const Extent& maps);

}  // namespace conv2d
