// The sales of train_sales: a reader that nothing gets past, and features against the calendar and
// NumPy.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage3_ml_ops/03_losses/reference.h"
#include "stage5_training/07_train_sales/reference.h"
#include "stage5_training/07_train_sales/train_sales.h"

namespace {

using namespace train_sales;
using sales::Fault;

constexpr const char* kGood =
    "Crème brûlée torch\tKIT-001\t2024-02-29\t2024-02-29T10:00:00Z\t3\t19.90\tKitchen\tuser1\t"
    "53.73\t1";

// The good line with one of its fields replaced.
std::string with_field(size_t field, const std::string& text) {
  std::string line;
  size_t begin = 0;
  const std::string good = kGood;
  for (size_t f = 0; f < 10; ++f) {
    const size_t end = std::min(good.find('\t', begin), good.size());
    line += (f > 0 ? "\t" : "") + (f == field ? text : good.substr(begin, end - begin));
    begin = end + 1;
  }
  return line;
}

// What a file of this one line is refused for, as its message says it; empty where it is good.
std::string refusal(const std::string& line) {
  const Sales sales = sales::parse(line + "\n");
  REQUIRE(sales.lines == 1);
  REQUIRE(sales.rows.size() + sales.examples.size() == 1);
  return sales.examples.empty() ? "" : sales.examples[0];
}

Sales make_sales(size_t rows, std::uint64_t seed = 3) {
  return sales::parse(sales::make(rows, seed));
}

}  // namespace

// ---- The reader -------------------------------------------------------------------------------

TEST_CASE("a good file is read as it is, whatever ends its lines", "[harness]") {
  const std::string line = kGood, other = with_field(6, "Garden");
  for (const std::string& text :
       {line + "\n" + other + "\n", line + "\r\n" + other + "\r\n", line + "\n" + other}) {
    const Sales sales = sales::parse(text);
    CAPTURE(text);
    REQUIRE(sales.lines == 2);
    REQUIRE(sales.malformed() == 0);
    REQUIRE(sales.categories == std::vector<std::string>{"Kitchen", "Garden"});
    REQUIRE(sales.rows[0].day == 19782);  // as `date -d 2024-02-29 +%s` says, over 86400
    REQUIRE(sales.rows[0].quantity == 3);
    REQUIRE(sales.rows[0].unit_price == 19.90f);
    REQUIRE(sales.rows[0].total == 53.73f);
    REQUIRE(sales.rows[0].category == 0);
    REQUIRE(sales.rows[1].category == 1);
  }
}

TEST_CASE("every kind of malformed line is told apart, and by its line", "[harness]") {
  CHECK(refusal(kGood).empty());
  CHECK(refusal("") == "line 1: the line is empty");
  CHECK(refusal("\r") == "line 1: the line is empty");
  CHECK(refusal("only a name") == "line 1: 1 fields instead of 10");
  CHECK(refusal(std::string(kGood) + "\tagain") == "line 1: 11 fields instead of 10");
  CHECK(refusal(with_field(6, "")) == "line 1: category is empty");
  CHECK(refusal(with_field(9, "")) == "line 1: id is empty");
  CHECK(refusal(with_field(0, "Caf\xE9")) == "line 1: byte 4 is not UTF-8");
  CHECK(refusal(with_field(2, "2023-02-30")) == "line 1: date '2023-02-30' is no date");
  CHECK(refusal(with_field(4, "three")) == "line 1: quantity 'three' is no number");
  CHECK(refusal(with_field(5, "12,50")) == "line 1: unit price '12,50' is no number");
  CHECK(refusal(with_field(8, "nan")) == "line 1: total 'nan' is no number");
  CHECK(refusal(with_field(4, "-2")) == "line 1: quantity '-2' is not in [0, 1e9]");
  CHECK(refusal(with_field(5, "1e300")) == "line 1: unit price '1e300' is not in [0, 1e9]");
  CHECK(refusal(with_field(5, "1e999")) == "line 1: unit price '1e999' is not in [0, 1e9]");
  CHECK(refusal(with_field(8, "inf")) == "line 1: total 'inf' is not in [0, 1e9]");
  for (const char* number : {"0", "7", "0.5", ".5", "5.", "1e3", "1000000000"})
    CHECK(refusal(with_field(4, number)).empty());
  for (const char* number : {" 7", "7 ", "+7", "0x10", "1e", "--1", "1.2.3", "NaN", "7\xC2\xA0"})
    CHECK(contains_text(refusal(with_field(4, number)), "is no number"));
}

