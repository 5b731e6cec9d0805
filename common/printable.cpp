#include "common/printable.h"

#include <fmt/format.h>

#include <cstddef>

namespace {

struct Character {
  char32_t code;
  std::size_t bytes;  // 0: what stands there is no UTF-8
};

// The character at text[at]. Longer forms of a character than it needs, surrogates, and numbers
// behind the last character are refused.
Character decode(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (bytes == 0 || bytes > text.size() - at) return {0, 0};
  char32_t code = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (byte(at + i) >> 6 != 2) return {0, 0};
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  const char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {0, 0};
  return {code, bytes};
}

bool steers(char32_t code) {
  const auto within = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
  return code < 0x20 || within(0x7f, 0x9f) || within(0x200b, 0x200f) || within(0x2028, 0x202e) ||
         within(0x2060, 0x206f) || code == 0xfeff;
}

}  // namespace

std::string printable(const std::string& text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = decode(text, at);
    if (character.bytes == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const auto code = static_cast<unsigned>(character.code);
    if (!steers(character.code))
      shown += text.substr(at, character.bytes);
    else
      shown += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    at += character.bytes;
  }
  return shown;
}

std::string printable_lines(const std::string& text) {
  std::string shown;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('\n', begin);
    shown += printable(text.substr(begin, end - begin));
    if (end == std::string::npos) return shown;
    shown += '\n';
    begin = end + 1;
  }
}
