// The checker finds every gradient of the course right, and each planted mistake where it is.
#include "stage5_training/03_gradient_check/gradient_check.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

// Cases that only this test has: gradient_check_test.hip.
namespace gradient_check_test {
using gradient_check::Case;
using gradient_check::Sizes;
Case slope_of_value(const Sizes& sizes, std::uint64_t seed);
Case sums_of_grad_y(const Sizes& sizes, std::uint64_t seed);
Case other_gelu(const Sizes& sizes, std::uint64_t seed);
Case all_rows_counted(const Sizes& sizes, std::uint64_t seed, bool ignore);
Case without_softmax(const Sizes& sizes, std::uint64_t seed);
}  // namespace gradient_check_test

namespace {

using namespace gradient_check;

constexpr Sizes kSizes[] = {{1, 1, 1}, {1, 7, 5}, {6, 1, 2}, {5, 7, 6}, {9, 16, 11}, {33, 3, 17}};

std::string words_of(const Case& c, const Finding& found) {
  return name_of(c.arguments[found.argument], found.index) + " = " +
         std::to_string(found.analytic) + ", numerically " + std::to_string(found.numeric) +
         ", relative error " + std::to_string(found.error) + (found.kink ? ", at a kink" : "");
}

// The case with a mistake: what its kernels have computed is changed before it is looked at.
template <class Change>
Case spoiled(const Case& c, size_t argument, Change change) {
  Case wrong = c;
  wrong.backward = [=](const auto& gradients, const auto& values) {
    c.backward(gradients, values);
    std::vector<float> gradient(c.arguments[argument].values.size());
    const size_t bytes = gradient.size() * sizeof(float);
    HIP_CHECK(hipMemcpy(gradient.data(), gradients[argument], bytes, hipMemcpyDeviceToHost));
    change(gradient);
    HIP_CHECK(hipMemcpy(gradients[argument], gradient.data(), bytes, hipMemcpyHostToDevice));
  };
  return wrong;
}

std::string worst_argument(const Case& c, const Finding& found) {
  return c.arguments[found.argument].name;
}

}  // namespace

TEST_CASE("every gradient of the course is the slope of its loss") {
  for (const Sizes& sizes : kSizes)
    for (const std::uint64_t seed : {1, 2})
      for (const auto& version : testing::chosen(kVersions)) {
        const Case c = version.launch(sizes, seed);
        const Finding found = check(c);
        CAPTURE(version.name, sizes.batch, sizes.in, sizes.out, seed, words_of(c, found));
        REQUIRE(found.ok);
        REQUIRE(found.failed == 0);
        REQUIRE(found.error < kTolerance);
        size_t elements = 0;
        for (const Argument& argument : c.arguments) elements += argument.values.size();
        REQUIRE(found.checked == elements);
      }
}

// exp is its own third derivative: the quotient is off by h^2 / 6 exp and by a few u exp / h. With
// the best step that is far below the tolerance, and larger and smaller ones are worse.
TEST_CASE("the step is the best one, give or take a factor") {
  const auto loss = [](const std::vector<std::vector<double>>& v) { return std::exp(v[0][0]); };
  std::vector<std::vector<double>> values = {{0.3}};
  const double slope = std::exp(0.3);
  const Slopes quotients = difference_quotients(loss, values, 0, 0, slope);
  REQUIRE(values[0][0] == 0.3);
  const double expected = kStep * kStep / 6 + 4 * kDoubleRoundoff / kStep;
  REQUIRE(std::fabs(quotients.central - slope) <= slope * expected);
  REQUIRE(std::fabs(quotients.above - quotients.below) <= 2 * slope * kStep);
  REQUIRE(kStep / std::cbrt(3 * kDoubleRoundoff) > 0.5);
  REQUIRE(kStep / std::cbrt(3 * kDoubleRoundoff) < 2);
}