TEST_CASE("dates are those of the calendar", "[harness]") {
  for (const char* date : {"0001-01-01", "9999-12-31", "2000-02-29", "2024-02-29", "2023-12-31"})
    CHECK(refusal(with_field(2, date)).empty());
  for (const char* date : {"1900-02-29", "2023-02-29", "2023-04-31", "2023-13-01", "2023-00-10",
                           "2023-01-00", "2023-01-32", "0000-01-01", "2023-1-01", "2023/01/01",
                           "17.03.2023", "2023-01-0a", "2023-01-011", "-023-01-01", "２０２３"})
    CHECK(contains_text(refusal(with_field(2, date)), "is no date"));
  // All days in turn, across the century that had no leap day.
  std::int32_t day = sales::days_from_date(1896, 1, 1);
  REQUIRE(sales::days_from_date(1970, 1, 1) == 0);
  for (int year = 1896; year <= 2025; ++year)
    for (int month = 1; month <= 12; ++month)
      for (int d = 1; d <= 31; ++d) {
        char text[16];
        std::snprintf(text, sizeof text, "%04d-%02d-%02d", year % 10000, month, d);
        std::int32_t days = 0;
        if (sales::read_date(text, &days)) REQUIRE(days == day++);
      }
  REQUIRE(day == sales::days_from_date(2026, 1, 1));
}

TEST_CASE("only what RFC 3629 allows is UTF-8", "[harness]") {
  for (const std::string good : {"", "ascii", "é", "煎茶", "😀", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF",
                                 "eight by\xC3\xA9 eight"})
    CHECK(sales::utf8_end(good) == good.size());
  for (const std::string bad :
       {"\x80", "\xC3", "\xC3(", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xE2\x82", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xF0\x9F\x98"}) {
    CHECK(sales::utf8_end(bad) == 0);
    CHECK(sales::utf8_end("in front of " + bad) == 12);
  }
}

TEST_CASE("fields of any length, and messages that stay short", "[harness]") {
  const std::string huge(1 << 20, 'x');
  CHECK(refusal(with_field(0, huge)).empty());
  CHECK(refusal(with_field(2, huge)).size() < 100);
  std::string accents;
  for (int i = 0; i < 50; ++i) accents += "é";
  const std::string cut = refusal(with_field(4, "x" + accents));  // 40 bytes end within an é
  CHECK(sales::utf8_end(cut) == cut.size());
  CHECK(refusal(with_field(4, "\x1B[31m\x7F")) ==
        R"(line 1: quantity '\x1b[31m\x7f' is no number)");
  CHECK(refusal(with_field(4, "0\xC2\x85")) == R"(line 1: quantity '0\x85' is no number)");
}

