// sales::parse(): each line is a sale or is counted and, if it is one of the first of its kind,
// described; the number of threads changes nothing; and sales that are written again are the same.
#include <array>
#include <numeric>

#include "common/options.h"
#include "stage5_training/07_train_sales/sales_data.h"
#include "tests/fuzz/fuzz.h"

namespace {

using sales::Sale;
using sales::Sales;

constexpr std::int32_t kFirstDay = -719162, kLastDay = 2932896;  // 0001-01-01 and 9999-12-31

bool same(const Sale& a, const Sale& b) {
  return a.day == b.day && a.quantity == b.quantity && a.unit_price == b.unit_price &&
         a.total == b.total && a.category == b.category;
}
bool same_rows(const Sales& a, const Sales& b) {
  return a.categories == b.categories &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), same);
}

// YYYY-MM-DD of a day since 1970-01-01: by counting, so that no formula is shared with the reader.
std::string date_text(std::int32_t day) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  constexpr std::int32_t kDaysOf400Years = 146097;
  std::int32_t rest = day - kFirstDay;
  int year = 1 + rest / kDaysOf400Years * 400, month = 1;
  rest %= kDaysOf400Years;
  const auto leap = [&] { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); };
  for (; rest >= (leap() ? 366 : 365); ++year) rest -= leap() ? 366 : 365;
  const auto days = [&] { return kDays[month - 1] + (month == 2 && leap() ? 1 : 0); };
  for (; rest >= days(); ++month) rest -= days();
  char text[48];
  std::snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, rest + 1);
  return text;
}

std::string to_file(const Sales& sales) {
  std::string text;
  for (const Sale& sale : sales.rows) {
    char numbers[3][32];
    const float values[3] = {sale.quantity, sale.unit_price, sale.total};
    for (int i = 0; i < 3; ++i)
      std::snprintf(numbers[i], sizeof numbers[i], "%.9g", static_cast<double>(values[i]));
    text += "n\tc\t" + date_text(sale.day) + "\tt\t" + numbers[0] + "\t" + numbers[1] + "\t" +
            sales.categories[sale.category] + "\tu\t" + numbers[2] + "\ti\n";
  }
  return text;
}

void check(const Sales& sales) {
  const auto in_range = [](float x) { return x >= 0 && x <= static_cast<float>(sales::kLargest); };
  for (const Sale& sale : sales.rows) {
    fuzz::expect(sale.category < sales.categories.size(), "each category has a name");
    fuzz::expect(sale.day >= kFirstDay && sale.day <= kLastDay, "each date is in the calendar");
    fuzz::expect(in_range(sale.quantity) && in_range(sale.unit_price) && in_range(sale.total),
                 "each number is from 0 to 1e9");
  }
  for (const std::string& name : sales.categories)
    fuzz::expect(!name.empty() && sales::utf8_end(name) == name.size(), "a category is a name");
  const std::size_t faults =
      std::accumulate(sales.faults.begin(), sales.faults.end(), std::size_t{0});
  fuzz::expect(sales.rows.size() + faults == sales.lines, "each line is a sale or is counted");
  fuzz::expect(sales.examples.empty() == (faults == 0), "faults are described");
  for (const std::string& example : sales.examples) fuzz::expect_line(example, "line ");
  try {
    sales::require(sales, "file", 1);
  } catch (const UsageError& error) {
    fuzz::expect_line(error.what(), "file: ");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::bytes_of(data, size);
  const Sales sales = sales::parse(text, 1);
  check(sales);
  if (!sales.rows.empty())
    fuzz::expect(same_rows(sales::parse(to_file(sales), 1), sales),
                 "sales that are written again are the same");
  if (!fuzz::is_chosen(text)) return 0;  // to start threads takes longer than to read
  const Sales of_threads = sales::parse(text, 3);
  fuzz::expect(same_rows(of_threads, sales) && of_threads.lines == sales.lines &&
                   of_threads.faults == sales.faults && of_threads.examples == sales.examples,
               "the number of threads changes nothing");
  return 0;
}
