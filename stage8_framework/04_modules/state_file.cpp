#include "stage8_framework/04_modules/state_file.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/safetensors.h"
#include "stage8_framework/02_backends/registry.h"

namespace framework {

void save(const std::string& path, const StateDict& state) {
  // The larger elements come first, so that all are aligned in the file.
  std::vector<std::pair<std::string, Tensor>> sorted(state.begin(), state.end());
  std::stable_partition(sorted.begin(), sorted.end(),
                        [](const auto& entry) { return entry.second.dtype() == Dtype::i64; });
  safetensors::File file;
  for (const auto& [name, tensor] : sorted) {
    safetensors::Tensor entry{name, {}, {}};
    for (const std::int64_t extent : tensor.shape())
      entry.shape.push_back(static_cast<size_t>(extent));
    const Tensor values = tensor.detach().contiguous();
    if (tensor.dtype() == Dtype::i64)
      entry.is_integer = true, entry.integers = values.to_host<std::int64_t>();
    else
      entry.values = values.to(Dtype::f32).to_host<float>();
    file.tensors.push_back(std::move(entry));
  }
  safetensors::write(path, file);
}

StateDict load(const std::string& path, Device& device) {
  const safetensors::File file = safetensors::read(path, safetensors::Types::f32_and_i64);
  StateDict state;
  for (const safetensors::Tensor& entry : file.tensors) {
    Shape shape;
    if (entry.shape.size() > kMaxRank)
      throw std::runtime_error(path + " has a tensor " + safetensors::quoted(entry.name) +
                               " of rank " + std::to_string(entry.shape.size()) + "; " +
                               std::to_string(kMaxRank) + " axes are the most");
    for (const size_t extent : entry.shape)
      shape.insert(shape.rank(), static_cast<std::int64_t>(extent));
    state[entry.name] = entry.is_integer ? Tensor::from_host(device, entry.integers, shape)
                                         : Tensor::from_host(device, entry.values, shape);
  }
  return state;
}

void save(const std::string& path, Module& module) { save(path, module.state_dict()); }

void load(const std::string& path, Module& module) {
  const StateDict state = load(path, device("reference"));
  try {
    module.load_state_dict(state);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace framework
