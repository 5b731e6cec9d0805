// Elements that go somewhere else: by 8.1's copies and 7.1's rows.
#include "stage8_framework/01_tensor/detail/convert.h"
#include "stage8_framework/01_tensor/tensor.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"
#include "stage8_framework/02_backends/own/detail/permuted.h"

namespace own {
namespace {

const char* anything(const CourseCall&) { return nullptr; }

void run_copy(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
  if (elements(y) == 0) return;
  const tensor::Problem p = copy_of(x, y);
  const auto from = static_cast<Dtype>(x.dtype), to = static_cast<Dtype>(y.dtype);
  if (from == to)
    tensor::launch_vectorized(y.data, x.data, size_of(to), p, stream);
  else
    tensor::launch_cast(y.data, to, x.data, from, p, stream);
}

// y[n] = value for `elements` elements of any type.
static __global__ void __launch_bounds__(kBlock)
    fill(void* y, Dtype type, size_t elements, double value) {
  const size_t n = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (n < elements) tensor::store_as(y, type, static_cast<std::int64_t>(n), value);
}

void run_fill(const CourseCall& call, hipStream_t stream) {
  const CourseTensor& y = call.outputs[0];
  launch_fill(y.data, static_cast<Dtype>(y.dtype), elements(y), call.attributes[0], stream);
}

}  // namespace

void launch_fill(void* y, Dtype type, size_t elements, double value, hipStream_t stream) {
  if (elements == 0) return;
  LAUNCH_ON(stream, fill, static_cast<unsigned>(gpu::ceil_div(elements, kBlock)), kBlock, 0, y,
            type, elements, value);
}

std::vector<Operation> moves() {
  return {{"copy", anything, run_copy, nullptr, nullptr, true},
          {"cast", anything, run_copy, nullptr, nullptr, true},
          {"fill", anything, run_fill}};
}

}  // namespace own
