// 5.7  The data of train_sales: a reader that trusts no line of its file, and sales made up
// for whoever has no file. Plain C++: no GPU needed.
//
// A file is UTF-8 text, one sale per line, ten fields between tabs, no header:
//
//   name  code  date  timestamp  quantity  unit price  category  user  total  id
//   Olive oil  GRO-003  2024-02-29  2024-02-29T09:15:00Z  3  5.90  Groceries  user00042  16.81  17
//
// Lines end in LF or CR LF; the last one may end with the file. A line is malformed if a field is
// missing, empty or too many, if its bytes are no UTF-8, if the date is not in the calendar, or if
// quantity, unit price or total is no number from 0 to kLargest. Malformed lines are counted, the
// first of each kind described, and all skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace sales {

struct Sale {
  std::int32_t day;  // since 1970-01-01; never before the year 1
  float quantity, unit_price, total;
  std::uint32_t category;  // index into Sales::categories
};

enum class Fault { Utf8, EmptyLine, FieldCount, EmptyField, Date, NoNumber, Range };
inline constexpr const char* kFaults[] = {
    "broken UTF-8", "empty line", "wrong number of fields", "empty field",
    "no date",      "no number",  "number out of range"};
inline constexpr std::size_t kFaultCount = std::size(kFaults);

inline constexpr double kLargest = 1e9;      // of quantity, unit price and total
inline constexpr std::size_t kExamples = 3;  // malformed lines that are described, of each kind

struct Sales {
  std::vector<Sale> rows;               // in the order of the file
  std::vector<std::string> categories;  // in the order of their first sale
  std::size_t lines = 0;
  std::array<std::size_t, kFaultCount> faults = {};  // lines by what is wrong first in them
  std::vector<std::string> examples;                 // "line 7: quantity 'three' is no number"

  std::size_t malformed() const { return lines - rows.size(); }
};

// Reads the text of a file. Several threads take a part each; how many there are changes nothing in
// the result. `threads` 0: as many as the machine has and the text is worth.
Sales parse(std::string_view text, size_t threads = 0);

// Throws UsageError, naming `source`, where these are not the sales of a shop: more than half of
// the lines are malformed, or fewer than `needed` sales are left.
void require(const Sales& sales, const std::string& source, size_t needed);

// The text of a file of `rows` sales in 2023 and 2024, by the rules of scripts/make_sales.py: a
// total is quantity times unit price less discounts for the category, its season, many pieces and
// the weekend, and haggled over by 2 percent.
std::string make(size_t rows, std::uint64_t seed);

// ---- What a line is read with -----------------------------------------------------------------

// The place of the first byte that begins no character, or text.size(). Refuses what RFC 3629 does:
// stray and missing continuation bytes, overlong forms, surrogates, and more than 0x10FFFF.
size_t utf8_end(std::string_view text);

// The days from 1970-01-01 to a date of the Gregorian calendar.
std::int32_t days_from_date(int year, int month, int day);

bool is_leap(int year);

// Reads YYYY-MM-DD, from 0001-01-01 on. False if the calendar has no such day.
bool read_date(std::string_view field, std::int32_t* days);

}  // namespace sales
