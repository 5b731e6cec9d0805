#include "common/picture.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "common/output_file.h"

namespace {

constexpr std::size_t kLargestSide = 32768;
constexpr Color kWrong{255, 0, 0}, kFrame{170, 170, 170};
constexpr Color kPlus{0, 90, 181}, kMinus{220, 95, 0};

std::uint8_t mix(std::uint8_t from, std::uint8_t to, double share) {
  return static_cast<std::uint8_t>(std::lround(from + share * (to - from)));
}
Color mix(Color from, Color to, double share) {
  return {mix(from.red, to.red, share), mix(from.green, to.green, share),
          mix(from.blue, to.blue, share)};
}

// ---- Letters ----------------------------------------------------------------------------------
// What a pen draws for each character: points "xy" on a grid of 4 x 8 steps, x from 0 to 4, y from
// the top 0 over the height of small letters 2 to the line 6 and below it 8. A comma lifts the pen.

struct Letter {
  char name;
  int width;
  const char* strokes;
};

constexpr Letter kLetters[] = {
    {'0', 4, "10 30 41 45 36 16 05 01 10"},
    {'1', 3, "02 20 26"},
    {'2', 4, "01 10 30 41 42 06 46"},
    {'3', 4, "00 40 22 32 43 45 36 16 05"},
    {'4', 4, "36 30 04 44"},
    {'5', 4, "40 00 02 32 43 45 36 06"},
    {'6', 4, "40 20 02 05 16 36 45 44 33 03"},
    {'7', 4, "00 40 16"},
    {'8', 4, "13 02 01 10 30 41 42 33 13 04 05 16 36 45 44 33"},
    {'9', 4, "43 13 02 01 10 30 41 44 26 06"},
    {'a', 4, "12 32 43 46,44 14 05 16 36 45"},
    {'b', 4, "00 06,03 12 32 43 45 36 16 05"},
    {'c', 4, "42 12 03 05 16 46"},
    {'d', 4, "40 46,43 32 12 03 05 16 36 45"},
    {'e', 4, "04 44 43 32 12 03 05 16 46"},
    {'f', 3, "30 20 11 16,02 32"},
    {'g', 4, "42 47 38 18,43 32 12 03 05 16 36 45"},
    {'h', 4, "00 06,03 12 32 43 46"},
    {'i', 1, "02 06,00 00"},
    {'j', 2, "12 17 08,10 10"},
    {'k', 4, "00 06,42 04 46"},
    {'l', 1, "00 05 16"},
    {'m', 6, "02 06,03 12 22 33 36,33 42 52 63 66"},
    {'n', 4, "02 06,03 12 32 43 46"},
    {'o', 4, "12 32 43 45 36 16 05 03 12"},
    {'p', 4, "02 08,03 12 32 43 45 36 16 05"},
    {'q', 4, "42 48,43 32 12 03 05 16 36 45"},
    {'r', 3, "02 06,04 12 32"},
    {'s', 4, "42 12 03 14 34 45 36 06"},
    {'t', 3, "10 15 26 36,02 32"},
    {'u', 4, "02 05 16 36 45,42 46"},
    {'v', 4, "02 26 42"},
    {'w', 6, "02 16 33 56 62"},
    {'x', 4, "02 46,42 06"},
    {'y', 4, "02 26,42 26 18 08"},
    {'z', 4, "02 42 06 46"},
    {'A', 4, "06 20 46,14 34"},
    {'B', 4, "03 33 42 41 30 00 06 36 45 44 33"},
    {'C', 4, "41 30 10 01 05 16 36 45"},
    {'D', 4, "00 06 26 44 42 20 00"},
    {'E', 4, "40 00 06 46,03 33"},
    {'F', 4, "40 00 06,03 33"},
    {'G', 4, "41 30 10 01 05 16 36 45 43 23"},
    {'H', 4, "00 06,40 46,03 43"},
    {'I', 1, "00 06"},
    {'J', 4, "40 45 36 16 05"},
    {'K', 4, "00 06,40 03 46"},
    {'L', 4, "00 06 46"},
    {'M', 6, "06 00 34 60 66"},
    {'N', 4, "06 00 46 40"},
    {'O', 4, "10 30 41 45 36 16 05 01 10"},
    {'P', 4, "06 00 30 41 42 33 03"},
    {'Q', 4, "10 30 41 45 36 16 05 01 10,24 46"},
    {'R', 4, "06 00 30 41 42 33 03,23 46"},
    {'S', 4, "41 30 10 01 02 13 33 44 45 36 16 05"},
    {'T', 4, "00 40,20 26"},
    {'U', 4, "00 05 16 36 45 40"},
    {'V', 4, "00 26 40"},
    {'W', 6, "00 16 32 56 60"},
    {'X', 4, "00 46,40 06"},
    {'Y', 4, "00 23 40,23 26"},
    {'Z', 4, "00 40 06 46"},
    {' ', 2, ""},
    {'.', 1, "06 06"},
    {',', 1, "16 07"},
    {':', 1, "03 03,06 06"},
    {';', 1, "03 03,16 07"},
    {'!', 1, "00 04,06 06"},
    {'?', 4, "01 10 30 41 42 23 24,26 26"},
    {'\'', 1, "00 02"},
    {'"', 2, "00 02,20 22"},
    {'(', 2, "20 02 04 26"},
    {')', 2, "00 22 24 06"},
    {'[', 2, "20 00 06 26"},
    {']', 2, "00 20 26 06"},
    {'-', 3, "03 33"},
    {'+', 4, "03 43,21 25"},
    {'*', 4, "02 44,42 04,21 25"},
    {'/', 4, "40 06"},
    {'=', 4, "02 42,04 44"},
    {'<', 3, "31 03 35"},
    {'>', 3, "01 33 05"},
    {'%', 5, "50 06,00 20 22 02 00,34 54 56 36 34"},
    {'_', 4, "07 47"},
};
constexpr Letter kUnknown{'\0', 4, "00 40 46 06 00"};
constexpr double kRows = 8, kGap = 1.6;  // of the grid; between letters

const Letter& letter_of(char name) {
  for (const Letter& letter : kLetters)
    if (letter.name == name) return letter;
  return kUnknown;
}

// ---- PNG --------------------------------------------------------------------------------------
// W3C: Portable network graphics (PNG) specification, third edition, section 5.

void append_number(std::string& to, std::uint32_t value) {
  for (const unsigned shift : {24u, 16u, 8u, 0u}) to += static_cast<char>(value >> shift & 255);
}

void append_chunk(std::string& to, const std::string& type, const std::string& content) {
  append_number(to, static_cast<std::uint32_t>(content.size()));
  const std::string checked = type + content;
  to += checked;
  append_number(to,
                static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                                                 static_cast<uInt>(checked.size()))));
}

}  // namespace

