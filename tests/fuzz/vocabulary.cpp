// shakespeare::Vocabulary::from_text(), the list of bytes in a checkpoint.
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using shakespeare::Vocabulary;
  try {
    const Vocabulary vocabulary = Vocabulary::from_text(std::string(fuzz::bytes_of(data, size)));
    fuzz::expect(vocabulary.size() >= 1 && vocabulary.size() <= 256, "1 to 256 characters");
    const Vocabulary again = Vocabulary::from_text(vocabulary.to_text());
    fuzz::expect(again.characters() == vocabulary.characters(), "the vocabulary comes back");
    fuzz::expect(vocabulary.encode(vocabulary.characters()).back() == vocabulary.size() - 1,
                 "each character has its place");
  } catch (const std::invalid_argument& error) {
    fuzz::expect_line(error.what(), "it");
  }
  return 0;
}
