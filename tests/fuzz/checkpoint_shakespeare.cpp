// What train_shakespeare --generate does with a file before it writes: checkpoint_of(), the claim
// held against the file, the model, and its tensors.
#include <memory>

#include "stage5_training/05_sequential/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "tests/fuzz/fuzz.h"

namespace {

using train_shakespeare::Checkpoint;
using train_shakespeare::Model;
using train_shakespeare::ModelSizes;

bool same(const ModelSizes& a, const ModelSizes& b) {
  return a.layers == b.layers && a.heads == b.heads && a.width == b.width &&
         a.context == b.context && a.batch == b.batch;
}

// A model of these sizes: the one of the last input, if that has them. A file that is right
// replaces all of it, one that is wrong nothing.
Model& model_of(const ModelSizes& sizes, size_t vocabulary) {
  static std::unique_ptr<Model> model;
  if (model == nullptr || !same(model->sizes(), sizes) || model->vocabulary() != vocabulary) {
    model.reset();
    model = std::make_unique<Model>(sizes, vocabulary);
  }
  return *model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::read_or_refused(fuzz::kName, [&] {
    const safetensors::File file =
        safetensors::parse_tensors(fuzz::kName, fuzz::bytes_of(data, size));
    const Checkpoint checkpoint = train_shakespeare::checkpoint_of(fuzz::kName, file);
    Model& model = model_of(checkpoint.sizes, checkpoint.vocabulary.size());
    const sequential::TrainingState state = sequential::load(fuzz::kName, file, model);

    const Checkpoint again =
        train_shakespeare::checkpoint_of(fuzz::kName, sequential::file_of(model, &state));
    fuzz::expect(again.vocabulary.characters() == checkpoint.vocabulary.characters(),
                 "the vocabulary comes back");
    fuzz::expect(again.steps == checkpoint.steps && same(again.sizes, checkpoint.sizes),
                 "the sizes come back");
    return true;
  });
  return 0;
}
