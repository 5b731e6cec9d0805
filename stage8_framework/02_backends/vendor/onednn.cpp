// oneDNN, the convolutions and rows of the CPU backend's plug-in. A primitive is made once for each
// shape.
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stage8_framework/02_backends/vendor/vendor.h"

namespace vendor {
namespace {

using dnnl::memory;

const dnnl::engine& engine() {
  static const dnnl::engine once(dnnl::engine::kind::cpu, 0);
  return once;
}

memory::desc row_major(const CourseTensor& tensor) {
  const memory::dims extents(tensor.extent, tensor.extent + tensor.rank);
  memory::dims strides(extents.size(), 1);
  for (std::size_t axis = extents.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * extents[axis];
  return {extents, memory::data_type::f32, strides};
}

memory on(const CourseTensor& tensor) { return {row_major(tensor), engine(), tensor.data}; }

// Releases before 3 describe a primitive in two steps.
template <class Forward, class... Arguments>
typename Forward::primitive_desc description_of(Arguments&&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Forward::primitive_desc(engine(), std::forward<Arguments>(arguments)...);
#else
  return typename Forward::primitive_desc(
      typename Forward::desc(std::forward<Arguments>(arguments)...), engine());
#endif
}

// All that a primitive depends on.
using Key = std::vector<std::int64_t>;
Key key_of(const CourseCall& call, int attributes) {
  Key key;
  for (int i = 0; i < call.input_count; ++i) {
    key.push_back(call.inputs[i].rank);
    for (int axis = 0; axis < call.inputs[i].rank; ++axis)
      key.push_back(call.inputs[i].extent[axis]);
  }
  for (int i = 0; i < attributes; ++i) key.push_back(static_cast<std::int64_t>(call.attributes[i]));
  return key;
}

void execute(const dnnl::primitive& primitive, std::unordered_map<int, memory> arguments) {
  dnnl::stream stream(engine());
  primitive.execute(stream, arguments);
  stream.wait();
}

bool has_bias(const CourseCall& call) { return call.input_count > 2 && !is_absent(call.inputs[2]); }

dnnl::convolution_forward make_convolution(const CourseCall& call) {
  const memory::dims strides{static_cast<std::int64_t>(call.attributes[0]),
                             static_cast<std::int64_t>(call.attributes[1])};
  const memory::dims padding{static_cast<std::int64_t>(call.attributes[2]),
                             static_cast<std::int64_t>(call.attributes[3])};
  const auto x = row_major(call.inputs[0]), w = row_major(call.inputs[1]),
             y = row_major(call.outputs[0]);
  using Forward = dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  return has_bias(call)
             ? Forward(description_of<Forward>(kind, algorithm, x, w, row_major(call.inputs[2]), y,
                                               strides, padding, padding))
             : Forward(
                   description_of<Forward>(kind, algorithm, x, w, y, strides, padding, padding));
}

}  // namespace

const char* supports_conv2d(const CourseCall& call) {
  return inputs_are_contiguous(call) ? nullptr : kContiguous;
}

void run_conv2d(const CourseCall& call, void*) {
  static std::map<Key, dnnl::convolution_forward> known;
  const Key key = key_of(call, 4);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, make_convolution(call)).first;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, on(call.inputs[0])},
                                            {DNNL_ARG_WEIGHTS, on(call.inputs[1])},
                                            {DNNL_ARG_DST, on(call.outputs[0])}};
  if (has_bias(call)) arguments.emplace(DNNL_ARG_BIAS, on(call.inputs[2]));
  execute(found->second, std::move(arguments));
}

const char* supports_softmax(const CourseCall& call) {
  if (call.inputs[0].rank == 0) return "a scalar has no rows";
  return inputs_are_contiguous(call) ? nullptr : kContiguous;
}

void run_softmax(const CourseCall& call, void*) {
  static std::map<Key, dnnl::softmax_forward> known;
  const Key key = key_of(call, 0);
  auto found = known.find(key);
  if (found == known.end()) {
    const auto rows = row_major(call.inputs[0]);
    const int last = call.inputs[0].rank - 1;
    const auto kind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
    const auto description = description_of<dnnl::softmax_forward>(
        kind, dnnl::algorithm::softmax_accurate, rows, rows, last);
#else
    const auto description = description_of<dnnl::softmax_forward>(kind, rows, last);
#endif
    found = known.emplace(key, dnnl::softmax_forward(description)).first;
  }
  execute(found->second, {{DNNL_ARG_SRC, on(call.inputs[0])}, {DNNL_ARG_DST, on(call.outputs[0])}});
}

}  // namespace vendor
