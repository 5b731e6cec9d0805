// A kernel per operation, launched by the host.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/07_train_sales/train_sales.h"

namespace train_sales {

// Which row is sample i of a batch: the next of a training, or the next of a test.
struct Shuffled {
  Batches batches;
  const Schedule* schedule;  // of the step that begins
  __device__ size_t operator()(size_t i) const { return batches.row(schedule->step, i); }
};
struct InOrder {
  size_t first;
  __device__ size_t operator()(size_t i) const { return first + i; }
};

// x[i] = features of row which(i), target[i] = its target    x (count, kFeatures), target (count).
// Fixes : a host that shuffles has to copy every batch.
// Idea  : each thread asks which row it is to fetch a part of: nothing but a number is shuffled.
// Thread: t owns part t % kParts of sample t / kParts.
// Costs : 32 kParts bytes of global memory per sample; kParts threads find out the same row.
template <class Which>
static __global__ void gather(float4* x, float* target, const float4* rows, Which which,
                              size_t count) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t sample = thread / kParts, part = thread % kParts;
  if (sample >= count) return;
  // exercise: fetch this thread's part, and put it where the model or the loss reads it (about 5
  // lines)
  const float4 values = rows[which(sample) * kParts + part];
  if (part < kFeatureParts)
    x[sample * kFeatureParts + part] = values;
  else
    target[sample] = values.x;
  // end exercise
}

template <class Which>
static void launch_gather(float4* x, float* target, const float4* rows, const Which& which,
                          size_t count, hipStream_t stream = nullptr) {
  if (count > 0)
    LAUNCH_ON(stream, (gather<Which>),
              static_cast<unsigned>(gpu::ceil_div(count * kParts, vector_add::kBlock)),
              vector_add::kBlock, 0, x, target, rows, which, count);
}

// curve[step of the epoch] = *loss.
// Fixes : a host that reads every loss waits for every step.
// Idea  : the device writes the curve; the host reads an epoch of it at once.
// Thread: the only one does it all.
// Costs : one launch of one thread per step.
static __global__ void record_loss(float* curve, const float* loss, Batches batches,
                                   const Schedule* schedule) {
  curve[schedule->step % batches.steps()] = *loss;
}

// Queues one step: the layers of step 5.5, the loss of 3.3 and the optimizer of 5.4 as they are.
void queue_operations(Training& t) {
  const size_t batch = t.settings.batch;
  Schedule* const schedule = t.schedule.data();
  // exercise: rows, forward, loss, backward, the curve and the optimizer, on t.stream (about 10
  // lines)
  launch_gather(t.x.data(), t.target.data(), t.rows, Shuffled{t.batches, schedule}, batch,
                t.stream);
  const float* y = t.model.forward(reinterpret_cast<const float*>(t.x.data()), batch, t.stream);
  losses::launch_squared_error_vectorized(t.loss.data(), t.grad_y.data(), y, t.target.data(), batch,
                                          t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.grad_y.data(), t.stream);
  LAUNCH_ON(t.stream, record_loss, 1, 1, 0, t.curve.data(), t.loss.data(), t.batches, schedule);
  optimizers::step(t.settings.kind, t.model.arena(), schedule, t.stream);
  // end exercise
}

void run_operations(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_operations(t);
  t.steps += steps;
}

void launch_gather_in_order(float4* x, float* target, const float4* rows, size_t first,
                            size_t count) {
  launch_gather(x, target, rows, InOrder{first}, count);
}

}  // namespace train_sales
