// Pictures that a program draws itself: small images enlarged, and captions, as a PNG file. Plain
// C++; implemented in picture.cpp (zlib stays in there).
//
//   Picture picture(300, 200);
//   picture.image(10, 20, 8, 28, 28, [&](size_t x, size_t y) { return grey(pixels[28 * y + x]); });
//   picture.text(10, 5, "a digit", 14);
//   picture.write("digit.png");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct Color {
  std::uint8_t red, green, blue;
};

inline constexpr Color kWhite{255, 255, 255}, kBlack{0, 0, 0};

// 0 is white, 1 is black, and what is outside becomes the nearer of them. NaN is red.
Color grey(double ink);
// 0 is white, 1 is blue and -1 is orange, told apart by nearly all eyes; NaN is red.
Color signed_color(double value);

class Picture {
 public:
  // All white. Throws std::invalid_argument for a side of 0 or of more than 2^15.
  Picture(std::size_t width, std::size_t height);

  std::size_t width() const { return width_; }
  std::size_t height() const { return height_; }
  Color at(std::size_t x, std::size_t y) const { return pixels_[y * width_ + x]; }

  // x goes to the right, y down. What lies outside is left out.
  void fill(std::size_t x, std::size_t y, std::size_t width, std::size_t height, Color color);
  // An image of width x height, each of its pixels color(x, y) a square of `scale`, and a thin
  // frame around it.
  template <class ColorOf>
  void image(std::size_t x, std::size_t y, std::size_t scale, std::size_t width, std::size_t height,
             ColorOf color) {
    frame(x, y, width * scale, height * scale);
    for (std::size_t row = 0; row < height; ++row)
      for (std::size_t col = 0; col < width; ++col)
        fill(x + col * scale, y + row * scale, scale, scale, color(col, row));
  }
  // A line of text from (x, y) on, its upper left corner, `size` pixels high from the top of an h
  // to the bottom of a g. Letters, digits and the usual signs of ASCII; any other is a box.
  void text(std::size_t x, std::size_t y, const std::string& line, double size,
            Color color = kBlack);
  // How wide such a line is.
  static std::size_t text_width(const std::string& line, double size);

  // Writes a PNG file, first under a temporary name. Throws std::runtime_error, one line that names
  // the file, where that fails.
  void write(const std::string& path) const;

 private:
  void frame(std::size_t x, std::size_t y, std::size_t width, std::size_t height);
  void draw_line(double x0, double y0, double x1, double y1, double radius, Color color);

  std::size_t width_, height_;
  std::vector<Color> pixels_;
};
