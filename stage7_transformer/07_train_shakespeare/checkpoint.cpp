#include "stage7_transformer/07_train_shakespeare/checkpoint.h"

#include <stdexcept>

#include "stage5_training/05_sequential/checkpoint.h"

namespace train_shakespeare {

namespace {

// The tensors of the layers and of the positions alone must be there.
void check_claim(const std::string& path, const safetensors::File& file,
                 const ModelSizes& claimed) {
  const double layers = static_cast<double>(claimed.layers);
  const double width = static_cast<double>(claimed.width);
  const double context = static_cast<double>(claimed.context);
  double there = 0;
  for (const safetensors::Tensor& tensor : file.tensors)
    there += static_cast<double>(tensor.values.size());
  if (width * (layers * 12 * width + context) > there)
    throw std::runtime_error(path + " claims " + std::to_string(claimed.layers) +
                             " layers of width " + std::to_string(claimed.width) +
                             " for a context of " + std::to_string(claimed.context) +
                             ", and is too short for them");
}

}  // namespace

Checkpoint checkpoint_of(const std::string& path, const safetensors::File& file) {
  try {
    const sequential::TrainingState state = sequential::state_of(file.metadata);
    const auto text = [&](const char* name) {
      const auto found = state.more.find(name);
      if (found == state.more.end())
        throw std::invalid_argument("it says nothing about its " + std::string(name));
      return found->second;
    };
    const auto number = [&](const char* name) {
      const std::string digits = text(name);
      const bool is_number = !digits.empty() && digits.size() < 10 &&
                             digits.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) throw std::invalid_argument("its " + std::string(name) + " is no number");
      return static_cast<size_t>(std::stoul(digits));
    };
    const Checkpoint checkpoint{
        {number("layers"), number("heads"), number("width"), number("context"), number("batch")},
        shakespeare::Vocabulary::from_text(text("vocabulary")),
        state.steps};
    check(checkpoint.sizes);
    check_claim(path, file, checkpoint.sizes);
    return checkpoint;
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " holds no model that writes: " + error.what());
  }
}

std::map<std::string, std::string> facts_of(const ModelSizes& sizes,
                                            const shakespeare::Vocabulary& known) {
  return {{"vocabulary", known.to_text()},
          {"layers", std::to_string(sizes.layers)},
          {"heads", std::to_string(sizes.heads)},
          {"width", std::to_string(sizes.width)},
          {"context", std::to_string(sizes.context)},
          {"batch", std::to_string(sizes.batch)}};
}

}  // namespace train_shakespeare
