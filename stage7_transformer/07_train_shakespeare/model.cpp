#include "stage7_transformer/07_train_shakespeare/model.h"

namespace train_shakespeare {

Model::Model(const ModelSizes& sizes, size_t vocabulary) : sizes_(sizes), vocabulary_(vocabulary) {
  check(sizes);
  size_t end = 0;
  std::vector<size_t> offsets;
  const auto add_tensor = [&](const std::string& name, const std::vector<size_t>& shape) {
    const size_t n = sequential::checked_product(shape, name);
    offsets.push_back(end);
    end += gpu::ceil_div(n, 8) * 8;
    sequential::check_addressable(end <= sequential::kMostFloats, "this model");
    tensors_.push_back({name, shape, nullptr, nullptr, nullptr, nullptr, n});
  };
  const size_t C = sizes.width;
  add_tensor("token.weight", {vocabulary, C});
  add_tensor("position.weight", {sizes.context, C});
  for (size_t layer = 0; layer < sizes.layers; ++layer)
    for (const auto& [name, shape] : transformer_block::parameter_shapes(C))
      add_tensor(std::to_string(layer) + "." + name, shape);
  add_tensor("norm.weight", {C});
  add_tensor("norm.bias", {C});
  add_tensor("head.weight", {vocabulary, C});

  memory_ = DeviceBuffer<float>(4 * end);
  HIP_CHECK(hipMemset(memory_.data(), 0, memory_.bytes()));
  float* const begin = memory_.data();
  arena_ = {begin, begin + end, begin + 2 * end, begin + 3 * end, end};
  for (size_t k = 0; k < tensors_.size(); ++k) {
    NamedTensor& tensor = tensors_[k];
    tensor.w = begin + offsets[k], tensor.grad = tensor.w + end;
    tensor.m = tensor.w + 2 * end, tensor.v = tensor.w + 3 * end;
  }
  parameters_ = pointers<const float*>([](const NamedTensor& tensor) { return tensor.w; });
  gradients_ = pointers<float*>([](const NamedTensor& tensor) { return tensor.grad; });
  HIP_CHECK(hipDeviceSynchronize());
}

Tensors<const gpu::bfloat16*> Model::pointers_into(const gpu::bfloat16* copy) const {
  return pointers<const gpu::bfloat16*>(
      [&](const NamedTensor& tensor) { return copy + (tensor.w - arena_.w); });
}

template <class Pointer, class Array>
Tensors<Pointer> Model::pointers(Array array) const {
  std::vector<Pointer> list;
  for (const NamedTensor& tensor : tensors_) list.push_back(array(tensor));
  Tensors<Pointer> result{list[0], list[1], {}, nullptr, nullptr, nullptr};
  const Pointer* next = list.data() + 2;
  for (size_t layer = 0; layer < sizes_.layers; ++layer, next += transformer_block::kTensors)
    result.blocks.push_back(transformer_block::tensors_of<Pointer>(next));
  result.norm_gain = next[0], result.norm_bias = next[1], result.head = next[2];
  return result;
}

std::string Model::description() const {
  return "Transformer(layers " + std::to_string(sizes_.layers) + ", heads " +
         std::to_string(sizes_.heads) + ", width " + std::to_string(sizes_.width) + ", context " +
         std::to_string(sizes_.context) + ", vocabulary " + std::to_string(vocabulary_) + ")";
}

size_t Model::parameter_count() const {
  size_t count = 0;
  for (const NamedTensor& tensor : tensors_) count += tensor.n;
  return count;
}

std::vector<std::vector<float>> parameters_of(const Model& model) {
  const optimizers::ParameterArena& arena = model.arena();
  std::vector<float> all(arena.n);
  HIP_CHECK(hipMemcpy(all.data(), arena.w, arena.n * sizeof(float), hipMemcpyDeviceToHost));
  std::vector<std::vector<float>> parameters;
  for (const NamedTensor& tensor : model.tensors()) {
    const float* const first = all.data() + (tensor.w - arena.w);
    parameters.emplace_back(first, first + tensor.n);
  }
  return parameters;
}

double operations_of(const Model& model, double steps) {
  const ModelSizes& s = model.sizes();
  const double C = static_cast<double>(s.width), T = static_cast<double>(s.context);
  const double tokens = static_cast<double>(s.batch) * T, layers = static_cast<double>(s.layers);
  const double weights = 12 * layers * C * C + C * static_cast<double>(model.vocabulary());
  return steps * tokens * (6 * weights + 6 * layers * T * C);
}

}  // namespace train_shakespeare