Color grey(double ink) {
  return std::isnan(ink) ? kWrong : mix(kWhite, kBlack, std::clamp(ink, 0.0, 1.0));
}

Color signed_color(double value) {
  if (std::isnan(value)) return kWrong;
  return mix(kWhite, value < 0 ? kMinus : kPlus, std::min(std::fabs(value), 1.0));
}

Picture::Picture(std::size_t width, std::size_t height) : width_(width), height_(height) {
  if (width == 0 || height == 0 || width > kLargestSide || height > kLargestSide)
    throw std::invalid_argument("a picture of " + std::to_string(width) + " x " +
                                std::to_string(height) + " pixels");
  pixels_.assign(width * height, kWhite);
}

void Picture::fill(std::size_t x, std::size_t y, std::size_t width, std::size_t height,
                   Color color) {
  for (std::size_t row = y; row < std::min(y + height, height_); ++row)
    for (std::size_t col = x; col < std::min(x + width, width_); ++col)
      pixels_[row * width_ + col] = color;
}

void Picture::frame(std::size_t x, std::size_t y, std::size_t width, std::size_t height) {
  const std::size_t left = x > 0 ? x - 1 : 0, top = y > 0 ? y - 1 : 0;
  fill(left, top, x + width + 1 - left, y + height + 1 - top, kFrame);
}

