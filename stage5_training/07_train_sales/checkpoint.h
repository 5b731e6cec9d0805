// 5.7  What a checkpoint of train_sales says beside the model's tensors. A model is of no use
// without what turned its sales into numbers: the encoding is saved with it. Floats are written as
// hexadecimal, which loses nothing.
#pragma once

#include <map>
#include <string>

#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/07_train_sales/sales_features.h"

namespace train_sales {

std::map<std::string, std::string> texts_of(const Encoding& encoding);

// Throws std::invalid_argument where a text is missing or is not one of texts_of's.
Encoding encoding_of(const std::map<std::string, std::string>& texts);

// What a checkpoint says beside its tensors, and the encoding in it.
struct Checkpoint {
  sequential::TrainingState state;
  Encoding encoding;
};

// `file` is what safetensors::read(path) has returned. Throws std::runtime_error, one line that
// names the file.
Checkpoint checkpoint_of(const std::string& path, const safetensors::File& file);

}  // namespace train_sales
