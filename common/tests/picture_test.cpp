// The pictures that programs draw: colours, text, what lies outside, and files that others can
// read.
#include "common/picture.h"

#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/testing.h"
#include "common/tests/programs.h"

namespace {

bool same(Color a, Color b) { return a.red == b.red && a.green == b.green && a.blue == b.blue; }

size_t number_at(const std::string& bytes, size_t at) {
  size_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

// What a PNG file of 8-bit colours holds, read as its specification says; checks on the way.
struct Png {
  explicit Png(const std::string& file) {
    REQUIRE(file.substr(0, 8) == "\x89PNG\r\n\x1a\n");
    std::string order, packed;
    for (size_t at = 8; at < file.size();) {
      const size_t length = number_at(file, at);
      const std::string type = file.substr(at + 4, 4), content = file.substr(at + 8, length);
      REQUIRE(content.size() == length);
      const std::string checked = type + content;
      REQUIRE(number_at(file, at + 8 + length) ==
              crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                    static_cast<uInt>(checked.size())));
      if (type == "IHDR") {
        width = number_at(content, 0), height = number_at(content, 4);
        REQUIRE(content.substr(8) == std::string("\x08\x02\0\0\0", 5));
      }
      if (type == "IDAT") packed += content;
      order += type + " ";
      at += 12 + length;
    }
    REQUIRE(order == "IHDR IDAT IEND ");
    rows.resize(height * (1 + 3 * width));
    uLongf length = static_cast<uLongf>(rows.size());
    REQUIRE(uncompress(reinterpret_cast<Bytef*>(rows.data()), &length,
                       reinterpret_cast<const Bytef*>(packed.data()),
                       static_cast<uLong>(packed.size())) == Z_OK);
    REQUIRE(length == rows.size());
  }
  Color at(size_t x, size_t y) const {
    const char* pixel = rows.data() + y * (1 + 3 * width) + 1 + 3 * x;
    return {static_cast<std::uint8_t>(pixel[0]), static_cast<std::uint8_t>(pixel[1]),
            static_cast<std::uint8_t>(pixel[2])};
  }
  size_t width = 0, height = 0;
  std::string rows;
};

size_t ink(const Picture& picture) {
  size_t count = 0;
  for (size_t y = 0; y < picture.height(); ++y)
    for (size_t x = 0; x < picture.width(); ++x) count += same(picture.at(x, y), kWhite) ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("picture: numbers become colours") {
  CHECK(same(grey(0), kWhite));
  CHECK(same(grey(1), kBlack));
  CHECK(same(grey(0.5), {128, 128, 128}));
  CHECK(same(grey(-3), kWhite));
  CHECK(same(grey(7), kBlack));
  CHECK(same(signed_color(0), kWhite));
  CHECK(signed_color(1).blue > signed_color(1).red);
  CHECK(signed_color(-1).red > signed_color(-1).blue);
  CHECK(same(signed_color(2), signed_color(1)));
  CHECK(same(signed_color(-2), signed_color(-1)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(same(grey(nan), {255, 0, 0}));
  CHECK(same(signed_color(nan), {255, 0, 0}));
}

TEST_CASE("picture: an image is enlarged, with a frame around it") {
  Picture picture(20, 16);
  picture.image(3, 2, 4, 3, 2, [](size_t x, size_t y) {
    return Color{static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(y), 7};
  });
  for (size_t y = 0; y < 16; ++y)
    for (size_t x = 0; x < 20; ++x) {
      CAPTURE(x, y);
      const bool inside = x >= 3 && x < 15 && y >= 2 && y < 10;
      const bool around = x >= 2 && x < 16 && y >= 1 && y < 11;
      if (inside)
        REQUIRE(same(picture.at(x, y), {static_cast<std::uint8_t>((x - 3) / 4),
                                        static_cast<std::uint8_t>((y - 2) / 4), 7}));
      else
        REQUIRE(same(picture.at(x, y), around ? Color{170, 170, 170} : kWhite));
    }
}

TEST_CASE("picture: what lies outside is left out") {
  Picture picture(9, 5);
  picture.fill(4, 3, 100, 100, kBlack);
  CHECK(ink(picture) == 10);
  picture.fill(9, 0, 3, 3, kBlack);
  picture.fill(100, 100, 1, 1, kBlack);
  CHECK(ink(picture) == 10);
  picture.image(0, 0, 3, 4, 4, [](size_t, size_t) { return kBlack; });
  CHECK(ink(picture) == 45);
  Picture narrow(30, 12);
  narrow.text(20, 0, "wide words", 14);
  narrow.text(25, 8, "gjpqy", 14);
  narrow.text(500, 500, "away", 14);
  CHECK(ink(narrow) > 0);
}

TEST_CASE("picture: every letter is drawn, inside of its line, unlike any other") {
  const std::string names =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;!?'\"()[]-+*/=<>%_";
  std::vector<std::string> shapes;
  for (const char name : names + std::string(1, '\x01')) {  // at last what it does not know
    CAPTURE(name);
    Picture picture(60, 60);
    picture.text(10, 10, std::string(1, name), 24);
    std::string shape;
    for (size_t y = 0; y < 60; ++y)
      for (size_t x = 0; x < 60; ++x) {
        const bool is_white = same(picture.at(x, y), kWhite);
        const bool inside =
            x >= 10 && x < 12 + Picture::text_width(std::string(1, name), 24) && y >= 10 && y < 37;
        REQUIRE((is_white || inside));
        shape += is_white ? ' ' : '#';
      }
    REQUIRE(shape.find('#') != std::string::npos);
    for (const std::string& other : shapes) REQUIRE((shape != other || name == 'O'));  // which is 0
    shapes.push_back(shape);
  }
  Picture picture(60, 60);
  picture.text(10, 10, "   ", 24);
  CHECK(ink(picture) == 0);
  CHECK(Picture::text_width("", 24) == 0);
  CHECK(Picture::text_width("ab", 24) >= 2 * Picture::text_width("a", 24) - 1);
}

TEST_CASE("picture: the file holds what was drawn") {
  const tests::Folder folder;
  const std::string path = folder / "picture.png";
  Picture picture(37, 21);
  picture.fill(5, 2, 30, 15, {1, 128, 255});
  picture.text(3, 3, "a1", 12, {200, 10, 30});
  picture.write(path);
  const std::string file = tests::read_file(path);
  const Png png(file);
  REQUIRE((png.width == 37 && png.height == 21));
  for (size_t y = 0; y < 21; ++y) {
    REQUIRE(png.rows[y * (1 + 3 * 37)] == '\0');
    for (size_t x = 0; x < 37; ++x) REQUIRE(same(png.at(x, y), picture.at(x, y)));
  }
  picture.write(path);  // over the old one
  CHECK(tests::read_file(path) == file);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / ""))
    files += entry.exists();
  CHECK(files == 1);  // no temporary one is left
}

TEST_CASE("picture: what can't be is refused") {
  CHECK_THROWS_AS(Picture(0, 5), std::invalid_argument);
  CHECK_THROWS_AS(Picture(5, 0), std::invalid_argument);
  CHECK_THROWS_AS(Picture(40000, 5), std::invalid_argument);
  const tests::Folder folder;
  const std::string path = folder / "none/picture.png";
  try {
    Picture(2, 2).write(path);
    FAIL("there is no such folder");
  } catch (const std::runtime_error& error) {
    CHECK(contains_text(error.what(), path + " cannot be written: "));
  }
}