TEST_CASE("lines are counted right, however many threads there are", "[harness]") {
  std::string text = sales::make(500, 1);
  std::vector<size_t> bad_lines;
  std::string broken;
  size_t line = 0;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    if (line % 7 == 3) {
      broken += line % 2 == 0 ? "\n" : with_field(4, "many") + "\r\n";
      bad_lines.push_back(line + 1);
    } else {
      broken += text.substr(begin, end + 1 - begin);
    }
    begin = end + 1;
  }
  const Sales one = sales::parse(broken, 1);
  REQUIRE(one.lines == 500);
  REQUIRE(one.malformed() == bad_lines.size());
  REQUIRE(one.faults[static_cast<size_t>(Fault::EmptyLine)] +
              one.faults[static_cast<size_t>(Fault::NoNumber)] ==
          bad_lines.size());
  REQUIRE(one.examples.size() == 2 * sales::kExamples);  // the first of each kind, in order
  for (size_t i = 0; i < one.examples.size(); ++i)
    CHECK(contains_text(one.examples[i], "line " + std::to_string(bad_lines[i]) + ": "));
  for (const size_t threads : {2u, 3u, 7u, 64u, 1000u}) {
    const Sales many = sales::parse(broken, threads);
    CAPTURE(threads);
    REQUIRE(many.lines == one.lines);
    REQUIRE(many.faults == one.faults);
    REQUIRE(many.examples == one.examples);
    REQUIRE(many.categories == one.categories);
    REQUIRE(many.rows.size() == one.rows.size());
    for (size_t i = 0; i < one.rows.size(); ++i) {
      REQUIRE(many.rows[i].day == one.rows[i].day);
      REQUIRE(many.rows[i].total == one.rows[i].total);
      REQUIRE(many.rows[i].category == one.rows[i].category);
    }
  }
}

TEST_CASE("no bytes, one byte, and files cut or changed anywhere are read without harm",
          "[harness]") {
  REQUIRE(sales::parse("").lines == 0);
  REQUIRE(sales::parse("\n").lines == 1);
  REQUIRE(sales::parse("\n\n", 3).malformed() == 2);
  REQUIRE(sales::parse(std::string(1, '\0')).malformed() == 1);
  const std::string text = std::string(kGood) + "\r\n" + with_field(6, "煎茶") + "\n" + kGood;
  for (size_t size = 0; size <= text.size(); ++size) {
    // A string of its own, so that a byte read behind the end is seen.
    const Sales sales = sales::parse(std::string(text, 0, size), 1 + size % 3);
    REQUIRE(sales.rows.size() <= 3);
    REQUIRE(sales.malformed() <= 1);
  }
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const Sales sales = sales::parse(changed, 1 + bit % 3);
    REQUIRE(sales.lines >= 2);
    REQUIRE(sales.lines <= 4);
    for (const Sale& sale : sales.rows) {
      REQUIRE(sale.total >= 0);
      REQUIRE(sale.total <= 1e9f);
      REQUIRE(sale.category < sales.categories.size());
    }
  }
}

