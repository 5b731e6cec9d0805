// The data of step 7.7: Tiny Shakespeare from its file, or a play that is made up here where there
// is none; its characters as numbers, and its split. Host code only.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/input_file.h"
#include "common/random.h"

namespace shakespeare {

// ---- Characters as numbers --------------------------------------------------------------------

// The character that begins at text[i], as a message shows it: a UTF-8 sequence as a whole, what
// has no picture by its number.
inline std::string picture(const std::string& text, std::size_t i) {
  const unsigned char first = static_cast<unsigned char>(text[i]);
  if (first < 0x20 || first == 0x7F) return "character number " + std::to_string(first);
  std::size_t length = 1;
  if (first >= 0xC0)
    while (length < 4 && i + length < text.size() &&
           (static_cast<unsigned char>(text[i + length]) & 0xC0) == 0x80)
      ++length;
  if (first >= 0x80 && length == 1) return "byte number " + std::to_string(first);
  return "'" + text.substr(i, length) + "'";
}

// The different bytes of a text, in ascending order: a character is the number of its place among
// them. What is written in ASCII has one byte per character; what is not has several tokens there.
class Vocabulary {
 public:
  Vocabulary() { codes_.fill(-1); }
  explicit Vocabulary(const std::string& text) : Vocabulary() {
    std::array<bool, 256> there{};
    for (const char c : text) there[static_cast<unsigned char>(c)] = true;
    for (unsigned byte = 0; byte < 256; ++byte)
      if (there[byte]) add(static_cast<unsigned char>(byte));
  }

  std::size_t size() const { return characters_.size(); }
  const std::string& characters() const { return characters_; }

  // Throws std::invalid_argument, one line, at the first character that is none of these.
  std::vector<std::uint8_t> encode(const std::string& text) const {
    std::vector<std::uint8_t> tokens;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const int code = codes_[static_cast<unsigned char>(text[i])];
      if (code < 0)
        throw std::invalid_argument(picture(text, i) + " at position " + std::to_string(i + 1) +
                                    " is none of the " + std::to_string(size()) +
                                    " characters that the model knows");
      tokens.push_back(static_cast<std::uint8_t>(code));
    }
    return tokens;
  }
  char decode(std::size_t token) const { return characters_.at(token); }

  // As text for a checkpoint, "10 32 33 39": the bytes' numbers; and back. from_text throws
  // std::invalid_argument for anything else.
  std::string to_text() const {
    std::string text;
    for (const char c : characters_)
      text += (text.empty() ? "" : " ") + std::to_string(static_cast<unsigned char>(c));
    return text;
  }
  static Vocabulary from_text(const std::string& text) {
    Vocabulary vocabulary;
    std::istringstream numbers(text);
    for (std::string word; numbers >> word;) {
      unsigned byte = 0;
      for (const char digit : word)
        byte = digit < '0' || digit > '9' || byte > 255
                   ? 256u
                   : 10 * byte + static_cast<unsigned>(digit - '0');
      const bool ascends = vocabulary.size() == 0 ||
                           byte > static_cast<unsigned char>(vocabulary.characters_.back());
      if (byte > 255 || !ascends) throw std::invalid_argument("its vocabulary is no list of bytes");
      vocabulary.add(static_cast<unsigned char>(byte));
    }
    if (vocabulary.size() == 0) throw std::invalid_argument("it has no vocabulary");
    return vocabulary;
  }

 private:
  void add(unsigned char byte) {
    codes_[byte] = static_cast<int>(characters_.size());
    characters_ += static_cast<char>(byte);
  }
  std::string characters_;
  std::array<int, 256> codes_;
};

// ---- A text and its split ---------------------------------------------------------------------

// The first nine tenths to train on, the rest to validate with.
struct Corpus {
  explicit Corpus(const std::string& text) : vocabulary(text) {
    const std::vector<std::uint8_t> tokens = vocabulary.encode(text);
    const auto border = tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() / 10 * 9);
    train.assign(tokens.begin(), border);
    validation.assign(border, tokens.end());
  }
  Vocabulary vocabulary;
  std::vector<std::uint8_t> train, validation;
};

// What a model that knows how often each character comes, and nothing else, loses per character of
// `validation`, in nats: the cross-entropy of its shares in `train`. A model that reads must be
// below. Each character counts once more than it was seen, so that none is impossible.
inline double unigram_loss(const Corpus& corpus) {
  std::vector<double> counts(corpus.vocabulary.size(), 1.0);
  double total = static_cast<double>(counts.size());
  for (const std::uint8_t token : corpus.train) ++counts[token], ++total;
  double loss = 0;
  for (const std::uint8_t token : corpus.validation) loss -= std::log(counts[token] / total);
  return loss / static_cast<double>(corpus.validation.size());
}

// ---- Tiny Shakespeare's file ------------------------------------------------------------------

inline std::string path_in(const std::string& folder) { return folder + "/tiny_shakespeare.txt"; }

// Throws std::runtime_error, one line that names the file, where it can't be read or is empty.
inline std::string read(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw std::runtime_error("there is no " + path + ": scripts/data.py gets it");
  const std::string text = input_file::read(path);
  if (text.empty()) throw std::runtime_error(path + " is empty");
  return text;
}

// ---- A play that is made up here --------------------------------------------------------------

// What can stand in a sentence; '.' in a pattern is a word of the list that its letter names.
inline constexpr const char* kSpeakers[] = {"FIRST THREAD", "SECOND THREAD", "WAVE",  "BLOCK",
                                            "HOST",         "KERNEL",        "MEMORY"};
inline constexpr const char* kNouns[] = {
    "barrier", "register", "tile",   "bank",    "warp",   "lane",   "cache", "matrix", "gradient",
    "float",   "queue",    "stream", "counter", "kernel", "vector", "row",   "column", "weight"};
inline constexpr const char* kVerbs[] = {"waits for", "loads",  "stores", "divides", "forgets",
                                         "adds",      "reads",  "writes", "keeps",   "shares",
                                         "visits",    "guards", "counts", "follows"};
inline constexpr const char* kAdjectives[] = {"shared", "idle",   "patient", "wide",  "lonely",
                                              "early",  "narrow", "hidden",  "great", "empty"};
// N noun, V verb, A adjective.
inline constexpr const char* kPatterns[] = {"the A N V the N.",
                                            "what N V a N, and what A N V it?",
                                            "no N V the A N, my friend.",
                                            "who V the N? a N, a A N!",
                                            "if the N V me, then the A N V thee.",
                                            "o A N, thy N V every N;\nand every N V thy A N."};

// At least `length` characters of dialogue, the same for every seed on every machine.
inline std::string compose(std::size_t length, std::uint64_t seed) {
  constexpr std::uint32_t kStream = 0x914A1u;  // a sequence that nothing else uses
  std::uint64_t used = 0;
  const auto choose = [&](const auto& list) {
    return std::string(list[random_numbers::word(seed, kStream, used++) % std::size(list)]);
  };
  const auto sentence = [&] {
    std::string text;
    for (const char c : choose(kPatterns))
      text += c == 'N'   ? choose(kNouns)
              : c == 'V' ? choose(kVerbs)
              : c == 'A' ? choose(kAdjectives)
                         : std::string(1, c);
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  };
  std::string play;
  while (play.size() < length) {
    play += choose(kSpeakers) + ":\n" + sentence() + "\n";
    while (random_numbers::word(seed, kStream, used++) % 3 == 0) play += sentence() + "\n";
    play += "\n";
  }
  return play;
}

}  // namespace shakespeare
