// An image per block: all the way there and back in shared memory.
#include "common/gpu.h"
#include "stage6_cnn/04_train_cnn/detail/dense_pass.h"
#include "stage6_cnn/04_train_cnn/detail/filter_gradients.h"
#include "stage6_cnn/04_train_cnn/detail/image_memory.h"
#include "stage6_cnn/04_train_cnn/detail/update_parameters.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

// The convolutions are below the kernel. Each makes what its pool wants.
__device__ inline void convolve_pixels(ImageMemory& m, const Weights& network);
__device__ inline void convolve_channels(ImageMemory& m, const Weights& network, float* features);
__device__ inline void convolve_back(float (&grads)[kAtOnce][4], const ImageMemory& m,
                                     unsigned window, unsigned first);

// features, parts and losses of the step's images    a block per image; see ImageMemory.
// Fixes : each layer of graph writes to memory what the next one reads, and hardly has the device
//         begun a kernel when it is over.
// Idea  : between its layers an image is small, and it meets no other one but in the sums of the
//         weights' gradients. It fits a block's shared memory, from the pixels to the gradients.
// Thread: of the convolutions a window of 2 x 2 outputs, of four channels; else see each part.
// Costs : every block reads w3 twice, 2 * 200 KB from the L2 cache; 12 barriers; 61 KB of shared
//         memory. With a batch of 64 half of an H200 is idle.
static __global__ void __launch_bounds__(kThreads)
    differentiate_images(Weights network, mnist::Samples samples, unsigned batch,
                         Schedule* schedule, Handover exchange) {
  DYNAMIC_SHARED(ImageMemory, memory);
  ImageMemory& m = *memory;
  const unsigned t = threadIdx.x;
  const size_t image = exchange.rows[blockIdx.x];
  float* const part = exchange.parts + size_t{blockIdx.x} * Row{network.hidden}.end();
  if (blockIdx.x == 0 && t == kThreads - 1) optimizers::advance(*schedule);
  load_image(m, network, samples.pixels + image * kPixels);
  __syncthreads();  // image and filters are there, all planes are 0
  convolve_pixels(m, network);
  __syncthreads();  // the first pool's outputs are there
  convolve_channels(m, network, exchange.features + size_t{blockIdx.x} * kFeatures);
  __syncthreads();  // the second pool's outputs are there
  hidden_units(m, network);
  __syncthreads();  // h is there
  class_logits(m, network);
  __syncthreads();  // the logits are there
  if (t < kMostHidden)
    differentiate_loss(m, network, samples.labels[image], batch, part,
                       exchange.losses + blockIdx.x);
  __syncthreads();  // the gradients of the hidden units' sums are there
  differentiate_features(m, network);
  __syncthreads();  // the gradients of the second convolution's sums are there; features has them
                    // too

  // The two ways back from there need nothing from each other: half of the threads takes each.
  float grads1[kAtOnce][4] = {};  // of the first pool's outputs
  const bool is_back = t < kWindows2 * kChannels1 / kAtOnce;
  const unsigned window = t % kWindows2, first = t / kWindows2 * kAtOnce;
  if (is_back)
    convolve_back(grads1, m, window, first);
  else if (t >= kThreads / 2)
    differentiate_filters2(m, t - kThreads / 2, part);
  __syncthreads();  // nobody reads the planes of gradients any more
  if (is_back)
    route_to_sums1(m, window, first, grads1);
  else if (t >= kThreads / 2 && t < kThreads / 2 + kChannels2)
    differentiate_bias2(m, t - kThreads / 2, part);
  __syncthreads();  // the gradients of the first convolution's sums are there
  differentiate_filters1(m, part);
}

// Adds the products of a patch with kAtOnce filters to their four outputs each. Tap t of the
// filters is at filters[t * stride].
__device__ inline void multiply_patch(float (&sums)[kAtOnce][4], const float (&patch)[4][4],
                                      const float4* filters, unsigned stride) {
  // exercise: the nine taps, each of them times four values of the patch, for every filter (about 9
  // lines)
  GPU_UNROLL
  for (unsigned tap = 0; tap < kTaps; ++tap) {
    const float4 weight = filters[tap * stride];
    const float weights[kAtOnce] = {weight.x, weight.y, weight.z, weight.w};
    GPU_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i)
        sums[k][i] = fmaf(weights[k], patch[tap / 3 + i / 2][tap % 3 + i % 2], sums[k][i]);
  }
  // end exercise
}

