// cuDNN's convolutions, by common/dnn.h. The first call of a shape times the library's algorithms,
// and so waits for the device; later ones are queued.
#include <array>
#include <map>

#include "common/dnn.h"
#include "stage8_framework/02_backends/vendor/vendor.h"

namespace vendor {
namespace {

// Never destroyed: at the program's end the CUDA runtime may be gone before it.
dnn::Convolution& convolution_of(const CourseCall& call) {
  static auto& known = *new std::map<std::array<std::size_t, 11>, dnn::Convolution>;
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1];
  const auto attribute = [&](int i) { return static_cast<std::size_t>(call.attributes[i]); };
  const dnn::Shape s{extent(x, 0), extent(x, 1), extent(x, 2), extent(x, 3),
                     extent(w, 0), extent(w, 2), extent(w, 3), attribute(0),
                     attribute(1), attribute(2), attribute(3)};
  return known
      .try_emplace({s.N, s.C, s.H, s.W, s.K, s.R, s.S, s.stride_h, s.stride_w, s.pad_h, s.pad_w}, s)
      .first->second;
}

}  // namespace

const char* supports_conv2d(const CourseCall& call) {
  return inputs_are_contiguous(call) ? nullptr : kContiguous;
}

void run_conv2d(const CourseCall& call, void* stream) {
  dnn::Convolution& convolution = convolution_of(call);
  float* const y = floats(call.outputs[0]);
  convolution.forward(y, floats(call.inputs[0]), floats(call.inputs[1]), stream);
  if (call.input_count > 2 && !is_absent(call.inputs[2]))
    convolution.add_bias(y, floats(call.inputs[2]), stream);
}

}  // namespace vendor
