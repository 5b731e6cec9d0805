// The data of step 7.7: Tiny Shakespeare from its file, or a play that is made up here where there
// is none; its characters as numbers, and its split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shakespeare {

// ---- Characters as numbers --------------------------------------------------------------------

// The different bytes of a text, in ascending order: a character is the number of its place among
// them. What is written in ASCII has one byte per character; what is not has several tokens there.
class Vocabulary {
 public:
  Vocabulary() { codes_.fill(-1); }
  explicit Vocabulary(const std::string& text);

  std::size_t size() const { return characters_.size(); }
  const std::string& characters() const { return characters_; }

  // Throws std::invalid_argument, one line, at the first character that is none of these.
  std::vector<std::uint8_t> encode(const std::string& text) const;
  char decode(std::size_t token) const { return characters_.at(token); }

  // As text for a checkpoint, "10 32 33 39": the bytes' numbers; and back. from_text throws
  // std::invalid_argument for anything else.
  std::string to_text() const;
  static Vocabulary from_text(const std::string& text);

 private:
  void add(unsigned char byte);

  std::string characters_;
  std::array<int, 256> codes_;
};

// ---- A text and its split ---------------------------------------------------------------------

// The first nine tenths to train on, the rest to validate with.
struct Corpus {
  explicit Corpus(const std::string& text);
  Vocabulary vocabulary;
  std::vector<std::uint8_t> train, validation;
};

// The cross-entropy of the characters' shares in `train`, per character of `validation`, in nats: a
// model that reads must be below. Each character counts once more than it was seen, so that none is
// impossible.
double unigram_loss(const Corpus& corpus);

// ---- Where a text comes from ------------------------------------------------------------------

// Of Tiny Shakespeare.
std::string path_in(const std::string& folder);

// Throws std::runtime_error, one line that names the file, where it can't be read or is empty.
std::string read(const std::string& path);

// At least `length` characters of a play that is made up, the same for a seed on every machine.
std::string compose(std::size_t length, std::uint64_t seed);

}  // namespace shakespeare
