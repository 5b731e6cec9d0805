#include "stage5_training/07_train_sales/sales_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <future>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/options.h"
#include "common/printable.h"

namespace sales {

// ---- Fields -----------------------------------------------------------------------------------

size_t utf8_end(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  size_t i = 0;
  while (i < text.size()) {
    std::uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {  // eight characters of ASCII
        i += sizeof eight;
        continue;
      }
    }
    const unsigned first = byte(i);
    if (first < 0x80) {
      i += 1;
    } else if (first >= 0xC2 && first <= 0xDF && continues(i + 1)) {
      i += 2;
    } else if (first >= 0xE0 && first <= 0xEF &&
               continues(i + 1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) &&
               continues(i + 2)) {
      i += 3;
    } else if (first >= 0xF0 && first <= 0xF4 &&
               continues(i + 1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) &&
               continues(i + 2) && continues(i + 3)) {
      i += 4;
    } else {
      return i;
    }
  }
  return i;
}

// The year is taken to begin in March, which puts the leap day at its end. (Hinnant:
// chrono-compatible low-level date algorithms.)
std::int32_t days_from_date(int year, int month, int day) {
  year -= month <= 2;
  const int era = year / 400, year_of_era = year % 400;  // the reader's years are positive
  const int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

bool is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

bool read_date(std::string_view field, std::int32_t* days) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (field.size() != 10 || field[4] != '-' || field[7] != '-') return false;
  bool digits = true;
  const auto number = [&](size_t begin, size_t count) {
    int value = 0;
    for (const char c : field.substr(begin, count)) {
      digits = digits && c >= '0' && c <= '9';
      value = 10 * value + (c - '0');
    }
    return value;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  if (!digits || year < 1 || month < 1 || month > 12 || day < 1) return false;
  if (day > kDays[month - 1] + (month == 2 && is_leap(year))) return false;
  *days = days_from_date(year, month, day);
  return true;
}

namespace {

constexpr size_t kBytesPerThread = size_t{1} << 20;  // a thread is worth starting for so much text
constexpr double kMalformedAllowed = 0.5;            // with more, it is no file of sales

// A field between quotes for a message: at most 40 bytes of it, and nothing a terminal acts on.
std::string quoted(std::string_view field) {
  constexpr size_t kMost = 40;
  size_t end = std::min(field.size(), kMost);
  while (end < field.size() && end > 0 && (static_cast<unsigned char>(field[end]) & 0xC0) == 0x80)
    --end;  // not between the bytes of one character
  const std::string text = "'" + printable(std::string(field.substr(0, end))) + "'";
  return end < field.size() ? text + "..." : text;
}

enum class Number { Good, None, OutOfRange };

// Reads all of a field, such as 12, 12.50 or 1e3. std::from_chars looks at no locale and allocates
// nothing; for floating point libstdc++ has it since GCC 11, libc++ since LLVM 20.
Number read_number(std::string_view field, float* number) {
  double value = 0;
  const char* end = field.data() + field.size();
  const std::from_chars_result result = std::from_chars(field.data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return Number::None;
  if (result.ec == std::errc::result_out_of_range) return Number::OutOfRange;
  if (std::isnan(value)) return Number::None;
  if (!(value >= 0 && value <= kLargest)) return Number::OutOfRange;
  *number = static_cast<float>(value);
  return Number::Good;
}

// ---- Lines ------------------------------------------------------------------------------------

constexpr size_t kFields = 10;
constexpr const char* kFieldNames[kFields] = {"name",     "code",       "date",     "timestamp",
                                              "quantity", "unit price", "category", "user",
                                              "total",    "id"};
enum Field { kDate = 2, kQuantity = 4, kUnitPrice = 5, kCategory = 6, kTotal = 8 };

// What one thread has read: a part of the file that begins and ends with a line. Its categories
// point into the text, and it counts its lines from 0.
struct Part {
  struct Example {
    size_t line;
    Fault fault;
    std::string text;
  };
  std::vector<Sale> rows;
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  std::vector<std::string_view> categories;
  size_t lines = 0;
  std::array<size_t, kFaultCount> faults = {};
  std::vector<Example> examples;

  // Counts the line; the text is made only for the first few.
  template <class Describe>
  void reject(Fault fault, Describe describe) {
    if (faults[static_cast<size_t>(fault)]++ < kExamples)
      examples.push_back({lines, fault, describe()});
  }

  void read_line(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty())
      return reject(Fault::EmptyLine, [] { return std::string("the line is empty"); });
    if (const size_t bad = utf8_end(line); bad != line.size())
      return reject(Fault::Utf8,
                    [&] { return "byte " + std::to_string(bad + 1) + " is not UTF-8"; });

    std::array<std::string_view, kFields> fields;
    size_t count = 0;
    for (size_t begin = 0; begin <= line.size(); ++count) {
      const void* tab = std::memchr(line.data() + begin, '\t', line.size() - begin);
      const size_t end = tab == nullptr
                             ? line.size()
                             : static_cast<size_t>(static_cast<const char*>(tab) - line.data());
      if (count < kFields) fields[count] = line.substr(begin, end - begin);
      begin = end + 1;
    }
    if (count != kFields)
      return reject(Fault::FieldCount, [&] {
        return std::to_string(count) + " fields instead of " + std::to_string(kFields);
      });
    for (size_t f = 0; f < kFields; ++f)
      if (fields[f].empty())
        return reject(Fault::EmptyField, [&] { return std::string(kFieldNames[f]) + " is empty"; });

    Sale sale;
    if (!read_date(fields[kDate], &sale.day))
      return reject(Fault::Date, [&] { return "date " + quoted(fields[kDate]) + " is no date"; });
    for (const auto& [f, number] : {std::pair<Field, float*>{kQuantity, &sale.quantity},
                                    {kUnitPrice, &sale.unit_price},
                                    {kTotal, &sale.total}}) {
      const Number result = read_number(fields[f], number);
      if (result == Number::Good) continue;
      const auto describe = [&, field = f](const char* what) {
        return std::string(kFieldNames[field]) + " " + quoted(fields[field]) + what;
      };
      if (result == Number::None)
        return reject(Fault::NoNumber, [&] { return describe(" is no number"); });
      return reject(Fault::Range, [&] { return describe(" is not in [0, 1e9]"); });
    }
    const auto next = static_cast<std::uint32_t>(categories.size());
    const auto [place, fresh] = numbers.try_emplace(fields[kCategory], next);
    if (fresh) categories.push_back(fields[kCategory]);
    sale.category = place->second;
    rows.push_back(sale);
  }

  void read(std::string_view text) {
    constexpr size_t kShortestLine = 64;  // a guess: rows may grow beyond it
    rows.reserve(text.size() / kShortestLine);
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++lines;
    }
  }
};

}  // namespace

