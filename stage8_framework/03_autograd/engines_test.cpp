// The versions of the way back: the same gradients on any graph, their memory, and mistakes that
// the program's checks must refuse.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/autograd.h"
#include "stage8_framework/03_autograd/problem.h"

using namespace framework;
using autograd::Case;
using autograd::Perceptron;
using autograd::Values;

namespace {

// A graph of `count` operations on matrices (3,3), each of results that are there already, and the
// gradients of the sum of its last results by three leaves. Integers, so that a sum in any order
// is the same.
std::vector<std::vector<float>> gradients_of_graph(std::uint64_t seed, int count,
                                                   autograd::Launch launch) {
  Device& on = device("reference");
  std::vector<Tensor> all;
  for (std::uint32_t i = 0; i < 3; ++i) {
    all.push_back(Tensor::from_host(on, testing::random_integers(9, i, 1), {3, 3}));
    all.back().set_requires_grad();
  }
  std::uint32_t drawn = 0;
  const auto draw = [&](size_t below) {
    return random_numbers::word(seed, 0, drawn++) % static_cast<std::uint64_t>(below);
  };
  for (int i = 0; i < count; ++i) {
    const Tensor a = all[draw(all.size())], b = all[draw(all.size())];
    switch (draw(6)) {
      case 0:
        all.push_back(a + b);
        break;
      case 1:
        all.push_back(a - b.transpose(0, 1));
        break;
      case 2:
        all.push_back(a * all[draw(3)]);
        break;
      case 3:
        all.push_back(a + b.slice(0, 1, 2));
        break;
      case 4:
        all.push_back(sum(a, {0}, true) - a);
        break;
      default:
        all.push_back(relu(a) + a);
    }
  }
  Tensor last = all[0];
  for (size_t i = all.size() - 3; i < all.size(); ++i) last = last + all[i];
  autograd::backward(last, full(on, {3, 3}, 1), false, launch);
  std::vector<std::vector<float>> grads;
  for (int i = 0; i < 3; ++i)
    grads.push_back(all[static_cast<size_t>(i)].grad().is_defined()
                        ? all[static_cast<size_t>(i)].grad().to_host<float>()
                        : std::vector<float>());
  return grads;
}

}  // namespace

TEST_CASE("all versions have the same gradients on any graph") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const auto want = gradients_of_graph(seed, 12, autograd::backward_recursive);
    const auto iterative = gradients_of_graph(seed, 12, autograd::backward_iterative);
    REQUIRE(iterative == want);  // a -0 of one path may be a 0 of the sum of two
    REQUIRE(
        testing::same_bits(gradients_of_graph(seed, 12, autograd::backward_counted), iterative));
  }
}

TEST_CASE("every version uses the graph up, unless it is retained") {
  Device& on = device("reference");
  Tensor x = full(on, {}, 3);
  x.set_requires_grad();
  const Tensor one = full(on, {}, 1);
  for (const auto& version : autograd::kVersions) {
    INFO(version.name);
    const Tensor y = exp(x), z = square(y);
    for (const bool retains : {true, false}) autograd::backward(z, one, retains, version.launch);
    for (const Tensor& used : {z, y})
      REQUIRE(contains_text(testing::what_of<std::runtime_error>(
                                [&] { autograd::backward(used, one, false, version.launch); }),
                            "the graph was used up"));
  }
}

TEST_CASE("a chain that is longer than any stack") {
  Device& on = device("reference");
  Tensor x = full(on, {}, 3);
  x.set_requires_grad();
  for (const auto launch : {autograd::backward_iterative, autograd::backward_counted}) {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = neg(y);
    x.set_grad({});
    autograd::backward(y, full(on, {}, 5), false, launch);
    REQUIRE(x.grad().to_host<float>() == std::vector<float>{5});
  }
}

TEST_CASE("all versions compute the perceptron's gradients") {
  for (const Case c : {Case{1, 1, 1}, Case{9, 6, 7}, Case{2, 33, 5}, Case{70, 3, 2}})
    for (const bool with_integers : {true, false}) {
      const Values values(c, with_integers, 3);
      const Perceptron p = values.on(device("own"));
      for (const auto& version : testing::chosen(autograd::kVersions)) {
        INFO(version.name << " " << c.name());
        p.forget_gradients();
        autograd::backward(p.forward(), values.seed_on(device("own")), false, version.launch);
        const Comparison result = values.compare(p.gradients());
        REQUIRE_OK(result);
        if (with_integers) REQUIRE(result.exact());
      }
    }
}

TEST_CASE("counted frees what iterative keeps") {
  const Values values({48, 48, 24}, true, 1);
  PluginDevice& own = plugin_device(device("own"));
  const Perceptron p = values.on(own);
  const Tensor seed = values.seed_on(own);
  const auto peak = [&](autograd::Launch launch) {
    p.forget_gradients();
    const Tensor y = p.forward();
    own.pool().restart_peaks();
    autograd::backward(y, seed, false, launch);
    return static_cast<double>(own.pool().statistics().peak_live);
  };
  const size_t before = own.pool().statistics().live;
  REQUIRE(peak(autograd::backward_counted) <= 0.7 * peak(autograd::backward_iterative));
  p.forget_gradients();
  REQUIRE(own.pool().statistics().live == before);  // nothing of the graphs is left
}

TEST_CASE("the program's check refuses mistakes at every printed size", "[harness][long]") {
  for (const auto usual : {&Size::quick, &Size::cpu, &Size::gpu}) {
    std::vector<size_t> s;
    for (const Size& size : autograd::sizes()) s.push_back(size.*usual);
    const Case c{s[0], s[1], s[2]};
    const size_t of_x = c.batch * c.width;
    for (const bool with_integers : {true, false}) {
      INFO(c.name() << (with_integers ? " of integers" : ""));
      const Values values(c, with_integers, 1);
      const auto rms = [&](size_t begin, size_t end) {
        double squares = 0;
        for (size_t i = begin; i < end; ++i) squares += values.want[i] * values.want[i];
        return std::sqrt(squares / static_cast<double>(end - begin));
      };
      // A sum of n random terms is about sqrt(n) of one.
      const double x_term = rms(0, of_x) / std::sqrt(static_cast<double>(c.width));
      std::vector<double> layer_term;
      const size_t of_layer = c.width * (c.width + 1);
      for (size_t begin = of_x; begin < values.want.size(); begin += of_layer)
        layer_term.push_back(rms(begin, begin + of_layer) /
                             std::sqrt(static_cast<double>(c.batch)));
      testing::require_refusals(
          values.want, [&](size_t i) { return values.error[i]; }, with_integers ? 0 : c.width,
          [&](size_t i) {
            if (with_integers) return 1.0;
            return i < of_x ? x_term : layer_term[(i - of_x) / of_layer];
          });
    }
  }
}

TEST_CASE("the program's check refuses another network", "[harness]") {
  const Values values({9, 6, 7}, false, 1);
  const auto is_refused = [&](Values other) {
    const Perceptron p = other.on(device("own"));
    p.forward().backward(other.seed_on(device("own")));
    return !values.compare(p.gradients()).ok;
  };
  for (const size_t layer : {0, 6}) {
    Values other = values;
    std::fill(other.bias[layer].begin(), other.bias[layer].end(), 0.0f);
    REQUIRE(is_refused(other));
    other = values;
    std::swap(other.w[layer][0], other.w[layer][1]);
    REQUIRE(is_refused(other));
  }
  Values other = values;
  std::swap(other.seed.front(), other.seed.back());
  REQUIRE(is_refused(other));
}
