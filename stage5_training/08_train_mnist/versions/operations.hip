// A kernel per operation, launched by the host.
#include "common/gpu.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace mnist {

// Which image is sample i of a batch: the next of a training, or the next of a test.
struct Shuffled {
  Course course;
  const Schedule* schedule;  // of the step that begins
  __device__ size_t operator()(size_t i) const {
    return course.order(schedule->step)(course.place(schedule->step, i));
  }
};
struct InOrder {
  size_t first;
  __device__ size_t operator()(size_t i) const { return first + i; }
};

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

// losses[step of the epoch] = *loss.
// Fixes : a host that reads every loss waits for every step.
// Idea  : the device writes the curve; the host reads an epoch of it at once.
// Thread: the only one does it all.
// Costs : one launch of one thread per step.
static __global__ void record_loss(float* losses, const float* loss, Course course,
                                   const Schedule* schedule) {
  losses[schedule->step % course.steps_per_epoch()] = *loss;
}

void queue_step(Training& t, LaunchLoss loss) {
  const size_t batch = t.settings.batch;
  Schedule* schedule = t.schedule.data();
  // exercise: images, forward, loss, backward, the curve and the optimizer, on t.stream (about 8
  // lines)
  launch_gather(t.x.data(), t.labels.data(), t.samples, batch, Shuffled{t.course(), schedule},
                t.stream);
  const float* logits = t.model.forward(t.x.data(), batch, t.stream);
  loss(t.loss.data(), t.grad_logits.data(), logits, {t.labels.data(), batch, kClasses},
       t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.grad_logits.data(), t.stream);
  LAUNCH_ON(t.stream, record_loss, 1, 1, 0, t.curve.data(), t.loss.data(), t.course(), schedule);
  optimizers::step(t.settings.optimizer, t.model.arena(), schedule, t.stream);
  // end exercise
}

}  // namespace mnist

namespace train_mnist {

void queue_operations(Training& t) { mnist::queue_step(t, losses::cross_entropy); }

void run_operations(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_operations(t);
}

}  // namespace train_mnist