Sales parse(std::string_view text, size_t threads) {
  if (threads == 0)
    threads = std::min<size_t>(std::max(std::thread::hardware_concurrency(), 1u),
                               text.size() / kBytesPerThread + 1);
  std::vector<std::future<Part>> parts;
  size_t begin = 0;
  for (size_t t = 1; t <= threads; ++t) {
    size_t end = std::string_view::npos;  // the end of the line at t / threads of the text
    if (t < threads) end = text.find('\n', std::max(begin, text.size() / threads * t));
    end = end == std::string_view::npos ? text.size() : end + 1;
    // async, and not std::thread: what a part throws (no memory) is thrown by get() below. There
    // this thread reads the first part itself.
    const std::launch policy = t == 1 ? std::launch::deferred : std::launch::async;
    parts.push_back(std::async(policy, [piece = text.substr(begin, end - begin)] {
      Part part;
      part.read(piece);
      return part;
    }));
    begin = end;
  }

  Sales sales;
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  for (std::future<Part>& future : parts) {
    const Part part = future.get();
    std::vector<std::uint32_t> renumbered;
    for (const std::string_view name : part.categories) {
      const auto next = static_cast<std::uint32_t>(sales.categories.size());
      const auto [place, fresh] = numbers.try_emplace(name, next);
      if (fresh) sales.categories.emplace_back(name);
      renumbered.push_back(place->second);
    }
    sales.rows.reserve(sales.rows.size() + part.rows.size());
    for (Sale sale : part.rows) {
      sale.category = renumbered[sale.category];
      sales.rows.push_back(sale);
    }
    std::array<size_t, kFaultCount> described = sales.faults;  // by the parts before
    for (const Part::Example& example : part.examples)
      if (described[static_cast<size_t>(example.fault)]++ < kExamples)
        sales.examples.push_back("line " + std::to_string(sales.lines + example.line + 1) + ": " +
                                 example.text);
    for (size_t f = 0; f < kFaultCount; ++f) sales.faults[f] += part.faults[f];
    sales.lines += part.lines;
  }
  return sales;
}

