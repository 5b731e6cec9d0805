// The kernels that make a data set: what all versions train on.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/07_train_sales/sales_features.h"

namespace train_sales {

using vector_add::full_grid;
using vector_add::kBlock;

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

void launch_measure(float* values, const Sale* sales, Permutation order, unsigned which, size_t n) {
  LAUNCH(measure_sales, full_grid(n), kBlock, 0, values, sales, order, which, n);
}

void launch_square_deviations(float* values, const float* mean, size_t n) {
  LAUNCH(square_deviations, full_grid(n), kBlock, 0, values, mean, n);
}

void launch_write_rows(float4* rows, const Sale* sales, Permutation order,
                       const Normalization& normalization, size_t n) {
  if (n > 0) LAUNCH(write_rows, full_grid(n), kBlock, 0, rows, sales, order, normalization, n);
}

}  // namespace train_sales
