// What the tests of 6.1 and 6.2 share: awkward layers, and whether a result is right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage4_forward/01_dense/values_for_tests.h"
#include "stage6_cnn/01_conv2d/reference.h"

namespace conv2d {

// N, C, H, W, K, R, S, strides, padding
inline const Problem kProblems[] = {
    {1, 1, 1, 1, 1, 1, 1},                // one product
    {1, 3, 1, 1, 2, 3, 3, 1, 1, 1, 1},    // an image of one pixel
    {2, 3, 3, 2, 4, 5, 7, 1, 1, 2, 3},    // filters larger than the image
    {2, 3, 11, 9, 5, 2, 3, 4, 5, 0, 1},   // strides longer than the filter
    {3, 2, 7, 7, 3, 3, 3, 100, 1, 1, 0},  // one that leads out of the image
    // One of which 15 are 14 more than 2^32: the width of a patch needs a size_t.
    {1, 2, 5, 7, 3, 3, 3, 1, 286331154, 1, 1},
    {5, 1, 9, 8, 7, 3, 3, 1, 1, 1, 1},     // a whole number of float4s
    {1, 7, 8, 8, 64, 3, 3, 1, 1, 1, 1},    // 64 filters
    {5, 64, 5, 6, 3, 3, 3, 2, 1, 1, 0},    // 64 channels
    {3, 4, 10, 12, 9, 3, 3, 2, 2, 1, 1},   // as networks make images smaller
    {2, 5, 7, 9, 6, 3, 3, 1, 1, 0, 2},     // tiles of 4 x 4 that stick out
    {2, 4, 6, 8, 3, 3, 3, 1, 1, 3, 4},     // more padding than the filter needs
    {1, 3, 17, 19, 65, 1, 1},              // 1 x 1: a product of matrices
    {1, 2, 13, 12, 3, 9, 11, 1, 1, 4, 5},  // more rows and columns than a piece
    {2, 2, 3, 3, 3, 2, 2, 1, 1, 3, 4},     // windows that lie in the padding as a whole
    {1, 1, 200, 7, 2, 3, 3, 64, 2, 1, 1},  // patches too large for shared memory
    {0, 3, 5, 5, 2, 3, 3},                 // no images
    {2, 0, 4, 4, 3, 3, 3, 1, 1, 1, 1},     // no channels
    {2, 3, 4, 4, 0, 3, 3},                 // no filters
};

// All sizes of a problem, for CAPTURE.
inline std::string text(const Problem& p) {
  std::string sizes;
  for (const size_t size :
       {p.N, p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    sizes += " " + std::to_string(size);
  return sizes;
}

inline void make_exact(Values& values) { values.error.assign(values.error.size(), 0); }

using dense::against;

inline void poison(Guarded<float>& array) {
  if (array.size() > 0) gpu::poison(array.data(), array.size() * sizeof(float));
}

// NumPy's arrays of this step: as they are, or as floats.
inline std::vector<double> numpy_values(const std::string& name) {
  return read_npy(reference_path("conv2d_" + name + ".npy")).values;
}
inline std::vector<float> numpy_floats(const std::string& name) {
  const std::vector<double> wide = numpy_values(name);
  return std::vector<float>(wide.begin(), wide.end());
}

// Whether a version makes its result as `winograd` does.
template <class Launch>
bool transforms(const Launch& launch, const Problem& p) {
  return launch.transforms != nullptr && launch.transforms(p);
}

// n integers in [-3, 3] whose products `winograd` adds up exactly: problem.h has the factor.
inline std::vector<float> exact_filters(size_t n, std::uint32_t stream, float factor) {
  std::vector<float> filters = testing::random_integers(n, stream);
  for (float& element : filters) element *= factor;
  return filters;
}

}  // namespace conv2d