void require(const Sales& sales, const std::string& source, size_t needed) {
  const std::string first = sales.examples.empty() ? "" : ", the first: " + sales.examples.front();
  if (static_cast<double>(sales.malformed()) > kMalformedAllowed * static_cast<double>(sales.lines))
    throw UsageError(source + ": " + std::to_string(sales.malformed()) + " of " +
                     std::to_string(sales.lines) + " lines are malformed" + first);
  if (sales.rows.size() < needed)
    throw UsageError(source + ": " + std::to_string(sales.rows.size()) + " sales, and " +
                     std::to_string(needed) + " are needed" + first);
}

// ---- Sales made up ----------------------------------------------------------------------------

namespace {

// A category's typical price, what is always taken off, and the day of the year around which up to
// another 12 percent are.
struct Shelf {
  const char *category, *product, *code;
  double price, discount, peak;
};
constexpr Shelf kShelves[] = {
    {"Accessories", "Wool scarf", "ACC", 19, 0.05, 340},
    {"Audio", "Bluetooth-Würfel", "AUD", 85, 0.12, 330},
    {"Baby", "Rattle", "BAB", 24, 0.03, 120},
    {"Books", "Cien años de soledad", "BOO", 16, 0.00, 350},
    {"Camping", "Sleeping bag", "CAM", 60, 0.15, 160},
    {"Clothing", "Rain jacket", "CLO", 38, 0.20, 20},
    {"Computers", "Keyboard", "COM", 140, 0.08, 240},
    {"Furniture", "Fauteuil « Amélie »", "FUR", 170, 0.18, 30},
    {"Garden", "Watering can", "GAR", 27, 0.10, 110},
    {"Groceries", "Green tea 煎茶", "GRO", 6, 0.00, 355},
    {"Health", "Thermometer", "HEA", 14, 0.04, 15},
    {"Kitchen", "Cast-iron pan", "KIT", 45, 0.14, 345},
    {"Music", "Ukulele", "MUS", 110, 0.06, 300},
    {"Sports", "Yoga mat", "SPO", 52, 0.11, 130},
    {"Tools", "Hammer", "TOO", 48, 0.09, 80},
    {"Toys", "Матрёшка", "TOY", 22, 0.07, 345},
};

}  // namespace

std::string make(size_t rows, std::uint64_t seed) {
  constexpr double kPi = 3.14159265358979323846;
  constexpr int kYears[] = {365, 366};
  // The generator's words are the same everywhere; the standard's distributions are not.
  std::mt19937_64 generator(seed);
  const auto uniform = [&] { return static_cast<double>(generator() >> 11) * 0x1p-53; };  // [0, 1)
  const auto normal = [&] {
    double sum = 0;
    for (int k = 0; k < 12; ++k) sum += uniform();
    return sum - 6;  // by the central limit theorem: nearly, with variance 1
  };
  const auto below = [&](unsigned n) { return static_cast<unsigned>(n * uniform()); };

  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    const double share = (static_cast<double>(row) + uniform()) / static_cast<double>(rows);
    const int day = static_cast<int>(731 * share);
    const bool second_year = day >= kYears[0];
    const int day_of_year = day - (second_year ? kYears[0] : 0) + 1;
    const Shelf& shelf = kShelves[below(std::size(kShelves))];
    int quantity = 1;
    while (quantity < 24 && uniform() < 0.7) ++quantity;
    const double price = std::round(100 * shelf.price * std::exp(0.45 * normal())) / 100;
    const double season =
        0.12 * std::max(0.0, std::cos(2 * kPi * (day_of_year - shelf.peak) / 365.25));
    const double pieces = quantity >= 10 ? 0.15 : quantity >= 5 ? 0.07 : 0;
    const double weekend = day % 7 == 6 || day % 7 == 0 ? 0.05 : 0;  // 2023 begins on a Sunday
    const double off = shelf.discount + season + pieces + weekend;
    const double total = quantity * price * (1 - off) * (1 + 0.02 * normal());

    int month = 1, day_of_month = day_of_year;
    for (const int days : {31, second_year ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30}) {
      if (day_of_month <= days) break;
      day_of_month -= days, ++month;
    }
    const unsigned code = below(1000), hour = below(24), user = below(30000);
    char date[16], line[256];
    std::snprintf(date, sizeof date, "%d-%02d-%02d", second_year ? 2024 : 2023, month % 100,
                  day_of_month % 100);
    std::snprintf(line, sizeof line,
                  "%s\t%s-%03u\t%s\t%sT%02u:00:00Z\t%d\t%.2f\t%s\tuser%05u\t%.2f\t%zu\n",
                  shelf.product, shelf.code, code, date, date, hour, quantity, price,
                  shelf.category, user, total, row + 1);
    text += line;
  }
  return text;
}

}  // namespace sales
