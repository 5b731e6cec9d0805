// The text: its characters as numbers, its split, its file, and the play that is made up.
#include <cmath>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"

using shakespeare::Corpus;
using shakespeare::Vocabulary;
using shakespeare_test::complaint;
using tests::Folder;
using tests::write_file;

TEST_CASE("characters become numbers and come back", "[harness]") {
  const std::string text = "to be, or\nnot to be";
  const Vocabulary vocabulary(text);
  REQUIRE(vocabulary.characters() == "\n ,benort");
  std::string again;
  for (const std::uint8_t token : vocabulary.encode(text)) again += vocabulary.decode(token);
  REQUIRE(again == text);
  REQUIRE(Vocabulary::from_text(vocabulary.to_text()).characters() == vocabulary.characters());
  std::string bytes;
  for (int byte = 255; byte >= 0; --byte) bytes += static_cast<char>(byte);
  const Vocabulary all(bytes);
  REQUIRE(all.size() == 256);
  REQUIRE(Vocabulary::from_text(all.to_text()).encode(bytes) == all.encode(bytes));
  for (const char* wrong : {"", "10 9", "10 10", "256", "1 x", "-1", "1 99999999999"})
    REQUIRE_THROWS_AS(Vocabulary::from_text(wrong), std::invalid_argument);
}

TEST_CASE("a character outside the vocabulary is named", "[harness]") {
  const Vocabulary vocabulary("to be");
  const auto said = [&](const std::string& text) {
    return complaint([&] { vocabulary.encode(text); });
  };
  REQUIRE(said("to be") == "");
  REQUIRE(said("to see") == "'s' at position 4 is none of the 5 characters that the model knows");
  REQUIRE(contains_text(said("b\n"), "character number 10 at position 2"));
  REQUIRE(contains_text(said("b\xC3\xA9t"), "'\xC3\xA9' at position 2"));
  REQUIRE(contains_text(said("\xA9"), "byte number 169 at position 1"));
}

TEST_CASE("a text is split, and its shares say what guessing loses", "[harness]") {
  const Corpus split(std::string(90, 'a') + std::string(10, 'b'));
  REQUIRE((split.train.size() == 90 && split.validation.size() == 10));
  REQUIRE(std::fabs(shakespeare::unigram_loss(split) - std::log(92.0)) < 1e-12);
  const Corpus play(shakespeare::compose(20000, 1));
  REQUIRE(shakespeare::unigram_loss(play) < std::log(static_cast<double>(play.vocabulary.size())));
}

TEST_CASE("the play is the same in any length, and another for another seed", "[harness]") {
  const std::string few = shakespeare::compose(500, 1), many = shakespeare::compose(5000, 1);
  REQUIRE((few.size() >= 500 && many.size() >= 5000));
  REQUIRE(many.compare(0, few.size(), few) == 0);
  REQUIRE(shakespeare::compose(500, 2) != few);
  for (const char c : many) REQUIRE((c == '\n' || (c >= ' ' && c <= '~')));
}

TEST_CASE("a file of text: there, missing, empty", "[harness]") {
  const Folder folder;
  const std::string path = shakespeare::path_in(folder / "");
  REQUIRE(contains_text(complaint([&] { shakespeare::read(path); }), "scripts/data.py"));
  write_file(path, "");
  REQUIRE(contains_text(complaint([&] { shakespeare::read(path); }), "is empty"));
  write_file(path, "Speak, speak.\n");
  REQUIRE(shakespeare::read(path) == "Speak, speak.\n");
}
