#include "stage8_framework/04_modules/module.h"

#include <algorithm>
#include <stdexcept>

#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/tape.h"

namespace framework {

namespace {

bool is_integer(const Tensor& t) { return t.dtype() == Dtype::i64 || t.dtype() == Dtype::i32; }

void require_loadable(const StateDict& state, const NamedTensor& to) {
  const auto refuse = [&](const std::string& reason) {
    throw std::invalid_argument("load_state_dict: " + to.name + reason);
  };
  const auto found = state.find(to.name);
  if (found == state.end()) {
    if (is_integer(*to.tensor)) return;
    refuse(" is missing");
  }
  const Tensor& from = found->second;
  if (!from.is_defined()) refuse(" is undefined");
  if (from.shape() != to.tensor->shape() || is_integer(from) != is_integer(*to.tensor))
    refuse(" is " + from.text() + ", not " + to.tensor->text());
}

}  // namespace

void Module::require_new(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos)
    throw std::invalid_argument("a module can't have a part called \"" + name + "\"");
  const auto is_it = [&](const auto& entry) { return entry.name == name; };
  const auto is_part = [&](const auto& entry) { return entry.first == name; };
  if (std::any_of(tensors_.begin(), tensors_.end(), is_it) ||
      std::any_of(parts_.begin(), parts_.end(), is_part))
    throw std::invalid_argument("a module has two parts called " + name);
}

void Module::add_parameter(const std::string& name, Tensor& tensor) {
  require_new(name);
  if (!tensor.is_defined()) return;
  tensor.set_requires_grad();
  tensors_.push_back({name, Kind::parameter, &tensor});
}

void Module::add_buffer(const std::string& name, Tensor& tensor) {
  require_new(name);
  tensors_.push_back({name, Kind::buffer, &tensor});
}

void Module::add_module(const std::string& name, Module& part) {
  require_new(name);
  parts_.emplace_back(name, &part);
}

void Module::collect(Kind kind, const std::string& path, std::vector<NamedTensor>& into) {
  for (const Entry& entry : tensors_)
    if (entry.kind == kind) into.push_back({path + entry.name, entry.tensor});
  for (const auto& [name, part] : parts_) part->collect(kind, path + name + ".", into);
}

std::vector<NamedTensor> Module::parameters() {
  std::vector<NamedTensor> all;
  collect(Kind::parameter, "", all);
  return all;
}

std::vector<NamedTensor> Module::buffers() {
  std::vector<NamedTensor> all;
  collect(Kind::buffer, "", all);
  return all;
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const NamedTensor& named : parameters()) count += named.tensor->elements();
  return count;
}

void Module::train(bool is_training) {
  is_training_ = is_training;
  for (const auto& [name, part] : parts_) part->train(is_training);
}

void Module::to(Device& device) {
  const NoGrad guard;
  for (const NamedTensor& named : buffers()) *named.tensor = framework::to(*named.tensor, device);
  for (const NamedTensor& named : parameters()) {
    const bool is_trained = named.tensor->requires_grad();
    *named.tensor = framework::to(named.tensor->detach(), device);
    named.tensor->set_requires_grad(is_trained);
  }
}

StateDict Module::state_dict() {
  StateDict state;
  for (const auto& list : {parameters(), buffers()})
    for (const NamedTensor& named : list) state[named.name] = named.tensor->detach();
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  std::vector<NamedTensor> all = parameters();
  for (const NamedTensor& named : buffers()) all.push_back(named);
  for (const NamedTensor& named : all) require_loadable(state, named);
  for (const auto& entry : state)
    if (std::none_of(all.begin(), all.end(),
                     [&](const NamedTensor& named) { return named.name == entry.first; }))
      throw std::invalid_argument("load_state_dict: the module has no " + entry.first);
  const NoGrad guard;
  for (const NamedTensor& named : all) {
    const auto found = state.find(named.name);
    if (found == state.end()) continue;
    named.tensor->copy_from(framework::to(found->second.detach(), named.tensor->device()));
  }
}

}  // namespace framework