// Ink where the pen's middle passes within `radius`, fading out over one pixel.
void Picture::draw_line(double x0, double y0, double x1, double y1, double radius, Color color) {
  const double dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy;
  const auto first = [&](double a, double b) {
    return static_cast<std::size_t>(std::max(std::floor(std::min(a, b) - radius - 1), 0.0));
  };
  const auto last = [&](double a, double b, std::size_t end) {
    return std::min(static_cast<std::size_t>(std::max(std::max(a, b) + radius + 2, 0.0)), end);
  };
  for (std::size_t y = first(y0, y1); y < last(y0, y1, height_); ++y)
    for (std::size_t x = first(x0, x1); x < last(x0, x1, width_); ++x) {
      const double px = static_cast<double>(x) + 0.5 - x0, py = static_cast<double>(y) + 0.5 - y0;
      const double along = length == 0 ? 0 : std::clamp((px * dx + py * dy) / length, 0.0, 1.0);
      const double distance = std::hypot(px - along * dx, py - along * dy);
      Color& pixel = pixels_[y * width_ + x];
      pixel = mix(pixel, color, std::clamp(radius + 0.5 - distance, 0.0, 1.0));
    }
}

void Picture::text(std::size_t x, std::size_t y, const std::string& line, double size,
                   Color color) {
  const double step = size / kRows, radius = std::max(0.45 * step, 0.5);
  double left = static_cast<double>(x) + radius;
  for (const char name : line) {
    const Letter& letter = letter_of(name);
    bool down = false;  // the pen
    double from_x = 0, from_y = 0;
    for (const char* at = letter.strokes; *at != '\0'; ++at) {
      if (*at == ' ') continue;
      if (*at == ',') {
        down = false;
        continue;
      }
      const double to_x = left + (*at - '0') * step;
      const double to_y = static_cast<double>(y) + radius + (*++at - '0') * step;
      if (down) draw_line(from_x, from_y, to_x, to_y, radius, color);
      from_x = to_x, from_y = to_y, down = true;
    }
    left += (letter.width + kGap) * step;
  }
}

std::size_t Picture::text_width(const std::string& line, double size) {
  double width = 0;
  for (const char name : line) width += letter_of(name).width + kGap;
  return static_cast<std::size_t>(std::ceil(width * size / kRows));
}

void Picture::write(const std::string& path) const {
  std::string rows;  // each behind a 0: its bytes are the colours themselves
  for (std::size_t y = 0; y < height_; ++y) {
    rows += '\0';
    for (std::size_t x = 0; x < width_; ++x)
      for (const std::uint8_t byte : {at(x, y).red, at(x, y).green, at(x, y).blue})
        rows += static_cast<char>(byte);
  }
  uLongf length = compressBound(static_cast<uLong>(rows.size()));
  std::string packed(length, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &length,
                reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()),
                Z_BEST_COMPRESSION) != Z_OK)
    throw std::runtime_error(path + " cannot be packed");
  packed.resize(length);

  std::string header;
  append_number(header, static_cast<std::uint32_t>(width_));
  append_number(header, static_cast<std::uint32_t>(height_));
  header +=
      std::string("\x08\x02\0\0\0", 5);  // 8 bits each of red, green and blue; nothing special
  std::string file = "\x89PNG\r\n\x1a\n";
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", packed);
  append_chunk(file, "IEND", "");

  output_file::replace(path, [&](std::FILE* out) {
    return std::fwrite(file.data(), 1, file.size(), out) == file.size();
  });
}
