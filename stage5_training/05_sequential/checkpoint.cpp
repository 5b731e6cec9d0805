#include "stage5_training/05_sequential/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/gpu_runtime.h"
#include "common/printable.h"

namespace sequential {

void require_same(const std::string& path, const char* what, const std::string& has,
                  const std::string& wants) {
  constexpr size_t kMostPlain = 60;  // characters; a longer text, or one that steers, is quoted
  const auto shown = [](const std::string& text) {
    const bool plain = text.size() <= kMostPlain && printable(text) == text;
    return plain ? text : safetensors::quoted(text);
  };
  if (has != wants)
    throw std::runtime_error(path + " is of a training with " + what + " " +
                             (has.empty() ? "unknown" : shown(has)) + ", not " + shown(wants));
}

void require_training(const std::string& path, const safetensors::File& file,
                      const TrainingState& wants) {
  TrainingState found;
  try {
    found = state_of(file.metadata);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " holds no training that could go on: " + error.what());
  }
  require_same(path, "optimizer", found.optimizer, wants.optimizer);
  require_same(path, "seed", std::to_string(found.seed), std::to_string(wants.seed));
  for (const auto& [name, value] : wants.more)
    require_same(path, name.c_str(), found.more[name], value);
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

namespace {

// m and v of a parameter, in a file.
std::string name_of_m(const NamedTensor& tensor) { return "optimizer.m." + tensor.name; }
std::string name_of_v(const NamedTensor& tensor) { return "optimizer.v." + tensor.name; }

// How many arrays of state the optimizer of this name keeps. "" keeps none. Throws
// std::invalid_argument for a name that no optimizer has.
int states_of(const std::string& optimizer) {
  if (optimizer.empty()) return 0;
  for (const optimizers::Kind kind : optimizers::kKinds)
    if (optimizer == optimizers::name(kind)) return optimizers::states(kind);
  throw std::invalid_argument("there is no optimizer " + safetensors::quoted(optimizer));
}

}  // namespace

void require_finite_stored(const Stored& model, optimizers::Kind kind, std::uint64_t steps,
                           const training::Kept& kept) {
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<float> values;
  const auto check = [&](const std::string& name, const NamedTensor& tensor, const float* from) {
    values.resize(tensor.n);
    HIP_CHECK(hipMemcpy(values.data(), from, tensor.n * sizeof(float), hipMemcpyDeviceToHost));
    if (!all_finite(values))
      training::stop_diverged("\"" + name + "\" after step " + std::to_string(steps), kept);
  };
  for (const NamedTensor& tensor : model.tensors) {
    check(tensor.name, tensor, tensor.w);
    if (optimizers::states(kind) >= 1) check(name_of_m(tensor), tensor, tensor.m);
    if (optimizers::states(kind) >= 2) check(name_of_v(tensor), tensor, tensor.v);
  }
}

safetensors::File file_of_stored(const Stored& model, const TrainingState* state) {
  HIP_CHECK(hipDeviceSynchronize());
  safetensors::File file;
  file.metadata["model"] = model.description;
  const auto add = [&](const std::string& name, const NamedTensor& tensor, const float* values) {
    file.tensors.push_back({name, tensor.shape, std::vector<float>(tensor.n)});
    HIP_CHECK(hipMemcpy(file.tensors.back().values.data(), values, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  };
  for (const NamedTensor& tensor : model.tensors) add(tensor.name, tensor, tensor.w);
  if (state != nullptr) {
    const int states = states_of(state->optimizer);
    for (const NamedTensor& tensor : model.tensors) {
      if (states >= 1) add(name_of_m(tensor), tensor, tensor.m);
      if (states >= 2) add(name_of_v(tensor), tensor, tensor.v);
    }
    file.metadata["training.steps"] = std::to_string(state->steps);
    file.metadata["training.epochs"] = std::to_string(state->epochs);
    file.metadata["training.seed"] = std::to_string(state->seed);
    file.metadata["training.optimizer"] = state->optimizer;
    for (const auto& [key, text] : state->more) file.metadata["training.more." + key] = text;
  }
  return file;
}

TrainingState state_of(const std::map<std::string, std::string>& metadata) {
  TrainingState state;
  if (metadata.count("training.optimizer") == 0) return state;
  const auto text = [&](const std::string& key) {
    const auto found = metadata.find("training." + key);
    if (found == metadata.end()) throw std::invalid_argument("it has no \"" + key + "\"");
    return found->second;
  };
  const auto number = [&](const std::string& key) {
    const std::string digits = text(key);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      throw std::invalid_argument("its \"" + key + "\" is " + safetensors::quoted(digits));
    return value;
  };
  state.steps = number("steps"), state.epochs = number("epochs"), state.seed = number("seed");
  state.optimizer = text("optimizer");
  states_of(state.optimizer);
  const std::string more = "training.more.";
  for (const auto& [key, value] : metadata)
    if (key.compare(0, more.size(), more) == 0) state.more[key.substr(more.size())] = value;
  return state;
}

TrainingState load_stored(const std::string& path, const safetensors::File& file,
                          const Stored& model) {
  const auto fail = [&](const std::string& what) { throw std::runtime_error(path + " " + what); };

  TrainingState state;
  try {
    state = state_of(file.metadata);
  } catch (const std::invalid_argument& error) {
    fail(std::string("holds no training that could go on: ") + error.what());
  }
  const auto described = file.metadata.find("model");
  if (described != file.metadata.end() && described->second != model.description)
    fail("holds a " + safetensors::quoted(described->second) + ", not a " + model.description);

  // Everything goes into arrays like the model's own first.
  const optimizers::ParameterArena& arena = model.arena;
  std::vector<float> w(arena.n), m(arena.n), v(arena.n);
  std::set<std::string> wanted;
  const auto take = [&](const std::string& name, const NamedTensor& tensor,
                        std::vector<float>& into) {
    const safetensors::Tensor* found = file.find(name);
    if (found == nullptr) return fail("has no tensor \"" + name + "\"");
    if (found->shape != tensor.shape)
      fail("has a tensor \"" + name + "\" of shape " + safetensors::shape_text(found->shape) +
           "; the model's is " + safetensors::shape_text(tensor.shape));
    if (!all_finite(found->values))
      fail("has a tensor \"" + name + "\" with values that are not finite");
    std::copy(found->values.begin(), found->values.end(), into.begin() + (tensor.w - arena.w));
    wanted.insert(name);
  };
  const int states = states_of(state.optimizer);
  for (const NamedTensor& tensor : model.tensors) {
    take(tensor.name, tensor, w);
    if (states >= 1) take(name_of_m(tensor), tensor, m);
    if (states >= 2) take(name_of_v(tensor), tensor, v);
  }
  for (const safetensors::Tensor& tensor : file.tensors)
    if (wanted.count(tensor.name) == 0)
      fail("has a tensor " + safetensors::quoted(tensor.name) + " that the model does not have");

  HIP_CHECK(hipDeviceSynchronize());
  const size_t bytes = arena.n * sizeof(float);
  if (bytes == 0) return state;
  HIP_CHECK(hipMemcpy(arena.w, w.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(arena.m, m.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(arena.v, v.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipDeviceSynchronize());
  return state;
}

}  // namespace sequential
