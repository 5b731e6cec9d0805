// 5.7  From sales to numbers: the features of train_sales, made on the device, and its data set.
//
//   one-hot category (16)   day of the year (4)   weekend   quantity, log price, gross   | total
//
// A category is a name, a day a count, and prices differ by factors. A network learns fastest from
// numbers of about the same size, so each becomes one or several between about -3 and 3: a column
// per category, the year as an angle, the rest normalised by mean and deviation of the training
// split.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/gpu.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/07_train_sales/sales_data.h"

namespace train_sales {

using device_matrix::DeviceBuffer;
using random_numbers::Permutation;
using sales::Sale;
using sales::Sales;
using vector_add::full_grid;
using vector_add::kBlock;

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

// values[i] = a measure of sale order(i)    values (n), the first n of all sales.
// Fixes : the host would do it for every sale, and send the result.
// Idea  : order() says which sale comes where: nothing is moved to shuffle it.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns values[t], values[t + T], ...
// Costs : 4 n bytes written; sales of 20 bytes are read from all over their array.
static __global__ void measure_sales(float* values, const Sale* sales, Permutation order,
                                     unsigned which, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    values[i] = measure(sales[order(i)], which);
}

// values[i] = (values[i] - *mean)^2    values (n).
// Fixes : mean of the squares less square of the mean loses what the two have in common.
// Idea  : the second of two passes: the mean of this is the variance, without cancellation.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns values[t], values[t + T], ...
// Costs : 8 n bytes of global memory.
static __global__ void square_deviations(float* values, const float* mean, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const float deviation = values[i] - *mean;
    values[i] = deviation * deviation;
  }
}

// rows[i] = features and target of sale order(i)    rows (n, kParts).
// Fixes : a category is a name, a day a count, and a price is a thousand times a share.
// Idea  : everything a model can use lies between about -3 and 3; one pass makes all of it.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the rows t, t + T, ...
// Costs : 16 kParts n bytes written, once; a batch is read from there in every epoch.
static __global__ void write_rows(float4* rows, const Sale* sales, Permutation order,
                                  Normalization normalization, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const Sale sale = sales[order(i)];
    float row[4 * kParts] = {};
    GPU_UNROLL
    for (unsigned category = 0; category < kCategories; ++category)
      row[category] = sale.category == category ? 1.0f : 0.0f;  // all 0 for any other
    const float angle = 6.2831853f * place_in_year(sale.day);
    row[kYearSine] = sinf(angle);
    row[kYearCosine] = cosf(angle);
    row[kHalfYearSine] = sinf(2 * angle);
    row[kHalfYearCosine] = cosf(2 * angle);
    row[kWeekend] = is_weekend(sale.day) ? 1.0f : 0.0f;
    GPU_UNROLL
    for (unsigned which = 0; which < kMeasures; ++which)
      row[kQuantity + which] =
          (measure(sale, which) - normalization.mean[which]) * normalization.scale[which];
    GPU_UNROLL
    for (unsigned part = 0; part < kParts; ++part)
      rows[i * kParts + part] =
          make_float4(row[4 * part], row[4 * part + 1], row[4 * part + 2], row[4 * part + 3]);
  }
}
static_assert(kQuantity + kOfTotal == kFeatures, "measures lie in their order, the target last");

// The reference in double; the same order of columns, 4 * kParts of them.
inline std::vector<double> row_cpu(const Sale& sale, const Normalization& normalization) {
  std::vector<double> row(4 * kParts);
  if (sale.category < kCategories) row[sale.category] = 1;
  const double angle = 2 * std::acos(-1.0) * static_cast<double>(place_in_year(sale.day));
  row[kYearSine] = std::sin(angle), row[kYearCosine] = std::cos(angle);
  row[kHalfYearSine] = std::sin(2 * angle), row[kHalfYearCosine] = std::cos(2 * angle);
  row[kWeekend] = is_weekend(sale.day);
  const double quantity = static_cast<double>(sale.quantity);
  const double unit_price = static_cast<double>(sale.unit_price);
  const double measures[] = {quantity, std::log1p(unit_price), quantity * unit_price,
                             static_cast<double>(sale.total)};
  for (unsigned which = 0; which < kMeasures; ++which)
    row[kQuantity + which] = (measures[which] - static_cast<double>(normalization.mean[which])) *
                             static_cast<double>(normalization.scale[which]);
  return row;
}