TEST_CASE("files that are not sales are refused in one line", "[harness]") {
  const auto refused = [](const std::string& text, size_t needed) -> std::string {
    try {
      sales::require(sales::parse(text), "x.tsv", needed);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused(sales::make(10, 1), 10).empty());
  CHECK(refused(sales::make(9, 1), 10) == "x.tsv: 9 sales, and 10 are needed");
  CHECK(refused("", 1) == "x.tsv: 0 sales, and 1 are needed");
  CHECK(refused("a\nb\n" + sales::make(1, 1), 1) ==
        "x.tsv: 2 of 3 lines are malformed, the first: line 1: 1 fields instead of 10");
}

// ---- Features ---------------------------------------------------------------------------------

TEST_CASE("rows are what NumPy makes of the same sales", "[numpy]") {
  const auto values = [](const char* name) {
    return read_npy(reference_path(std::string("train_sales_") + name + ".npy")).values;
  };
  const std::vector<double> days = values("days"), categories = values("category"),
                            quantities = values("quantity"), prices = values("price"),
                            mean = values("mean"), scale = values("scale"),
                            want = values("features");
  Normalization normalization{};
  for (unsigned k = 0; k < kMeasures; ++k)
    normalization.mean[k] = static_cast<float>(mean[k]),
    normalization.scale[k] = static_cast<float>(scale[k]);
  std::vector<Sale> sold;
  for (size_t i = 0; i < days.size(); ++i)
    sold.push_back({static_cast<std::int32_t>(days[i]), static_cast<float>(quantities[i]),
                    static_cast<float>(prices[i]), 0, static_cast<std::uint32_t>(categories[i])});
  const DeviceBuffer<Sale> d_sales(sold);
  DeviceBuffer<float4> rows(sold.size() * kParts);
  rows.poison();
  const Permutation order(sold.size(), 9, 1);
  launch_write_rows(rows.data(), d_sales.data(), order, normalization, sold.size());
  const std::vector<float4> got = rows.to_host();
  const float* floats = reinterpret_cast<const float*>(got.data());
  REQUIRE_OK(compare(
      sold.size() * kFeatures,
      [&](size_t i) { return floats[i / kFeatures * 4 * kParts + i % kFeatures]; },
      [&](size_t i) { return want[order(i / kFeatures) * kFeatures + i % kFeatures]; },
      [&](size_t i) {
        const double w = want[order(i / kFeatures) * kFeatures + i % kFeatures];
        return row_bound(w, static_cast<unsigned>(i % kFeatures), normalization);
      }));
}

// Years of which two have no leap day that every fourth year has; 1 January 1896 was a Wednesday.
TEST_CASE("a day's place in its year and in its week are the calendar's") {
  std::vector<Sale> sold;
  std::vector<double> places;  // of the days in their years
  std::vector<float> weekend;
  std::int32_t day = sales::days_from_date(1896, 1, 1);
  for (int year = 1896, weekday = 2; year <= 2100; ++year) {
    const int days = sales::is_leap(year) ? 366 : 365;
    const bool wanted = year % 100 == 0 || year == 1896 || year == 2023 || year == 2024;
    for (int of_year = 0; of_year < days; ++of_year, ++day, weekday = (weekday + 1) % 7) {
      if (!wanted) continue;
      sold.push_back({day, 1, 1, 1, 0});
      places.push_back(static_cast<double>(of_year) / days);
      weekend.push_back(weekday >= 5 ? 1.0f : 0.0f);
    }
  }
  const Normalization normalization{};
  const DeviceBuffer<Sale> d_sales(sold);
  DeviceBuffer<float4> rows(sold.size() * kParts);
  rows.poison();
  const Permutation order(sold.size(), 9, 1);
  launch_write_rows(rows.data(), d_sales.data(), order, normalization, sold.size());
  const std::vector<float4> parts = rows.to_host();
  const float* got = reinterpret_cast<const float*>(parts.data());
  for (size_t i = 0; i < sold.size(); ++i, got += 4 * kParts) {
    const double angle = 2 * std::acos(-1.0) * places[order(i)];
    const double want[] = {std::sin(angle), std::cos(angle), std::sin(2 * angle),
                           std::cos(2 * angle)};
    CAPTURE(sold[order(i)].day);
    REQUIRE_OK(compare(
        std::size(want), [&](size_t k) { return got[kYearSine + k]; },
        [&](size_t k) { return want[k]; },
        [&](size_t k) {
          return row_bound(want[k], kYearSine + static_cast<unsigned>(k), normalization);
        }));
    REQUIRE(got[kWeekend] == weekend[order(i)]);
    for (unsigned k = kFeatures + 1; k < 4 * kParts; ++k) REQUIRE(got[k] == 0);
  }
}

TEST_CASE("the data set normalises, splits and encodes") {
  const Sales sales = make_sales(1003);
  const DataSet data(sales, 7);
  REQUIRE(data.train() == 802);
  REQUIRE(data.test() == 201);
  REQUIRE(data.encoding().categories.size() == 16);
  REQUIRE(std::is_sorted(data.encoding().categories.begin(), data.encoding().categories.end()));
  REQUIRE(data.other_train() + data.other_test() == 0);

  // Mean and deviation of the training split, in double.
  const Normalization& normalization = data.encoding().normalization;
  const Permutation order(sales.rows.size(), 7, kSplitStream);
  for (unsigned which = 0; which < kMeasures; ++which) {
    double sum = 0, squares = 0;
    const auto value = [&](size_t i) {
      return static_cast<double>(measure(sales.rows[order(i)], which));
    };
    for (size_t i = 0; i < data.train(); ++i) sum += value(i);
    const double n = static_cast<double>(data.train()), mean = sum / n;
    for (size_t i = 0; i < data.train(); ++i) squares += std::pow(value(i) - mean, 2);
    const double scale = 1 / std::sqrt(squares / n);
    // All values are positive; the variance is a mean of n squares, each off by 4 u and by what the
    // mean was off, which is small beside the deviation here.
    const double bound = losses::gamma(losses::mean_roundings(data.train()) + 4);
    CHECK(std::fabs(static_cast<double>(normalization.mean[which]) - mean) <= bound * mean);
    CHECK(std::fabs(static_cast<double>(normalization.scale[which]) - scale) <=
          bound * scale * (1 + mean * scale));
  }

  // Every sale is in one of the splits, with the row of the reference.
  std::vector<float4> rows((data.train() + data.test()) * kParts);
  HIP_CHECK(hipMemcpy(rows.data(), data.train_rows(), rows.size() * sizeof(float4),
                      hipMemcpyDeviceToHost));
  std::set<size_t> seen;
  for (size_t i = 0; i < 1003; ++i) {
    Sale sale = sales.rows[order(i)];
    seen.insert(order(i));
    REQUIRE(data.totals()[i] == sale.total);
    const auto& names = data.encoding().categories;
    const auto column = std::find(names.begin(), names.end(), sales.categories[sale.category]);
    sale.category = static_cast<std::uint32_t>(column - names.begin());
    const std::vector<double> want = row_cpu(sale, normalization);
    const float* got = reinterpret_cast<const float*>(rows.data() + i * kParts);
    REQUIRE_OK(compare(
        want.size(), [&](size_t k) { return got[k]; }, [&](size_t k) { return want[k]; },
        [&](size_t k) { return row_bound(want[k], static_cast<unsigned>(k), normalization); }));
  }
  REQUIRE(seen.size() == 1003);
}

TEST_CASE("categories without a column are zeros, and counted", "[harness]") {
  std::string text;
  for (int i = 0; i < 200; ++i)  // 20 categories, the first of them sold most often
    text += with_field(6, "category " + std::to_string(i % (1 + i % 20))) + "\n";
  const Sales sales = sales::parse(text);
  REQUIRE(sales.categories.size() > kCategories);
  const DataSet data(sales, 2);
  REQUIRE(data.encoding().categories.size() == kCategories);
  REQUIRE(data.other_train() > 0);
  // All measures are alike: nothing is divided by a deviation of 0.
  for (unsigned which = 0; which < kMeasures; ++which)
    REQUIRE(std::fabs(data.encoding().normalization.scale[which]) < 1e9f);

  // A model's encoding on sales that it has never seen: every one of them is a test.
  const Sales other = sales::parse(with_field(6, "new") + "\n" + with_field(6, "category 0"));
  const DataSet unseen(other, 2, data.encoding(), other.rows.size());
  REQUIRE(unseen.train() == 0);
  REQUIRE(unseen.test() == 2);
  REQUIRE(unseen.other_test() == 1);
  std::vector<float4> rows(2 * kParts);
  HIP_CHECK(hipMemcpy(rows.data(), unseen.test_rows(), rows.size() * sizeof(float4),
                      hipMemcpyDeviceToHost));
  double ones = 0;
  for (size_t i = 0; i < 2; ++i)
    for (size_t part = 0; part < kCategories / 4; ++part) {
      const float4 four = rows[i * kParts + part];
      ones += static_cast<double>(four.x + four.y + four.z + four.w);
    }
  REQUIRE(ones == 1);
}