// A quotient of a polynomial of degree two is off by nothing but the rounding of the loss, thrice
// in each of two losses: 3 u L / h. That is below 4 u / kStep of the slope, if the step grows with
// the value and does not vanish with it.
TEST_CASE("the step grows with the value, and is no smaller around 0") {
  const auto loss = [](const std::vector<std::vector<double>>& v) {
    return 1 + v[0][0] + v[0][0] * v[0][0];
  };
  for (const double value : {0.0, 1e-3, 0.7, -12345.678, 1e4 + 1.0 / 3}) {
    std::vector<std::vector<double>> values = {{value}};
    const double slope = 1 + 2 * value;
    const Slopes quotients = difference_quotients(loss, values, 0, 0, loss(values));
    CAPTURE(value, quotients.central, slope);
    REQUIRE(values[0][0] == value);
    REQUIRE(std::fabs(quotients.central - slope) <= std::fabs(slope) * 4 * kDoubleRoundoff / kStep);
  }
}

TEST_CASE("relative errors: of equal numbers, of NaN, below the floor") {
  REQUIRE(relative_error(0, 0, 0) == 0);
  REQUIRE(relative_error(2, 1, 0.1) == 0.5);
  REQUIRE(relative_error(-1, 1, 0.1) == 2);
  REQUIRE(std::fabs(relative_error(2e-6, 1e-6, 1) - 1e-6) <= 1e-21);
  REQUIRE(std::isinf(relative_error(std::numeric_limits<double>::quiet_NaN(), 1, 1)));
  REQUIRE(std::isinf(relative_error(1, std::numeric_limits<double>::quiet_NaN(), 1)));
  REQUIRE(!(relative_error(std::numeric_limits<double>::infinity(), 1, 1) < kTolerance));
}

TEST_CASE("an element's name has its coordinates") {
  REQUIRE(name_of({"w", {3, 4}, {}}, 7) == "w[1,3]");
  REQUIRE(name_of({"bias", {5}, {}}, 4) == "bias[4]");
  REQUIRE(name_of({"k", {2, 3, 4}, {}}, 23) == "k[1,2,3]");
}

// The difference quotients have no bound but the tolerance's: between NumPy's formulas, in double,
// and these quotients lies what the step leaves.
TEST_CASE("a network's loss, quotients and gradients agree with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("gradient_check_" + name + ".npy"));
  };
  std::vector<Argument> arguments;
  for (const char* name : {"x", "w1", "b1", "w2", "b2"}) {
    const NpyArray from = array(name);
    arguments.push_back({name, from.shape, {from.values.begin(), from.values.end()}});
  }
  const std::vector<double> labels = array("labels").values;
  const Case c = network<Tanh>(arguments, std::vector<int>(labels.begin(), labels.end()));
  std::vector<std::vector<double>> values = wide(c.arguments);
  const double loss = c.loss(values);
  REQUIRE(std::fabs(loss - array("loss").values.at(0)) <= 1e-13 * loss);
  for (size_t a = 0; a < arguments.size(); ++a) {
    const std::vector<double> want = array("grad_" + arguments[a].name).values;
    const double floor = root_mean_square(want);
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(name_of(arguments[a], i));
      const double slope = difference_quotients(c.loss, values, a, i, loss).central;
      REQUIRE(relative_error(slope, want[i], floor) <= 1e-8);
    }
  }
  REQUIRE(check(c).ok);
}

TEST_CASE("integers through a linear layer have gradients that equal their quotients") {
  for (const Sizes& sizes : kSizes) {
    const Case right = dense_layer_of_integers(sizes, 3);
    CAPTURE(sizes.batch, sizes.in, sizes.out);
    REQUIRE(check_exactly(right).ok);
    REQUIRE(check_exactly(right).error == 0);
    for (size_t a = 0; a < right.arguments.size(); ++a) {
      const Case wrong = spoiled(right, a, [](std::vector<float>& values) {
        values.back() = std::nextafter(values.back(), 1e9f);  // by a single rounding
      });
      REQUIRE(check(wrong).ok);
      const Finding found = check_exactly(wrong);
      CAPTURE(words_of(wrong, found));
      REQUIRE(!found.ok);
      REQUIRE(found.failed == 1);
      REQUIRE(found.index == right.arguments[a].values.size() - 1);
    }
  }
}

