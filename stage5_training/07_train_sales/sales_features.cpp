#include "stage5_training/07_train_sales/sales_features.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stage3_ml_ops/03_losses/losses.h"

namespace train_sales {

DataSet::DataSet(const Sales& sales, Permutation order, size_t train, const Encoding* encoding)
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
  launch_write_rows(rows_.data(), d_sales.data(), order, encoding_.normalization, n);
  HIP_CHECK(hipDeviceSynchronize());
}

void DataSet::choose_categories(const Sales& sales, Permutation order) {
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
void DataSet::normalize(const DeviceBuffer<Sale>& d_sales, Permutation order) {
  DeviceBuffer<float> values(train_), partials(losses::kMaxBlocks), result(2);
  float* const mean = result.data();
  float* const variance = mean + 1;
  for (unsigned which = 0; which < kMeasures; ++which) {
    launch_measure(values.data(), d_sales.data(), order, which, train_);
    losses::launch_mean(mean, values.data(), train_, {train_}, partials.data(), nullptr);
    launch_square_deviations(values.data(), mean, train_);
    losses::launch_mean(variance, values.data(), train_, {train_}, partials.data(), nullptr);
    const std::vector<float> host = result.to_host();
    encoding_.normalization.mean[which] = host[0];
    encoding_.normalization.scale[which] = host[1] > 0 ? 1 / std::sqrt(host[1]) : 1.0f;
  }
}

}  // namespace train_sales
