#include "stage8_framework/01_tensor/gpu_device.h"

#include "stage8_framework/01_tensor/handle.h"
#include "stage8_framework/01_tensor/tensor.h"

namespace tensor {

void GpuDevice::to_device(void* to, const void* host, size_t bytes) {
  if (bytes == 0) return;
  HIP_CHECK(hipMemcpyAsync(to, host, bytes, hipMemcpyHostToDevice, stream_));
  HIP_CHECK(hipStreamSynchronize(stream_));
}

void GpuDevice::to_host(void* host, const void* from, size_t bytes) {
  if (bytes == 0) return;
  HIP_CHECK(hipMemcpyAsync(host, from, bytes, hipMemcpyDeviceToHost, stream_));
  HIP_CHECK(hipStreamSynchronize(stream_));
}

void GpuDevice::copy(const framework::Tensor& out, const framework::Tensor& a) {
  const Problem p = problem_of(out.layout(), a.layout());
  if (out.dtype() == a.dtype())
    launch_vectorized(out.data(), a.data(), size_of(a.dtype()), p, stream_);
  else
    launch_cast(out.data(), out.dtype(), a.data(), a.dtype(), p, stream_);
}

Problem problem_of(const framework::Layout& out, const framework::Layout& a) {
  Problem p;
  p.rank = static_cast<unsigned>(out.shape.rank());
  for (unsigned axis = 0; axis < p.rank; ++axis) {
    p.extent[axis] = out.shape[axis];
    p.out_stride[axis] = out.strides[axis], p.a_stride[axis] = a.strides[axis];
  }
  return p;
}

}  // namespace tensor
