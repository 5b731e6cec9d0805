// What the programs of 6.1 and 6.2 share: a batch of images and the filters of a layer on the
// device.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "common/device_buffer.h"
#include "common/dnn.h"
#include "common/random.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

struct DeviceLayer {
  DeviceLayer(const Problem& problem, std::uint64_t random_seed)
      : p(problem), seed(random_seed), d_x(size_of_x(p)), d_w(size_of_w(p)) {
    if (dnn::available())
      peer = std::make_unique<dnn::Convolution>(
          dnn::Shape{p.N, p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w});
  }

  // Fills x, w and `other`, which is random sequence `stream`, with integers whose sums float adds
  // exactly in every order, those of `winograd` included; or with numbers in [-1, 1), w in
  // +-1 / sqrt(C R S) as a layer's are when training begins.
  void fill(bool with_integers, gpu::DeviceBuffer<float>& other, std::uint32_t stream) {
    is_exact = with_integers;
    const auto launch_fill =
        is_exact ? random_numbers::launch_fill_integers : random_numbers::launch_fill_uniform;
    launch_fill(d_x.data(), d_x.size(), seed, 0, nullptr);
    launch_fill(d_w.data(), d_w.size(), seed, 1, nullptr);
    launch_fill(other.data(), other.size(), seed, stream, nullptr);
    const float scale = is_exact ? kExactFilter : 1 / std::sqrt(static_cast<float>(window_of(p)));
    axpy::launch_vectorized_scale(d_w.data(), scale, d_w.data(), d_w.size());
  }

  Problem p;
  std::uint64_t seed;
  gpu::DeviceBuffer<float> d_x, d_w;
  bool is_exact = false;
  std::unique_ptr<dnn::Convolution> peer;
};

}  // namespace conv2d