// How far a float row may be from it. An angle is off by 3 u (constant, place, product), and sine
// and cosine by 4 u more, as accurate as any of the backends takes them. A measure rounds up to
// twice and log1pf is off by 4 u; the difference rounds, and what it lost is not smaller than it
// was before the mean was taken away; then comes the scale.
inline double row_bound(double wanted, unsigned column, const Normalization& normalization) {
  constexpr double u = kFloatRoundoff, kAngle = 4 * 3.2;
  if (column < kYearSine || column == kWeekend) return 0;
  if (column < kWeekend) return 3 * u * kAngle + 4 * u;
  if (column > kFeatures) return 0;
  const double mean = std::fabs(static_cast<double>(normalization.mean[column - kQuantity]));
  const double scale = static_cast<double>(normalization.scale[column - kQuantity]);
  return u * (4 * (std::fabs(wanted) + mean * scale) + 3 * std::fabs(wanted));
}

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

inline DataSet::DataSet(const Sales& sales, Permutation order, size_t train,
                        const Encoding* encoding)
    : train_(train) {
  const size_t n = sales.rows.size();
  if (encoding != nullptr)
    encoding_ = *encoding;
  else
    choose_categories(sales, order);

  std::vector<std::uint32_t> column(sales.categories.size(), kCategories);
  for (size_t c = 0; c < column.size(); ++c) {
    const auto& names = encoding_.categories;
    const auto found = std::find(names.begin(), names.end(), sales.categories[c]);
    if (found != names.end()) column[c] = static_cast<std::uint32_t>(found - names.begin());
  }
  std::vector<Sale> encoded = sales.rows;
  for (Sale& sale : encoded) sale.category = column[sale.category];
  for (size_t i = 0; i < n; ++i) {
    const Sale& sale = encoded[order(i)];
    totals_.push_back(sale.total);
    if (sale.category == kCategories) ++(i < train ? other_train_ : other_test_);
  }

  const DeviceBuffer<Sale> d_sales(encoded);
  if (encoding == nullptr) normalize(d_sales, order);
  rows_ = DeviceBuffer<float4>(n * kParts);
  if (n > 0)
    LAUNCH(write_rows, full_grid(n), kBlock, 0, rows_.data(), d_sales.data(), order,
           encoding_.normalization, n);
  HIP_CHECK(hipDeviceSynchronize());
}

inline void DataSet::choose_categories(const Sales& sales, Permutation order) {
  std::vector<size_t> counts(sales.categories.size());
  for (size_t i = 0; i < train_; ++i) ++counts[sales.rows[order(i)].category];
  std::vector<size_t> ranks(counts.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b]
                                  : sales.categories[a] < sales.categories[b];
  });
  for (const size_t c : ranks)
    if (counts[c] > 0 && encoding_.categories.size() < kCategories)
      encoding_.categories.push_back(sales.categories[c]);
  std::sort(encoding_.categories.begin(), encoding_.categories.end());
}

// Mean and deviation of each measure over the training split, with the mean of step 3.3: its order
// follows from the number of rows alone.
inline void DataSet::normalize(const DeviceBuffer<Sale>& d_sales, Permutation order) {
  DeviceBuffer<float> values(train_), partials(losses::kMaxBlocks), result(2);
  float* const mean = result.data();
  float* const variance = mean + 1;
  for (unsigned which = 0; which < kMeasures; ++which) {
    LAUNCH(measure_sales, full_grid(train_), kBlock, 0, values.data(), d_sales.data(), order, which,
           train_);
    losses::launch_mean(mean, values.data(), train_, {train_}, partials.data(), nullptr);
    LAUNCH(square_deviations, full_grid(train_), kBlock, 0, values.data(), mean, train_);
    losses::launch_mean(variance, values.data(), train_, {train_}, partials.data(), nullptr);
    const std::vector<float> host = result.to_host();
    encoding_.normalization.mean[which] = host[0];
    encoding_.normalization.scale[which] = host[1] > 0 ? 1 / std::sqrt(host[1]) : 1.0f;
  }
}

}  // namespace train_sales
