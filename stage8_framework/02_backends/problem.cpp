#include "stage8_framework/02_backends/problem.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "common/sizes.h"
#include "common/timer.h"
#include "stage2_matrix/03_gemm/reference.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage6_cnn/01_conv2d/problem.h"
#include "stage6_cnn/01_conv2d/reference.h"

namespace backends {

using framework::Shape;

// On a GPU as many images as the reference, which computes on the host, takes a second or two for.
std::vector<Size> sizes() { return {{"N", 2, 1, 2}, {"C", 64, 32, 5}, {"H", 56, 28, 7}}; }

std::vector<Case> printed(const std::vector<size_t>& sizes) {
  const size_t N = sizes[0], C = sizes[1], H = sizes[2];
  static_cast<void>(conv2d::problem_of({N, C, H, H, C, 3, 3, 1, 1}));  // throws where it can't be
  ::sizes::require_product({N, C, H, H});
  std::vector<Case> cases;
  for (const Which which : {Which::matmul, Which::softmax, Which::conv2d})
    cases.push_back({which, N, C, H});
  return cases;
}

conv2d::Problem Case::convolution() const { return {N, C, H, H, C, 3, 3, 1, 1, 1, 1}; }

const char* Case::op() const {
  return which == Which::matmul ? "matmul" : which == Which::softmax ? "softmax" : "conv2d";
}

std::string Case::name() const {
  if (which == Which::conv2d) return "X * W   " + conv2d::name(convolution());
  if (which == Which::softmax)
    return "softmax   " + size_text(rows()) + "x" + size_text(C) + " float32";
  return "matmul NN   M=" + size_text(rows()) + " N=" + size_text(C) + " K=" + size_text(9 * C) +
         " float32";
}

std::vector<Shape> Case::inputs() const {
  const auto n = [](size_t size) { return static_cast<std::int64_t>(size); };
  switch (which) {
    case Which::matmul:
      return {{n(rows()), n(9 * C)}, {n(9 * C), n(C)}};
    case Which::softmax:
      return {{n(rows()), n(C)}};
    default:
      return {{n(N), n(C), n(H), n(H)}, {n(C), n(C), 3, 3}};
  }
}

Shape Case::output() const {
  const std::vector<Shape> shapes = inputs();
  return which == Which::matmul ? Shape{shapes[0][0], shapes[1][1]} : shapes[0];
}

std::vector<double> Case::attributes() const {
  return which == Which::conv2d ? std::vector<double>{1, 1, 1, 1} : std::vector<double>{};
}

Work Case::work() const {
  double elements = static_cast<double>(framework::Layout::contiguous(output()).elements());
  const double products = 9 * static_cast<double>(C) * elements;
  for (const Shape& shape : inputs())
    elements += static_cast<double>(framework::Layout::contiguous(shape).elements());
  if (which == Which::softmax) return {sizeof(float) * elements, 0, Work::Limit::copy};
  return {sizeof(float) * elements,
          2 * (which == Which::conv2d ? conv2d::multiplications(convolution()) : products),
          Work::Limit::fma};
}

double most_bytes(const std::vector<Case>& cases) {
  double most = 0;
  for (const Case& c : cases) most = std::max(most, c.work().bytes);
  return most;
}

namespace {

void expect_product(const Case& c, bool with_integers, std::uint64_t seed, Values& values) {
  constexpr size_t kRows = 64;
  const size_t M = c.rows(), N = c.C, K = 9 * c.C;
  gemm::Product product;
  product.M = M, product.N = N, product.K = K;
  product.lda = K, product.ldb = product.ldc = N;
  values.sample = choose_rows(M, N, kRows, seed);
  const gemm::Reference reference =
      gemm_cpu(product, values.inputs[0], values.inputs[1], {}, values.sample.rows);
  values.want = reference.c;
  for (size_t i = 0; i < values.want.size(); ++i)
    values.error.push_back(with_integers ? 0 : bound_of_mean_zero(product, reference, i));
}

// Of the sums that a version may make one after the other has the most roundings.
void expect_softmax(const Case& c, bool with_integers, std::uint64_t seed, Values& values) {
  constexpr size_t kRows = 4096;
  std::vector<float>& x = values.inputs[0];
  for (float& value : x) value *= with_integers ? softmax::kFarApart : 8;
  values.sample = choose_rows(c.rows(), c.C, kRows, seed);
  std::vector<float> rows;
  for (const size_t row : values.sample.rows)
    rows.insert(rows.end(), x.data() + row * c.C, x.data() + (row + 1) * c.C);
  values.want = softmax::softmax_cpu(rows, c.C);
  values.error = softmax::bounds(rows, values.want, c.C, softmax::roundings_thread_per_row(c.C));
  if (!with_integers) return;
  values.error.assign(values.error.size(), 0);
  for (double& value : values.want) value = static_cast<double>(static_cast<float>(value));
}

void expect_convolution(const Case& c, bool with_integers, std::uint64_t seed, Values& values) {
  const conv2d::Problem p = c.convolution();
  const float scale =
      with_integers ? conv2d::kExactFilter : 1 / std::sqrt(static_cast<float>(window_of(p)));
  for (float& weight : values.inputs[1]) weight *= scale;
  values.sample = choose_planes(p, p.N * p.K, p.H * p.W, seed);
  const auto terms = conv2d::Terms::mean_zero;
  conv2d::Values planes =
      sums_cpu(values.inputs[0], values.inputs[1], {}, p, values.sample.rows, terms);
  add_winograd_error_of_y(planes, values.inputs[0], values.inputs[1], p, values.sample.rows, terms);
  values.want = planes.value, values.error = planes.error;
  if (with_integers) values.error.assign(values.error.size(), 0);
}

}  // namespace

Values values_of(const Case& c, bool with_integers, std::uint64_t seed) {
  Values values;
  const auto number = with_integers ? random_numbers::integer : random_numbers::uniform;
  for (const Shape& shape : c.inputs()) {
    std::vector<float> input(static_cast<size_t>(framework::Layout::contiguous(shape).elements()));
    const auto stream = static_cast<std::uint32_t>(values.inputs.size());
    for (size_t i = 0; i < input.size(); ++i) input[i] = number(seed, stream, i);
    values.inputs.push_back(std::move(input));
  }
  HostTimer timer;
  switch (c.which) {
    case Which::matmul:
      expect_product(c, with_integers, seed, values);
      break;
    case Which::softmax:
      expect_softmax(c, with_integers, seed, values);
      break;
    default:
      expect_convolution(c, with_integers, seed, values);
  }
  values.reference_ms = timer.ms();
  return values;
}

Comparison Values::compare(const std::vector<float>& output) const {
  const size_t cols = sample.cols;
  const auto place = [&](size_t i) { return sample.rows[i / cols] * cols + i % cols; };
  Comparison result = ::compare(
      want.size(), [&](size_t i) { return output[place(i)]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return error[i]; });
  if (result.compared > 0) result.index = place(result.index);
  return result;
}

}  // namespace backends