__device__ inline void convolve_pixels(ImageMemory& m, const Weights& network) {
  const unsigned t = threadIdx.x;
  if (t >= kWindows1 * kChannels1 / kAtOnce) return;
  const unsigned window = t % kWindows1, first = t / kWindows1 * kAtOnce;
  const unsigned y = window / kSide1, x = window % kSide1;
  float patch[4][4], sums[kAtOnce][4];
  load_patch(patch, m.x + 2 * y * kPitch0 + 2 * x, kPitch0);
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned i = 0; i < 4; ++i) sums[k][i] = network.b1.w[first + k];
  multiply_patch(sums, patch, m.w1 + first / 4, kChannels1 / 4);
  for (unsigned k = 0; k < kAtOnce; ++k)
    m.pooled1[(first + k) * kPlane1 + (y + 1) * kPitch1 + x + 1] =
        largest(sums[k], m.place1[(first + k) * kWindows1 + window]);
}

// The features go to shared memory and to `features`, where the other images' blocks find them.
__device__ inline void convolve_channels(ImageMemory& m, const Weights& network, float* features) {
  const unsigned t = threadIdx.x;
  if (t >= kWindows2 * kChannels2 / kAtOnce) return;
  const unsigned window = t % kWindows2, first = t / kWindows2 * kAtOnce;
  const unsigned y = window / kSide2, x = window % kSide2;
  float sums[kAtOnce][4];
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned i = 0; i < 4; ++i) sums[k][i] = network.b2.w[first + k];
  for (unsigned c = 0; c < kChannels1; ++c) {
    float patch[4][4];
    load_patch(patch, m.pooled1 + c * kPlane1 + 2 * y * kPitch1 + 2 * x, kPitch1);
    multiply_patch(sums, patch, m.w2 + (c * kTaps * kChannels2 + first) / 4, kChannels2 / 4);
  }
  for (unsigned k = 0; k < kAtOnce; ++k) {
    const unsigned i = (first + k) * kWindows2 + window;
    const float feature = largest(sums[k], m.place2[i]);
    reinterpret_cast<float*>(m.features)[i] = feature;
    features[i] = feature;
  }
}

// The same convolution, with turned filters, from the channels made to the channels taken.
__device__ inline void convolve_back(float (&grads)[kAtOnce][4], const ImageMemory& m,
                                     unsigned window, unsigned first) {
  const unsigned corner = window / kSide2 * 2 * kPitch1 + window % kSide2 * 2;
  for (unsigned k = 0; k < kChannels2; ++k) {
    float patch[4][4];
    load_patch(patch, m.grads2 + k * kPlane1 + corner, kPitch1);
    multiply_patch(grads, patch, m.turned + (k * kTaps * kChannels1 + first) / 4, kChannels1 / 4);
  }
}

void queue_per_image(Training& t) {
  const Weights network = weights_of(t);
  const Handover exchange{t.rows.data(), t.features.data(), t.parts.data(), t.row_losses.data()};
  const unsigned batch = static_cast<unsigned>(t.batch);
  gpu::allow_shared_bytes(differentiate_images, sizeof(ImageMemory));
  LAUNCH_ON(t.stream, differentiate_images, batch, kThreads, sizeof(ImageMemory), network,
            t.samples, batch, t.schedule.data(), exchange);
  const size_t blocks = gpu::ceil_div(network.hidden, kAtOnce) * kPieces +
                        gpu::ceil_div(Row{network.hidden}.end(), kColumns) + 1;
  optimizers::visit_rule(t.settings.kind, [&](auto rule) {
    LAUNCH_ON(t.stream, (update_parameters<decltype(rule)>), static_cast<unsigned>(blocks),
              kUpdateThreads, 0, network, t.sampler, t.schedule.data(), exchange, t.curve.data());
  });
}

void run_per_image(Training& t, size_t steps) {
  LAUNCH_ON(t.stream, choose_rows, 1, kThreads, 0, t.rows.data(), t.sampler, t.schedule.data());
  t.replay(steps, "per_image", [&] { queue_per_image(t); });
}

}  // namespace train_cnn
