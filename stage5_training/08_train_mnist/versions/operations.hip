// A kernel per operation, launched by the host.
#include "common/gpu.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace mnist {

using train_toy::InOrder;
using train_toy::Shuffled;

// x[i] = pixels of image rows(i) * kPixelScale, labels[i] = its label    x (gridDim.x, 784).
// Fixes : a host that picks the images has to copy every batch, and four bytes for each of theirs.
// Idea  : each block asks which image it is to fetch; bytes become floats on the way.
// Thread: thread t of block i makes 16 pixels of sample i.
// Costs : 5 * 784 bytes of global memory per sample; every thread finds out the same image.
template <class Rows>
static __global__ void gather(float* x, int* labels, Samples samples, Rows rows) {
  constexpr unsigned kPixelsPerThread = 16;  // one load of 16 bytes
  const unsigned first = threadIdx.x * kPixelsPerThread;
  if (first >= kPixels) return;
  // exercise: which image is this block's; its 16 pixels from there on as floats, four at a time,
  // and its label by one of the threads (about 10 lines)
  const size_t row = rows(blockIdx.x);
  const uint4 pixels = *reinterpret_cast<const uint4*>(samples.pixels + row * kPixels + first);
  float4* to = reinterpret_cast<float4*>(x + size_t{blockIdx.x} * kPixels + first);
  const unsigned words[] = {pixels.x, pixels.y, pixels.z, pixels.w};
  for (int i = 0; i < 4; ++i) {
    const float4 value = gpu::unpack_bytes(words[i]);
    to[i] = make_float4(kPixelScale * value.x, kPixelScale * value.y, kPixelScale * value.z,
                        kPixelScale * value.w);
  }
  if (first == 0) labels[blockIdx.x] = samples.labels[row];
  // end exercise
}

template <class Rows>
static void launch_gather(float* x, int* labels, const Samples& samples, size_t batch,
                          const Rows& rows, hipStream_t stream = nullptr) {
  constexpr unsigned kBlock = 64;  // at least 784 / 16
  if (batch > 0)
    LAUNCH_ON(stream, (gather<Rows>), static_cast<unsigned>(batch), kBlock, 0, x, labels, samples,
              rows);
}

void launch_gather_in_order(float* x, int* labels, const Samples& samples, size_t first,
                            size_t count) {
  launch_gather(x, labels, samples, count, InOrder{first});
}

const float* Training::queue_batch() {
  launch_gather(x.data(), labels.data(), samples, batch, Shuffled{sampler, schedule.data()},
                stream);
  return x.data();
}

void Training::queue_loss(const float* logits) {
  launch_loss(loss.data(), grad_y.data(), logits, {labels.data(), batch, kClasses},
              loss_buffers.workspace(), stream);
}

}  // namespace mnist

namespace train_mnist {

// A step is that of step 5.6: batch, forward, loss, backward, curve, optimizer.
void run_operations(Training& t, size_t steps) { t.run_operations(steps); }

}  // namespace train_mnist
