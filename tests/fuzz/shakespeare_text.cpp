// shakespeare::read(), Corpus and Vocabulary: a text in numbers is the same text, and the numbers
// of a checkpoint's vocabulary are read back.
#include <cmath>

#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(fuzz::bytes_of(data, size));
  if (bytes.empty() || fuzz::is_chosen(bytes)) {
    static fuzz::MemoryFile file;
    file.fill(bytes);
    const auto text =
        fuzz::read_or_refused(file.path(), [] { return shakespeare::read(file.path()); });
    fuzz::expect(text.has_value() == !bytes.empty(), "any text is read but an empty one");
    if (text) fuzz::expect(*text == bytes, "the text is the file");
  }
  if (bytes.empty()) return 0;

  const shakespeare::Corpus corpus(bytes);
  const shakespeare::Vocabulary& vocabulary = corpus.vocabulary;
  std::string decoded;
  for (const auto* part : {&corpus.train, &corpus.validation})
    for (const std::uint8_t token : *part) decoded += vocabulary.decode(token);
  fuzz::expect(decoded == bytes, "the text comes back");
  fuzz::expect(std::isfinite(shakespeare::unigram_loss(corpus)), "the loss is a number");
  fuzz::expect(shakespeare::Vocabulary::from_text(vocabulary.to_text()).characters() ==
                   vocabulary.characters(),
               "the vocabulary comes back");

  // The text's own first half as a model that must refuse what only the second half has.
  const shakespeare::Vocabulary half(bytes.substr(0, bytes.size() / 2));
  try {
    fuzz::expect(half.encode(bytes).size() == bytes.size(), "a token for each byte");
  } catch (const std::invalid_argument& error) {
    const std::string message = printable(error.what());
    fuzz::expect(message.find(" is none of the ") != std::string::npos, "a message says why");
    fuzz::expect(message.size() < 200, "a message is not long");
  }
  return 0;
}
