#include "stage8_framework/06_fusion/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/program.h"
#include "common/rounding.h"
#include "common/sample.h"
#include "common/sizes.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage8_framework/02_backends/detail/rules.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/ladders.h"

namespace fusion {

namespace {

using activations::GeluTanh;
using framework::Layout;
using framework::Shape;
using Floats = std::vector<float>;

constexpr double kU = kFloatRoundoff;
enum SizeNumber { kElements, kRows };  // in Options::sizes; 8.4 reads the two behind them

std::vector<size_t> positions_of(const Sample& sample) {
  std::vector<size_t> places;
  for (size_t i = 0; i < sample.size; ++i) places.push_back(sample.position(i));
  return places;
}

// result[i] against want(i) within bound(i), at sampled places.
template <class Want>
Comparison check_at(const Floats& result, const std::vector<size_t>& places, Want&& want) {
  struct Number {
    double value, bound;
  };
  std::vector<Number> numbers;
  for (const size_t i : places) {
    const auto [value, bound] = want(i);
    numbers.push_back({value, bound});
  }
  Comparison found = compare(
      places.size(), [&](size_t i) { return result[places[i]]; },
      [&](size_t i) { return numbers[i].value; }, [&](size_t i) { return numbers[i].bound; });
  if (!places.empty()) found.index = places[found.index], found.first = places[found.first];
  return found;
}

double number(float x) { return static_cast<double>(x); }

// "2^13x67", for the name of a table.
std::string size(std::int64_t n) { return size_text(static_cast<size_t>(n)); }
std::string matrix(std::int64_t rows, std::int64_t cols) { return size(rows) + "x" + size(cols); }

Tensor random(Device& device, const Shape& shape, std::uint64_t seed, std::uint32_t stream) {
  const auto count = static_cast<size_t>(Layout::contiguous(shape).elements());
  return Tensor::from_host(device, backends::numbers(seed, stream, count), shape);
}

// gelu((y z + y) / 2) z + y
Expression chain(std::int64_t n, std::uint64_t seed, Device& device) {
  Expression e;
  e.name = "gelu((y z + y) / 2) z + y   n=" + size(n) + " float32";
  e.inputs = {random(device, {n}, seed, 0), random(device, {n}, seed, 1)};
  e.work.bytes = 3.0 * sizeof(float) * static_cast<double>(n);
  e.work.operations = 16.0 * static_cast<double>(n);
  e.run = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &y = in[0], &z = in[1];
    const Tensor two = framework::full(y.device(), {}, 2);
    return {framework::gelu((y * z + y) / two) * z + y};
  };
  const Sample sample = choose_sample(static_cast<size_t>(n), seed);
  e.sampled = sample.text;
  e.check = [in = e.inputs, sample](const std::vector<Tensor>& results) {
    const Floats y = in[0].to_host<float>(), z = in[1].to_host<float>();
    const Floats got = results[0].to_host<float>();
    return check_at(got, positions_of(sample), [&](size_t i) {
      const double a = number(y[i]), b = number(z[i]);
      const double t = (a * b + a) / 2, g = GeluTanh::cpu(t);
      const double of_t = kU * 1.5 * (std::fabs(a * b) + std::fabs(a));  // gelu's slope is 1.13
      const double of_g = GeluTanh::bound(t) + 1.2 * of_t;
      return std::pair(g * b + a, of_g * std::fabs(b) + 2 * kU * (std::fabs(g * b) + std::fabs(a)));
    });
  };
  return e;
}

// mean of (x - m)^2 over each row, m of a row
Expression deviation(std::int64_t rows, std::int64_t cols, std::uint64_t seed, Device& device) {
  Expression e;
  e.name = "mean of (x - m)^2 over each row   " + matrix(rows, cols) + " float32";
  e.inputs = {random(device, {rows, cols}, seed, 2), random(device, {rows, 1}, seed, 3)};
  const double n = static_cast<double>(rows * cols);
  e.work.bytes = sizeof(float) * (n + 2 * static_cast<double>(rows));
  e.work.operations = 3 * n;
  e.run = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {framework::mean(framework::square(in[0] - in[1]), {1})};
  };
  const auto columns = static_cast<size_t>(cols);
  const RowSample sample = choose_rows(static_cast<size_t>(rows), columns, 256, seed);
  e.sampled = sample.text;
  e.check = [in = e.inputs, sample, columns](const std::vector<Tensor>& results) {
    const Floats x = in[0].to_host<float>(), m = in[1].to_host<float>();
    const Floats got = results[0].to_host<float>();
    return check_at(got, sample.rows, [&](size_t row) {
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) {
        const double difference = number(x[row * columns + c]) - number(m[row]);
        sum += difference * difference;
      }
      const double mean = sum / static_cast<double>(columns);
      return std::pair(mean,
                       kU * (5 + framework::roundings_of_sum(static_cast<double>(columns))) * mean);
    });
  };
  return e;
}

