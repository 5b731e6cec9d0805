// Checkpoints: a model's parameters, and what a training that goes on needs, in one safetensors
// file (common/safetensors.h says how). A Model is a Sequential, or has the same description(),
// tensors() and arena().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/safetensors.h"
#include "common/training.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/layer.h"

namespace sequential {

// What a training that goes on needs beside the model's tensors.
struct TrainingState {
  std::uint64_t steps = 0, epochs = 0, seed = 0;  // steps and epochs are those behind it
  std::string optimizer;                          // optimizers::name(kind)
  std::map<std::string, std::string> more;        // what else the program wants to find again
};

// What save() and load() ask of a model.
struct Stored {
  std::string description;
  const std::vector<NamedTensor>& tensors;
  const optimizers::ParameterArena& arena;
};
template <class Model>
Stored stored(const Model& model) {
  return {model.description(), model.tensors(), model.arena()};
}
safetensors::File file_of_stored(const Stored& model, const TrainingState* state);
TrainingState load_stored(const std::string& path, const safetensors::File& file,
                          const Stored& model);
void require_finite_stored(const Stored& model, optimizers::Kind kind, std::uint64_t steps,
                           const training::Kept& kept);

// What save() writes: the parameters under their names in tensors(), and where there is a state
// also m and v, as far as its optimizer keeps them, as "optimizer.m.0.weight". The state and the
// model's description are metadata. Waits for the device.
template <class Model>
safetensors::File file_of(const Model& model, const TrainingState* state = nullptr) {
  return file_of_stored(stored(model), state);
}

// Throws std::runtime_error, one line that names the file, where it can't be written.
template <class Model>
void save(const std::string& path, const Model& model, const TrainingState* state = nullptr) {
  safetensors::write(path, file_of(model, state));
}

// Puts what such a file holds into the model. First everything is checked: a file that is damaged,
// of another model, or has a tensor too many or too few, of another shape or with values that are
// not finite throws std::runtime_error, one line that names the file, and leaves the model as it
// was. m and v become what the file has, else 0. A file of parameters alone, say from PyTorch, is
// right; its state is empty. `file` is what safetensors::read(path) has returned.
template <class Model>
TrainingState load(const std::string& path, const safetensors::File& file, Model& model) {
  return load_stored(path, file, stored(model));
}
template <class Model>
TrainingState load(const std::string& path, Model& model) {
  return load(path, safetensors::read(path), model);
}

// Throws training::Diverged where a parameter, or what the optimizer of this kind keeps of it, is
// not finite after `steps` steps; `kept` is what the training leaves. Waits for the device.
template <class Model>
void require_finite(const Model& model, optimizers::Kind kind, std::uint64_t steps,
                    const training::Kept& kept) {
  require_finite_stored(stored(model), kind, steps, kept);
}

// Throws std::runtime_error where what a checkpoint says of its training is not what the training
// that shall go on from it wants. `has` is empty where the checkpoint does not say.
void require_same(const std::string& path, const char* what, const std::string& has,
                  const std::string& wants);

// The same of the training in a file: throws where there is none that could go on, or its
// optimizer, its seed or something in `wants.more` is another.
void require_training(const std::string& path, const safetensors::File& file,
                      const TrainingState& wants);

bool all_finite(const std::vector<float>& values);

// The state in a file's metadata, empty where there is none. Throws std::invalid_argument.
TrainingState state_of(const std::map<std::string, std::string>& metadata);

}  // namespace sequential
