// Operations on rows: softmax by 3.2 and 5.2.
#include <cmath>

#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"
#include "stage8_framework/02_backends/own/detail/block_reduce.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {
namespace {

using vector_add::kBlock;

void run_softmax(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
  if (elements(y) == 0) return;
  if (call.kernel == 0) return softmax::best(floats(y), floats(x), rows(x), columns(x), stream);
  softmax::kVersions[call.kernel - 1].launch.run(floats(y), floats(x), rows(x), columns(x), stream);
}

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// y[r,c] = x[r,c] - m - log(sum over k of exp(x[r,k] - m)), m = max of row r     x, y (rows, cols)
// Thread: the block is a row; a thread takes every kBlock-th column.
static __global__ void __launch_bounds__(kBlock)
    log_softmax_rows(float* y, const float* x, size_t cols) {
  const float* row = x + blockIdx.x * cols;
  float max = -INFINITY, sum = 0;
  for (size_t c = threadIdx.x; c < cols; c += kBlock) max = fmaxf(max, row[c]);
  max = block_reduce(max, Max{});
  for (size_t c = threadIdx.x; c < cols; c += kBlock) sum += expf(row[c] - max);
  const float log_sum = logf(block_reduce(sum, vector_add::Add{}));
  for (size_t c = threadIdx.x; c < cols; c += kBlock)
    y[blockIdx.x * cols + c] = row[c] - max - log_sum;
}

const char* supports_log_softmax(const CourseCall& call) {
  if (const char* reason = unless_plain(call)) return reason;
  return rows(call.inputs[0]) >= size_t{1} << 31 ? "2^31 rows or more" : nullptr;
}
void run_log_softmax(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
  if (elements(y) == 0) return;
  LAUNCH_ON(stream, log_softmax_rows, static_cast<unsigned>(rows(x)), kBlock, 0, floats(y),
            floats(x), columns(x));
}

void run_softmax_backward(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &y = call.inputs[1], &grad_x = call.outputs[0];
  if (elements(y) == 0) return;
  const auto launch = call.kernel == 0
                          ? activation_backward::softmax_backward
                          : activation_backward::kSoftmaxVersions[call.kernel - 1].launch.run;
  launch(floats(grad_x), floats(grad_y), floats(y), rows(y), columns(y), stream);
}

}  // namespace

std::vector<Operation> row_operations() {
  return {{"softmax", unless_plain, run_softmax, name_of<softmax::kVersions>},
          {"log_softmax", supports_log_softmax, run_log_softmax},
          {"softmax_backward", unless_plain, run_softmax_backward,
           name_of<activation_backward::kSoftmaxVersions>}};
}

}  // namespace own
