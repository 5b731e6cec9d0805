// What a checkpoint says of its model, so that something can be written with the file alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/safetensors.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

namespace train_shakespeare {

struct Checkpoint {
  ModelSizes sizes;
  shakespeare::Vocabulary vocabulary;
  std::uint64_t steps;
};

// `file` is what safetensors::read(path) has returned. Throws std::runtime_error, one line that
// names the file, where it is no checkpoint of this step, or claims a model that is larger than the
// file: before memory is taken for it.
Checkpoint checkpoint_of(const std::string& path, const safetensors::File& file);

// What a checkpoint says beside parameters, steps, seed and optimizer.
std::map<std::string, std::string> facts_of(const ModelSizes& sizes,
                                            const shakespeare::Vocabulary& known);

}  // namespace train_shakespeare
