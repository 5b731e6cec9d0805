// A kernel per operation, launched by the host.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/07_train_sales/train_sales.h"

namespace train_sales {

using train_toy::InOrder;
using train_toy::Shuffled;

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

const float* Training::queue_batch() {
  launch_gather(x.data(), target.data(), rows, Shuffled{sampler, schedule.data()}, batch, stream);
  return reinterpret_cast<const float*>(x.data());
}

void Training::queue_loss(const float* y) {
  // exercise: step 3.3's squared error of the batch, and its gradient (about 3 lines)
  losses::launch_squared_error_vectorized(loss.data(), grad_y.data(), y, target.data(), batch,
                                          loss_buffers_.workspace(), stream);
  // end exercise
}

// A step is that of step 5.6: batch, forward, loss, backward, curve, optimizer.
void run_operations(Training& t, size_t steps) { t.run_operations(steps); }

void launch_gather_in_order(float4* x, float* target, const float4* rows, size_t first,
                            size_t count) {
  launch_gather(x, target, rows, InOrder{first}, count);
}

}  // namespace train_sales