// ---- What the checker must catch --------------------------------------------------------------

TEST_CASE("one wrong element is found, and named") {
  for (const auto& version : testing::chosen(kVersions)) {
    const Case right = version.launch({5, 7, 6}, 1);
    for (size_t a = 0; a < right.arguments.size(); ++a) {
      const size_t at = right.arguments[a].values.size() / 2;
      const std::vector<float> gradient = device_gradients(right)[a];
      double largest = 0;
      for (const float element : gradient)
        largest = std::fmax(largest, std::fabs(static_cast<double>(element)));
      const Case wrong = spoiled(right, a, [=](std::vector<float>& values) {
        values[at] += static_cast<float>(largest) / 100;
      });
      const Finding found = check(wrong);
      CAPTURE(version.name, words_of(wrong, found));
      REQUIRE(!found.ok);
      REQUIRE(found.failed == 1);
      REQUIRE(found.argument == a);
      REQUIRE(found.index == at);
      REQUIRE(!found.kink);
    }
  }
}

TEST_CASE("an element that is never written, a lost factor and a wrong sign are found") {
  const Case right = dense_layer({5, 7, 6}, 1);
  const Finding unwritten = check(spoiled(right, 1, [](std::vector<float>& gradient) {
    gradient[11] = std::numeric_limits<float>::quiet_NaN();
  }));
  REQUIRE((!unwritten.ok && unwritten.argument == 1 && unwritten.index == 11));
  REQUIRE(std::isinf(unwritten.error));
  for (const float factor : {2.0f, 0.5f, -1.0f, 0.0f, 1.001f})
    for (size_t a = 0; a < right.arguments.size(); ++a) {
      const Finding found = check(spoiled(right, a, [=](std::vector<float>& gradient) {
        for (float& element : gradient) element *= factor;
      }));
      CAPTURE(factor, a);
      REQUIRE(!found.ok);
      REQUIRE(found.argument == a);
      REQUIRE(found.failed >= right.arguments[a].values.size() / 2);
    }
}

// A layer of as many samples as inputs and outputs: the sizes hide what is swapped.
TEST_CASE("a transposed weight and a bias summed over the wrong axis are found") {
  const size_t n = 6;
  const Case right = dense_layer({n, n, n}, 1);
  REQUIRE(check(right).ok);
  Case wrong = right;
  const std::vector<float> grad_y = uniform_values(n * n, 1, 3);
  // grad_x = grad_y w^T, grad_w = x^T grad_y, grad_bias = sums of grad_y's rows over the units.
  const auto spoil = [&](size_t argument) {
    wrong.backward = [=](const std::vector<float*>& gradients,
                         const std::vector<const float*>& values) {
      right.backward(gradients, values);
      const gpu::DeviceBuffer<float> d_grad_y(grad_y);
      const dense::Layer layer{n, n, values[1], values[2]};
      if (argument == 0) {
        gemm::Product p = dense_backward::product_of_x(gradients[0], d_grad_y.data(), n, layer, 0);
        p.layout = gemm::Layout::NT;
        gemm::best(p);
      } else if (argument == 1) {
        gemm::best(
            dense_backward::product_of_w(gradients[1], values[0], d_grad_y.data(), n, layer, 0));
      } else {
        const gpu::DeviceBuffer<float> ones(std::vector<float>(n, 1)), partials(gemv::kMaxPartials);
        gemv::best(false, {n, n, 1, d_grad_y.data(), n, ones.data(), 0, gradients[2]},
                   {const_cast<float*>(partials.data())});
      }
      HIP_CHECK(hipDeviceSynchronize());
    };
    return check(wrong);
  };
  for (const size_t argument : {0, 1, 2}) {
    const Finding found = spoil(argument);
    CAPTURE(right.arguments[argument].name, words_of(wrong, found));
    REQUIRE(!found.ok);
    REQUIRE(worst_argument(wrong, found) == right.arguments[argument].name);
  }
}

