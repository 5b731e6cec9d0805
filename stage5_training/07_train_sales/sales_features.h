// 5.7  From sales to numbers: the features of train_sales, made on the device, and its data set.
//
//   one-hot category (16)   day of the year (4)   weekend   quantity, log price, gross   | total
//
// A category is a name, a day a count, and prices differ by factors. A network learns fastest from
// numbers of about the same size, so each becomes one or several between about -3 and 3: a column
// per category, the year as an angle, the rest normalised by mean and deviation of the training
// split.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/random.h"
#include "stage5_training/07_train_sales/sales_data.h"

namespace train_sales {

using gpu::DeviceBuffer;
using random_numbers::Permutation;
using sales::Sale;
using sales::Sales;

// ---- Features ---------------------------------------------------------------------------------

inline constexpr unsigned kCategories = 16;  // categories with a column of their own

// Columns of the model's input. Those before kYearSine are the one-hot category.
enum Column : unsigned {
  kYearSine = kCategories,  // of the day of the year as an angle, and of twice the angle: this
  kYearCosine,              // puts 31 December beside 1 January
  kHalfYearSine,
  kHalfYearCosine,
  kWeekend,
  kQuantity,  // from here on normalised
  kUnitPrice,
  kGross,
  kFeatures
};

// A row in device memory is kParts float4s: the features, the target (which is the normalised
// total), and zeros.
inline constexpr unsigned kFeatureParts = kFeatures / 4, kParts = kFeatureParts + 1;
static_assert(kFeatures % 4 == 0, "the target begins the last part");

// What is normalised.
enum Measure : unsigned { kOfQuantity, kOfUnitPrice, kOfGross, kOfTotal, kMeasures };

struct Normalization {
  float mean[kMeasures], scale[kMeasures];  // normalised = (value - mean) * scale

  // A normalised total in the currency of the file.
  double total(float normalized) const {
    return static_cast<double>(mean[kOfTotal]) +
           static_cast<double>(normalized) / static_cast<double>(scale[kOfTotal]);
  }
};

__host__ __device__ inline float measure(const Sale& sale, unsigned which) {
  switch (which) {
    case kOfQuantity:
      return sale.quantity;
    case kOfUnitPrice:
      return log1pf(sale.unit_price);  // prices differ by factors
    case kOfGross:
      return sale.quantity * sale.unit_price;
    default:
      return sale.total;
  }
}

inline constexpr int kFrom0000 = 719468;  // days from 0000-03-01, a Wednesday, to 1970-01-01

// How much of its year is over when a day begins: 0 on 1 January. Years are taken to begin in
// March, so that the leap day is the last of its year. (Hinnant: chrono-compatible low-level date
// algorithms, civil_from_days.)
__host__ __device__ inline float place_in_year(std::int32_t day) {
  constexpr int kDaysOf400Years = 146097, kMarchToJanuary = 306, kJanuaryToMarch = 59;
  const int days = day + kFrom0000, rest = days % kDaysOf400Years;
  const int year_of_400 = (rest - rest / 1460 + rest / 36524 - rest / 146096) / 365;
  const int from_march = rest - (365 * year_of_400 + year_of_400 / 4 - year_of_400 / 100);
  const bool before_march = from_march >= kMarchToJanuary;
  const int year = days / kDaysOf400Years * 400 + year_of_400 + (before_march ? 1 : 0);
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  const int from_january =
      before_march ? from_march - kMarchToJanuary : from_march + kJanuaryToMarch + (leap ? 1 : 0);
  return static_cast<float>(from_january) / (leap ? 366.0f : 365.0f);
}

__host__ __device__ inline bool is_weekend(std::int32_t day) {
  return (day + kFrom0000 + 2) % 7 >= 5;  // 0 is a Monday
}

// ---- Kernels: versions/features.hip -----------------------------------------------------------

// values[i] = a measure of sale order(i)    values (n), the first n of all sales.
void launch_measure(float* values, const Sale* sales, Permutation order, unsigned which, size_t n);

// values[i] = (values[i] - *mean)^2    values (n).
void launch_square_deviations(float* values, const float* mean, size_t n);

// rows[i] = features and target of sale order(i)    rows (n, kParts).
void launch_write_rows(float4* rows, const Sale* sales, Permutation order,
                       const Normalization& normalization, size_t n);

// ---- The data set -----------------------------------------------------------------------------

// The sequence that puts the sales into training and test split; no epoch uses it.
inline constexpr std::uint32_t kSplitStream = ~0u;

// How many of so many sales are trained on: 80 percent.
inline size_t training_share(size_t sales) { return sales / 5 * 4 + sales % 5 * 4 / 5; }

// What turns sales into a model's numbers, and must be known again wherever the model is used.
struct Encoding {
  std::vector<std::string> categories;  // of the columns, kCategories at most
  Normalization normalization{};
};

// A file's sales in device memory as rows: the training split, then the test split, both in an
// order that has nothing to do with the file's.
class DataSet {
 public:
  // Splits 80 to 20, and takes the encoding from the training split: a column each for its
  // kCategories most frequent categories. 5 sales at least.
  DataSet(const Sales& sales, std::uint64_t seed)
      : DataSet(sales, Permutation(sales.rows.size(), seed, kSplitStream),
                training_share(sales.rows.size()), nullptr) {}

  // For a model that is there already: its encoding. The last `test` rows of those that the other
  // constructor makes of the same sales and seed, as its test split.
  DataSet(const Sales& sales, std::uint64_t seed, const Encoding& encoding, size_t test)
      : DataSet(sales, Permutation(sales.rows.size(), seed, kSplitStream), sales.rows.size() - test,
                &encoding) {}

  const Encoding& encoding() const { return encoding_; }
  size_t train() const { return train_; }
  size_t test() const { return totals_.size() - train_; }
  const float4* train_rows() const { return rows_.data(); }
  const float4* test_rows() const { return rows_.data() + train_ * kParts; }
  // The totals of all rows, in their order.
  const std::vector<float>& totals() const { return totals_; }
  // How many rows of each split have a category without a column.
  size_t other_train() const { return other_train_; }
  size_t other_test() const { return other_test_; }

  // Device memory in bytes of a data set of so many sales, while it is being made.
  static double bytes(double sales) {
    return sales * static_cast<double>(sizeof(float4) * kParts + sizeof(Sale) + sizeof(float));
  }

 private:
  DataSet(const Sales& sales, Permutation order, size_t train, const Encoding* encoding);
  void choose_categories(const Sales& sales, Permutation order);
  void normalize(const DeviceBuffer<Sale>& d_sales, Permutation order);

  size_t train_;
  Encoding encoding_;
  DeviceBuffer<float4> rows_;
  std::vector<float> totals_;
  size_t other_train_ = 0, other_test_ = 0;
};

}  // namespace train_sales
