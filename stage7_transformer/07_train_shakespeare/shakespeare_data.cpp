#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "common/input_file.h"
#include "common/random.h"

namespace shakespeare {

// ---- Characters as numbers --------------------------------------------------------------------

namespace {

// The character that begins at text[i], as a message shows it: a UTF-8 sequence as a whole, what
// has no picture by its number.
std::string picture(const std::string& text, std::size_t i) {
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

}  // namespace

Vocabulary::Vocabulary(const std::string& text) : Vocabulary() {
  std::array<bool, 256> there{};
  for (const char c : text) there[static_cast<unsigned char>(c)] = true;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (there[byte]) add(static_cast<unsigned char>(byte));
}

void Vocabulary::add(unsigned char byte) {
  codes_[byte] = static_cast<int>(characters_.size());
  characters_ += static_cast<char>(byte);
}

std::vector<std::uint8_t> Vocabulary::encode(const std::string& text) const {
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

std::string Vocabulary::to_text() const {
  std::string text;
  for (const char c : characters_)
    text += (text.empty() ? "" : " ") + std::to_string(static_cast<unsigned char>(c));
  return text;
}

Vocabulary Vocabulary::from_text(const std::string& text) {
  Vocabulary vocabulary;
  std::istringstream numbers(text);
  for (std::string word; numbers >> word;) {
    unsigned byte = 0;
    for (const char digit : word)
      byte = digit < '0' || digit > '9' || byte > 255
                 ? 256u
                 : 10 * byte + static_cast<unsigned>(digit - '0');
    const bool ascends =
        vocabulary.size() == 0 || byte > static_cast<unsigned char>(vocabulary.characters_.back());
    if (byte > 255 || !ascends) throw std::invalid_argument("its vocabulary is no list of bytes");
    vocabulary.add(static_cast<unsigned char>(byte));
  }
  if (vocabulary.size() == 0) throw std::invalid_argument("it has no vocabulary");
  return vocabulary;
}

// ---- A text and its split ---------------------------------------------------------------------

Corpus::Corpus(const std::string& text) : vocabulary(text) {
  const std::vector<std::uint8_t> tokens = vocabulary.encode(text);
  const auto border = tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() / 10 * 9);
  train.assign(tokens.begin(), border);
  validation.assign(border, tokens.end());
}

double unigram_loss(const Corpus& corpus) {
  std::vector<double> counts(corpus.vocabulary.size(), 1.0);
  double total = static_cast<double>(counts.size());
  for (const std::uint8_t token : corpus.train) ++counts[token], ++total;
  double loss = 0;
  for (const std::uint8_t token : corpus.validation) loss -= std::log(counts[token] / total);
  return loss / static_cast<double>(corpus.validation.size());
}

// ---- Where a text comes from ------------------------------------------------------------------

std::string path_in(const std::string& folder) { return folder + "/tiny_shakespeare.txt"; }

std::string read(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw std::runtime_error("there is no " + path + ": scripts/data.py gets it");
  const std::string text = input_file::read(path);
  if (text.empty()) throw std::runtime_error(path + " is empty");
  return text;
}

namespace {

// What can stand in a sentence; '.' in a pattern is a word of the list that its letter names.
constexpr const char* kSpeakers[] = {"FIRST THREAD", "SECOND THREAD", "WAVE",  "BLOCK",
                                     "HOST",         "KERNEL",        "MEMORY"};
constexpr const char* kNouns[] = {"barrier", "register", "tile",     "bank",  "warp",   "lane",
                                  "cache",   "matrix",   "gradient", "float", "queue",  "stream",
                                  "counter", "kernel",   "vector",   "row",   "column", "weight"};
constexpr const char* kVerbs[] = {"waits for", "loads",  "stores", "divides", "forgets",
                                  "adds",      "reads",  "writes", "keeps",   "shares",
                                  "visits",    "guards", "counts", "follows"};
constexpr const char* kAdjectives[] = {"shared", "idle",   "patient", "wide",  "lonely",
                                       "early",  "narrow", "hidden",  "great", "empty"};
// N noun, V verb, A adjective.
constexpr const char* kPatterns[] = {"the A N V the N.",
                                     "what N V a N, and what A N V it?",
                                     "no N V the A N, my friend.",
                                     "who V the N? a N, a A N!",
                                     "if the N V me, then the A N V thee.",
                                     "o A N, thy N V every N;\nand every N V thy A N."};

}  // namespace

std::string compose(std::size_t length, std::uint64_t seed) {
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
