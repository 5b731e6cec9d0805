// printable(): whatever comes in, one line comes out, and what is harmless stays as it is.
#include "common/printable.h"

#include <string>

#include "common/testing.h"

TEST_CASE("letters of any script stay as they are") {
  CHECK(printable("").empty());
  CHECK(printable("plain text, 100% ~") == "plain text, 100% ~");
  CHECK(printable("\u00e4\u03bb\u4e2d\U0001f600") == "\u00e4\u03bb\u4e2d\U0001f600");
}

TEST_CASE("what steers a terminal is spelled out") {
  CHECK(printable("a\nb\tc\r") == "a\\x0ab\\x09c\\x0d");
  CHECK(printable("\x1b[31mred\x07\x7f") == "\\x1b[31mred\\x07\\x7f");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\u009b31m") == "\\x9b31m");  // the one-character form of ESC [
  CHECK(printable("\u202eabc\u2069") == "\\u202eabc\\u2069");
  CHECK(printable("\u2028\ufeff") == "\\u2028\\ufeff");
}

TEST_CASE("bytes that are no UTF-8 are spelled out, each alone") {
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("a\xe2\x82") == "a\\xe2\\x82");                    // cut off
  CHECK(printable("\xc0\x8a") == "\\xc0\\x8a");                      // a line break in two bytes
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");             // a surrogate
  CHECK(printable("\xf4\x90\x80\x80x") == "\\xf4\\x90\\x80\\x80x");  // behind the last character
}

TEST_CASE("the line breaks of a text of several lines stay") {
  CHECK(printable_lines("").empty());
  CHECK(printable_lines("one") == "one");
  CHECK(printable_lines("\none\x1b\n\ntwo\n") == "\none\\x1b\n\ntwo\n");
}
