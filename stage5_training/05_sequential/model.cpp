// Building a model: which layers fit together, and where their parameters lie.
#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "stage5_training/05_sequential/sequential.h"

namespace sequential {

Sequential::Sequential(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {
  connect();
  lay_out_parameters();
  set_mode(kVersions[std::size(kVersions) - 1].launch);
}

void Sequential::connect() {
  if (layers_.empty()) throw std::invalid_argument("Sequential: a model has at least one layer");
  widths_.push_back(layers_[0]->inputs());
  if (widths_[0] == 0)
    throw std::invalid_argument("Sequential: " + layers_[0]->description() +
                                " comes first and does not say how many values the model takes");
  size_t maker = 0;  // the layer that has decided how many values come
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *layers_[i];
    const size_t width = widths_.back(), wanted = layer.inputs();
    if (wanted != 0 && wanted != width)
      throw std::invalid_argument(
          "Sequential: layer " + std::to_string(i) + ", " + layer.description() + ", takes " +
          std::to_string(wanted) + " values and layer " + std::to_string(maker) + ", " +
          layers_[maker]->description() + ", makes " + std::to_string(width));
    layer.connect(width);
    widths_.push_back(layer.outputs(width));
    if (widths_.back() != width || wanted != 0) maker = i;
  }
}

void Sequential::lay_out_parameters() {
  std::vector<size_t> offsets;  // in the arena
  size_t end = 0;
  first_trained_ = layers_.size();
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (Parameter& parameter : layers_[i]->parameters()) {
      const std::string name = std::to_string(i) + "." + parameter.name;
      const size_t n = checked_product(parameter.shape, layers_[i]->description());
      if (parameter.initial == Initial::ByNext) {
        const bool rectified = i + 1 < layers_.size() && layers_[i + 1]->rectifies();
        parameter.initial = rectified ? Initial::He : Initial::Xavier;
      }
      first_trained_ = std::min(first_trained_, i);
      offsets.push_back(end);
      end += aligned(n);
      check_addressable(end <= kMostFloats, description());
      tensors_.push_back({name, parameter.shape, nullptr, nullptr, nullptr, nullptr, n});
      specifications_.push_back(std::move(parameter));
    }
  }

  parameters_ = DeviceBuffer<float>(4 * end);
  clear();
  float* const begin = parameters_.data();
  arena_ = {begin, begin + end, begin + 2 * end, begin + 3 * end, end};
  for (size_t k = 0; k < tensors_.size(); ++k) {
    NamedTensor& tensor = tensors_[k];
    tensor.w = begin + offsets[k], tensor.grad = tensor.w + end;
    tensor.m = tensor.w + 2 * end, tensor.v = tensor.w + 3 * end;
  }

  size_t k = 0;
  for (const auto& layer : layers_) {
    std::vector<float*> values, gradients;
    for (size_t left = layer->parameters().size(); left > 0; --left, ++k)
      values.push_back(tensors_[k].w), gradients.push_back(tensors_[k].grad);
    layer->bind(std::move(values), std::move(gradients));
  }
}

size_t Sequential::parameter_count() const {
  size_t count = 0;
  for (const NamedTensor& tensor : tensors_) count += tensor.n;
  return count;
}

std::string Sequential::description() const {
  std::string text;
  for (const auto& layer : layers_) text += (text.empty() ? "" : ", ") + layer->description();
  return "Sequential{" + text + "}";
}

}  // namespace sequential