TEST_CASE("formulas that look right are found wrong") {
  const Sizes sizes{7, 5, 6};
  using namespace gradient_check_test;
  REQUIRE(!check(slope_of_value(sizes, 1)).ok);
  const Case sums = sums_of_grad_y(sizes, 1);
  REQUIRE((!check(sums).ok && worst_argument(sums, check(sums)) == "bias"));
  REQUIRE(!check(other_gelu(sizes, 1)).ok);  // the two differ by less than 1e-3
  REQUIRE(!check(all_rows_counted(sizes, 1, true)).ok);
  REQUIRE(check(all_rows_counted(sizes, 1, false)).ok);
  REQUIRE(!check(without_softmax(sizes, 1)).ok);
}

// The first layer's bias does not show what the second layer has done wrong: the finding names the
// argument that is wrong, and not those that its kernels share.
TEST_CASE("in a network the wrong gradient is the one that is named") {
  const Case right = two_layers<Tanh>({5, 6, 4}, 1);
  for (size_t a = 0; a < right.arguments.size(); ++a) {
    const Case wrong = spoiled(right, a, [](std::vector<float>& gradient) {
      for (float& element : gradient) element *= 2;
    });
    const Finding found = check(wrong);
    CAPTURE(words_of(wrong, found));
    REQUIRE((!found.ok && found.argument == a));
  }
}

// ---- Kinks ------------------------------------------------------------------------------------

TEST_CASE("a case at a kink is noticed, and said to be at one") {
  Case c = activation_layer<Relu>({5, 7, 6}, 1);
  c.arguments[0].values[13] = -c.arguments[1].values[13 % 6];  // x + bias is 0 there
  const Finding found = check(c);
  CAPTURE(words_of(c, found));
  REQUIRE((!found.ok && found.kink));
  // The bias moves the same sum.
  REQUIRE((worst_argument(c, found) == "bias" || found.index == 13));

  // The larger of two equal numbers: (1, 0) is no gradient of it, nor is any other.
  Case tie;
  tie.arguments = {{"x", {2}, {0.5f, 0.5f}}};
  tie.loss = [](const std::vector<std::vector<double>>& v) { return std::fmax(v[0][0], v[0][1]); };
  tie.backward = [](const std::vector<float*>& gradients, const std::vector<const float*>&) {
    const float gradient[] = {1, 0};
    HIP_CHECK(hipMemcpy(gradients[0], gradient, sizeof gradient, hipMemcpyHostToDevice));
  };
  const Finding of_tie = check(tie);
  REQUIRE((!of_tie.ok && of_tie.kink && of_tie.failed == 2));
  tie.arguments[0].values = {0.5f, 0.25f};
  REQUIRE(check(tie).ok);
}

TEST_CASE("cases with kinks stay away from them") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const Case layer = activation_layer<Relu>({33, 1, 40}, seed);
    for (size_t i = 0; i < layer.arguments[0].values.size(); ++i)
      REQUIRE(std::fabs(layer.arguments[0].values[i] + layer.arguments[1].values[i % 40]) >=
              0.99f * kAway);
    // So many sums that of the numbers drawn first some won't do.
    const Case c = two_layers<Relu>({300, 30, 3}, seed);
    const std::vector<std::vector<double>> v = wide(c.arguments);
    for (const double sum : affine(v[0], v[1], v[2], 300)) REQUIRE(std::fabs(sum) > 10 * kStep);
  }
}
