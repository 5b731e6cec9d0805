// A text of a file, of an argument or of the environment as one line that steers no terminal.
#pragma once

#include <string>

// Control characters, characters that change the direction of a line, line and paragraph
// separators, and bytes that are no UTF-8 become \x1b (a byte) or \u202e (a character); all else is
// kept. Unicode 15, sections 23.1 to 23.4.
std::string printable(const std::string& text);

// The same for a text of several lines, whose line breaks stay.
std::string printable_lines(const std::string& text);