// dx = gelu'(x) dy, and its sum over the rows: what goes back through a layer's gelu and bias
Expression gradient(std::int64_t rows, std::int64_t cols, std::uint64_t seed, Device& device) {
  Expression e;
  e.name = "gelu backward and its sum over the rows   " + matrix(rows, cols) + " float32";
  e.inputs = {random(device, {rows, cols}, seed, 4), random(device, {rows, cols}, seed, 5)};
  const double n = static_cast<double>(rows * cols);
  e.work.bytes = sizeof(float) * (3 * n + static_cast<double>(cols));
  e.work.operations = 30 * n;
  e.run = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor dx = framework::gelu_backward(in[0], in[1]);
    return {dx, framework::sum(dx, {0})};
  };
  const auto columns = static_cast<size_t>(cols);
  const Sample sample = choose_sample(static_cast<size_t>(rows * cols), seed);
  const RowSample of_columns = choose_rows(columns, static_cast<size_t>(rows), 64, seed);
  e.sampled = sample.text;
  if (!of_columns.text.empty()) e.sampled += (sample.text.empty() ? "" : "; ") + of_columns.text;
  e.check = [in = e.inputs, sample, of_columns, columns, rows](const std::vector<Tensor>& results) {
    const Floats dy = in[0].to_host<float>(), x = in[1].to_host<float>();
    const Floats dx = results[0].to_host<float>(), sums = results[1].to_host<float>();
    const auto slope = [&](size_t i) {
      const double g = number(dy[i]), at = number(x[i]);
      const double value = g * GeluTanh::derivative_cpu(at);
      return std::pair(value,
                       std::fabs(g) * GeluTanh::derivative_bound(at) + kU * std::fabs(value));
    };
    const Comparison of_dx = check_at(dx, positions_of(sample), slope);
    const Comparison of_sums = check_at(sums, of_columns.rows, [&](size_t column) {
      double sum = 0, size = 0, bound = 0;
      for (size_t i = column; i < dx.size(); i += columns) {
        const auto [value, off] = slope(i);
        sum += value, size += std::fabs(value), bound += off;
      }
      return std::pair(sum,
                       bound + kU * framework::roundings_of_sum(static_cast<double>(rows)) * size);
    });
    return together({of_dx, of_sums});
  };
  return e;
}

}  // namespace

std::vector<Size> sizes() {
  return {{"elements", size_t{1} << 26, size_t{1} << 20, 4099},
          {"rows", 8192, 1024, 67},
          {"steps", 1000, 6, 4},
          {"width", 64, 32, 16}};
}

void require_memory(const Options& options) {
  const double n = static_cast<double>(options.sizes[kElements]);
  if (options.sizes[kRows] > options.sizes[kElements])
    throw UsageError("--size: " + std::to_string(options.sizes[kRows]) + " rows of " +
                     std::to_string(options.sizes[kElements]) + " elements are empty");
  // Inputs, results, and what `separate` keeps between its calls; on the host they are compared.
  require_device_memory(8 * sizeof(float) * n);
  sizes::require_host_memory(8 * sizeof(float) * n);
  modules::require_text_memory(options);
}

std::vector<Expression> expressions(const Options& options, Device& device) {
  const auto n = static_cast<std::int64_t>(options.sizes[kElements]);
  const auto rows = static_cast<std::int64_t>(options.sizes[kRows]);
  const std::uint64_t seed = options.seed;
  return {chain(n, seed, device), deviation(rows, n / rows, seed, device),
          gradient(rows, n / rows, seed, device)};
}

Expression sum_of_two(const Options& options, Device& device) {
  const auto n = static_cast<std::int64_t>(options.sizes[kElements]);
  Expression e;
  e.name = "y + z   n=" + size(n) + " float32";
  e.inputs = {random(device, {n}, options.seed, 0), random(device, {n}, options.seed, 1)};
  e.work.bytes = 3.0 * sizeof(float) * static_cast<double>(n);
  e.work.operations = static_cast<double>(n);
  e.run = [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {in[0] + in[1]}; };
  const Sample sample = choose_sample(static_cast<size_t>(n), options.seed);
  e.check = [in = e.inputs, sample](const std::vector<Tensor>& results) {
    const Floats y = in[0].to_host<float>(), z = in[1].to_host<float>();
    const Floats got = results[0].to_host<float>();
    return check_at(got, positions_of(sample),
                    [&](size_t i) { return std::pair(number(y[i] + z[i]), 0.0); });
  };
  return e;
}

Recorded recorded(const Expression& expression) {
  Recorded made;
  made.graph = framework::capture([&] { made.results = expression.run(expression.inputs); });
  return made;
}

Comparison compare_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  std::vector<Comparison> parts;
  for (size_t k = 0; k < want.size(); ++k) {
    const Floats a = got[k].to_host<float>(), b = want[k].to_host<float>();
    const auto is_same = [&](size_t i) {
      return std::memcmp(&a[i], &b[i], sizeof(float)) == 0 ||
             (std::isnan(a[i]) && std::isnan(b[i]));
    };
    // A zero of the other sign, or a NaN in place of a number, is a whole number apart.
    const auto shown = [&](size_t i) {
      return std::isnan(a[i]) || a[i] == b[i] ? number(b[i]) + 1 : number(a[i]);
    };
    parts.push_back(compare(
        b.size(), [&](size_t i) { return is_same(i) ? 0 : shown(i); },
        [&](size_t i) { return is_same(i) ? 0 : number(b[i]); }, [](size_t) { return 0.0; }));
  }
  return together(parts);
}

}  // namespace fusion
