// What train_shakespeare --generate does with a file before it writes: read_checkpoint(), the claim
// held against the file, the model, and its tensors.
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::MemoryFile file;
  static const fuzz::Folder folder;
  file.fill(fuzz::text_of(data, size));
  fuzz::read_or_refused(file.path(), [] {
    const train_shakespeare::Checkpoint checkpoint =
        train_shakespeare::read_checkpoint(file.path());
    train_shakespeare::Model model(checkpoint.sizes, checkpoint.vocabulary.size());
    const sequential::TrainingState state = sequential::load(file.path(), model);

    const std::string path = folder.file("again");
    sequential::save(path, model, &state);
    const train_shakespeare::Checkpoint again = train_shakespeare::read_checkpoint(path);
    fuzz::expect(again.vocabulary.characters() == checkpoint.vocabulary.characters(),
                 "the vocabulary comes back");
    fuzz::expect(again.steps == checkpoint.steps && again.sizes.layers == checkpoint.sizes.layers &&
                     again.sizes.heads == checkpoint.sizes.heads &&
                     again.sizes.width == checkpoint.sizes.width &&
                     again.sizes.context == checkpoint.sizes.context &&
                     again.sizes.batch == checkpoint.sizes.batch,
                 "the sizes come back");
    return true;
  });
  return 0;
}
