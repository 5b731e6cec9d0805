// Each layer against its formula in double on the host. Inputs are of order 1 and sums short: a
// result is off by some roundings, and a term that is missing is thousands of them.
#include "stage8_framework/04_modules/layers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "stage8_framework/04_modules/modules_for_tests.h"

using namespace modules_test;

namespace {

constexpr double kBound = 64 * 0x1p-24;  // of results of order 1

void require_near(const Tensor& got, const Shape& shape, const Doubles& want,
                  double bound = kBound) {
  REQUIRE(got.shape() == shape);
  const Floats values = host(got.detach().contiguous());
  REQUIRE(values.size() == want.size());
  REQUIRE_OK(compare(
      want.size(), [&](size_t i) { return values[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return bound * std::fmax(1, std::fabs(want[i])); }));
}

// Numbers on the host: a(i, j, ...) is an element.
class Array {
 public:
  explicit Array(const Tensor& t) : shape_(t.shape()), values_(host_doubles(t.contiguous())) {}
  template <class... Indices>
  double operator()(Indices... indices) const {
    std::int64_t at = 0;
    size_t axis = 0;
    ((at = at * shape_[axis++] + static_cast<std::int64_t>(indices)), ...);
    return values_[static_cast<size_t>(at)];
  }

 private:
  Shape shape_;
  Doubles values_;
};

using Int = std::int64_t;

// Other parameters than the first ones, which are 1 and 0 in some layers.
void randomize(Module& layer) {
  std::uint32_t stream = 40;
  for (const NamedTensor& named : layer.parameters())
    named.tensor->detach().copy_from(random_tensor(named.tensor->shape(), stream++));
}

Doubles normalized(const Doubles& x, double eps) {
  const double n = static_cast<double>(x.size());
  double mean = 0, var = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) var += (v - mean) * (v - mean) / n;
  Doubles y;
  for (const double v : x) y.push_back((v - mean) / std::sqrt(var + eps));
  return y;
}

}  // namespace

TEST_CASE("Linear is x w^T + bias") {
  for (const bool has_bias : {true, false}) {
    Linear layer(own(), 5, 3, has_bias, 1);
    const Tensor x = random_tensor({2, 4, 5}, 1);
    const Array X(x), W(layer.weight);
    Doubles want;
    for (Int b = 0; b < 2; ++b)
      for (Int t = 0; t < 4; ++t)
        for (Int o = 0; o < 3; ++o) {
          double sum = has_bias ? Array(layer.bias)(o) : 0;
          for (Int i = 0; i < 5; ++i) sum += X(b, t, i) * W(o, i);
          want.push_back(sum);
        }
    require_near(layer(x), {2, 4, 3}, want);
    REQUIRE(layer.parameters().size() == (has_bias ? 2 : 1));
  }
}

TEST_CASE("Conv2d is a sum over windows, with stride and padding") {
  for (const auto& [stride, padding] : {std::pair{1, 0}, std::pair{2, 1}, std::pair{3, 2}})
    for (const bool has_bias : {true, false}) {
      INFO("stride " << stride << ", padding " << padding);
      Conv2d layer(own(), 2, 3, 3, stride, padding, has_bias, 1);
      const Tensor x = random_tensor({2, 2, 7, 6}, 1);
      const Array X(x), W(layer.weight);
      const Int P = (7 + 2 * padding - 3) / stride + 1, Q = (6 + 2 * padding - 3) / stride + 1;
      Doubles want;
      for (Int n = 0; n < 2; ++n)
        for (Int o = 0; o < 3; ++o)
          for (Int p = 0; p < P; ++p)
            for (Int q = 0; q < Q; ++q) {
              double sum = has_bias ? Array(layer.bias)(o) : 0;
              for (Int c = 0; c < 2; ++c)
                for (Int r = 0; r < 3; ++r)
                  for (Int s = 0; s < 3; ++s) {
                    const Int y = p * stride + r - padding, z = q * stride + s - padding;
                    if (y >= 0 && y < 7 && z >= 0 && z < 6) sum += X(n, c, y, z) * W(o, c, r, s);
                  }
              want.push_back(sum);
            }
      require_near(layer(x), {2, 3, P, Q}, want);
    }
}

TEST_CASE("BatchNorm2d in training, its running statistics, and in eval") {
  constexpr Int N = 3, C = 2, S = 4;
  constexpr double eps = 1e-2, momentum = 0.3, n = N * S * S;
  BatchNorm2d layer(own(), C, eps, momentum);
  randomize(layer);
  const Array weight(layer.weight), bias(layer.bias);
  Doubles means(C, 0), vars(C, 1);
  const auto of_channel = [&](const Array& X, Int c) {
    Doubles values;
    for (Int i = 0; i < N * S * S; ++i) values.push_back(X(i / (S * S), c, i / S % S, i % S));
    return values;
  };
  for (std::uint32_t batch = 0; batch < 4; ++batch) {
    INFO("batch " << batch);
    const Tensor x = random_tensor({N, C, S, S}, batch) + full(own(), {}, batch);
    const Array X(x);
    Doubles want(static_cast<size_t>(N * C * S * S));
    for (Int c = 0; c < C; ++c) {
      const Doubles values = of_channel(X, c), normal = normalized(values, eps);
      double mean = 0, var = 0;
      for (const double v : values) mean += v / n;
      for (const double v : values) var += (v - mean) * (v - mean) / (n - 1);  // unbiased
      const auto channel = static_cast<size_t>(c);
      means[channel] += momentum * (mean - means[channel]);
      vars[channel] += momentum * (var - vars[channel]);
      for (Int i = 0; i < N * S * S; ++i)
        want[static_cast<size_t>((i / (S * S) * C + c) * S * S + i % (S * S))] =
            normal[static_cast<size_t>(i)] * weight(c) + bias(c);
    }
    require_near(layer(x), {N, C, S, S}, want);
    require_near(layer.running_mean, {C}, means);
    require_near(layer.running_var, {C}, vars);
    REQUIRE(layer.num_batches_tracked.to_host<Int>()[0] == batch + 1);
  }
  layer.eval();
  const Tensor x = random_tensor({1, C, S, S}, 9);
  const Array X(x);
  Doubles want;
  for (Int c = 0; c < C; ++c)
    for (Int i = 0; i < S * S; ++i)
      want.push_back((X(0, c, i / S, i % S) - means[static_cast<size_t>(c)]) /
                         std::sqrt(vars[static_cast<size_t>(c)] + eps) * weight(c) +
                     bias(c));
  require_near(layer(x), {1, C, S, S}, want);
  require_near(layer.running_mean, {C}, means);  // nothing moves
  REQUIRE(layer.num_batches_tracked.to_host<Int>()[0] == 4);
  REQUIRE((!layer.running_mean.requires_grad() && !layer.running_var.requires_grad()));
}

TEST_CASE("BatchNorm2d of a single number has no unbiased variance") {
  BatchNorm2d layer(own(), 1);
  layer(full(own(), {1, 1, 1, 1}, 5));
  require_near(layer.running_mean, {1}, {0.5});
  require_near(layer.running_var, {1}, {0.9});
}

TEST_CASE("BatchNorm2d counts on from what was loaded, wherever it lies") {
  for (const int before : {0, 1, 2, 3})
    for (const bool moves : {false, true}) {
      INFO(before << " batches before, moved " << moves);
      BatchNorm2d layer(own(), 2), other(own(), 2);
      for (int i = 0; i < before; ++i) layer(random_tensor({2, 2, 2, 2}, 1));
      fill(other.num_batches_tracked, 41);
      if (moves) layer.to(reference());
      layer.load_state_dict(other.state_dict());
      layer(random_tensor({2, 2, 2, 2}, 1, layer.weight.device()));
      layer(random_tensor({2, 2, 2, 2}, 1, layer.weight.device()));
      REQUIRE(layer.num_batches_tracked.to_host<Int>()[0] == 43);
    }
}

TEST_CASE("LayerNorm normalizes each row") {
  LayerNorm layer(own(), 6, 1e-2);
  randomize(layer);
  const Tensor x = random_tensor({2, 3, 6}, 1);
  const Array X(x), weight(layer.weight), bias(layer.bias);
  Doubles want;
  for (Int row = 0; row < 6; ++row) {
    Doubles values;
    for (Int c = 0; c < 6; ++c) values.push_back(X(row / 3, row % 3, c));
    const Doubles normal = normalized(values, 1e-2);
    for (Int c = 0; c < 6; ++c)
      want.push_back(normal[static_cast<size_t>(c)] * weight(c) + bias(c));
  }
  require_near(layer(x), {2, 3, 6}, want);
}

TEST_CASE("Embedding fetches rows") {
  Embedding layer(own(), 7, 3, 1);
  const Array weight(layer.weight);
  Doubles want;
  for (const Int id : {6, 0, 3, 3})
    for (Int c = 0; c < 3; ++c) want.push_back(weight(id, c));
  require_near(layer(ids({6, 0, 3, 3}, {2, 2})), {2, 2, 3}, want, 0);
}

// ---- Attention ----------------------------------------------------------------------------------

namespace {

// softmax(q k^T / sqrt(D)) v of each head, of qkv (B, T, 3 C).
Doubles attention_of(const Array& qkv, Int B, Int T, Int C, Int heads, bool is_causal) {
  const Int D = C / heads;
  Doubles out;
  for (Int b = 0; b < B; ++b)
    for (Int t = 0; t < T; ++t)
      for (Int c = 0; c < C; ++c) {
        const Int head = c / D * D;
        double sum = 0, value = 0;
        for (Int s = 0; s < (is_causal ? t + 1 : T); ++s) {
          double score = 0;
          for (Int d = head; d < head + D; ++d) score += qkv(b, t, d) * qkv(b, s, C + d);
          const double p = std::exp(score / std::sqrt(static_cast<double>(D)));
          sum += p, value += p * qkv(b, s, 2 * C + c);
        }
        out.push_back(value / sum);
      }
  return out;
}

}  // namespace

TEST_CASE("self_attention and MultiHeadAttention are their formulas, causal and not") {
  constexpr Int B = 2, T = 5, C = 6, kHeads = 3;
  for (const bool is_causal : {false, true}) {
    INFO("causal " << is_causal);
    const Tensor qkv = random_tensor({B, T, 3 * C}, 1) * full(own(), {}, 2);
    const Doubles want = attention_of(Array(qkv), B, T, C, kHeads, is_causal);
    require_near(self_attention(qkv, kHeads, is_causal), {B, T, C}, want);

    MultiHeadAttention layer(own(), C, kHeads, is_causal, 1);
    randomize(layer);
    const Tensor x = random_tensor({B, T, C}, 2);
    const Doubles inner = attention_of(Array(linear(x, layer.in_proj_weight, layer.in_proj_bias)),
                                       B, T, C, kHeads, is_causal);
    const Array W(layer.out_proj.weight), bias(layer.out_proj.bias);
    Doubles out;
    for (Int row = 0; row < B * T; ++row)
      for (Int o = 0; o < C; ++o) {
        double sum = bias(o);
        for (Int c = 0; c < C; ++c) sum += W(o, c) * inner[static_cast<size_t>(row * C + c)];
        out.push_back(sum);
      }
    require_near(layer(x), {B, T, C}, out);
  }
}

TEST_CASE(
    "under an Autocast self_attention casts its rows at once, and a linear layer casts none") {
  const Tensor qkv = random_tensor({2, 5, 24}, 1);
  const Tensor in_f32 = self_attention(qkv, 2, true);
  const framework::Autocast guard;
  const Tensor got = self_attention(qkv, 2, true);
  const Tensor factor = self_attention_for_linear(qkv, 2, true);
  REQUIRE(got.dtype() == Dtype::f32);
  REQUIRE(host(factor.to(Dtype::f32)) == host(got));
  if (factor.dtype() == Dtype::f32) {  // the device has no attention of bf16
    REQUIRE(host(got) == host(in_f32));
    return;
  }
  REQUIRE(factor.dtype() == Dtype::bf16);
  REQUIRE(host(got) == host(self_attention(qkv.to(Dtype::bf16), 2, true).to(Dtype::f32)));
  REQUIRE(host(got) != host(in_f32));
}

// ---- Dropout, pooling, shapes -------------------------------------------------------------------

TEST_CASE("Dropout drops a share, scales the rest, and draws anew in each call") {
  constexpr Int n = 10000;
  const Tensor x = full(own(), {n}, 3);
  Dropout layer(0.3, 5), same(0.3, 5), other(0.3, 6);
  const Floats first = host(layer(x)), second = host(layer(x));
  const float kept = static_cast<float>(1 / 0.7) * 3;
  for (const Floats& values : {first, second}) {
    const auto zeros = std::count(values.begin(), values.end(), 0.0f);
    REQUIRE(std::fabs(static_cast<double>(zeros) - 0.3 * n) < 6 * std::sqrt(n * 0.3 * 0.7));
    for (const float v : values) REQUIRE((v == 0 || std::fabs(v / kept - 1) < 1e-6f));
  }
  REQUIRE(first != second);
  REQUIRE(host(same(x)) == first);
  REQUIRE(host(same(x)) == second);
  REQUIRE(host(other(x)) != first);
  layer.eval();
  REQUIRE(host(layer(x)) == host(x));
  REQUIRE(layer(x).shares_storage(x));
  layer.train();
  REQUIRE(host(layer(x)) != host(x));
  REQUIRE(Dropout(0)(x).shares_storage(x));
}

TEST_CASE("a gradient goes through the mask of its own call") {
  Dropout layer(0.5, 1);
  Tensor x = full(own(), {100}, 1);
  x.set_requires_grad();
  const Tensor y = layer(x), later = layer(x);
  y.backward(full(own(), {100}, 1));
  REQUIRE(host(x.grad()) == host(y.detach()));
  REQUIRE(host(x.grad()) != host(later.detach()));
}

TEST_CASE("MaxPool2d and AvgPool2d") {
  const Tensor x = random_tensor({2, 2, 7, 5}, 1);
  const Array X(x);
  const auto pooled = [&](Int size, Int stride, Int padding, bool is_mean) {
    const Int P = (7 + 2 * padding - size) / stride + 1, Q = (5 + 2 * padding - size) / stride + 1;
    Doubles want;
    for (Int image = 0; image < 4; ++image)
      for (Int p = 0; p < P; ++p)
        for (Int q = 0; q < Q; ++q) {
          double largest = -INFINITY, mean = 0;
          for (Int i = 0; i < size * size; ++i) {
            const Int y = p * stride + i / size - padding, z = q * stride + i % size - padding;
            if (y < 0 || y >= 7 || z < 0 || z >= 5) continue;
            const double value = X(image / 2, image % 2, y, z);
            largest = std::fmax(largest, value);
            mean += value / static_cast<double>(size * size);
          }
          want.push_back(is_mean ? mean : largest);
        }
    return std::pair(Shape{2, 2, P, Q}, want);
  };
  const auto holds = [&](Module&& layer, const std::pair<Shape, Doubles>& want) {
    require_near(layer(x), want.first, want.second);
  };
  holds(MaxPool2d(2), pooled(2, 2, 0, false));
  holds(MaxPool2d(3, 2, 1), pooled(3, 2, 1, false));
  holds(MaxPool2d(2, 1), pooled(2, 1, 0, false));
  for (const Int size : {1, 2, 3}) holds(AvgPool2d(size), pooled(size, size, 0, true));
  // Of an input that is a view, too.
  require_near(AvgPool2d(2)(x.transpose(2, 3).contiguous().transpose(2, 3)), {2, 2, 3, 2},
               pooled(2, 2, 0, true).second);
}

TEST_CASE("Flatten, activations and Sequential") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  REQUIRE(Flatten()(x).shape() == Shape{2, 12});
  REQUIRE(host(Flatten()(x)) == host(x));
  REQUIRE(host(Flatten()(x.transpose(1, 2))) == host(x.transpose(1, 2).contiguous()));
  REQUIRE(Flatten()(random_tensor({3}, 1)).shape() == Shape{3, 1});
  const auto each = [&](Module&& layer, double (*f)(double)) {
    Doubles want = host_doubles(x);
    for (double& v : want) v = f(v);
    require_near(layer(x), {2, 3, 4}, want);
  };
  each(ReLU(), [](double v) { return std::fmax(v, 0); });
  each(Tanh(), [](double v) { return std::tanh(v); });
  each(Sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  each(GELU(), [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
  });
  auto first = std::make_unique<Linear>(own(), 4, 2, true, 1);
  auto last = std::make_unique<Linear>(own(), 2, 3, true, 2);
  const Tensor want = relu((*last)(tanh((*first)(x))));
  Sequential net(std::move(first), std::make_unique<Tanh>(), std::move(last));
  net.add(std::make_unique<ReLU>());
  REQUIRE(host(net(x).detach()) == host(want.detach()));
  REQUIRE(host(Sequential()(x)) == host(x));
}

TEST_CASE("a Linear in a Sequential is one operation with what is OfElements, and with no other") {
  const Tensor x = random_tensor({5, 4}, 1), seed = random_tensor({5, 3}, 2);
  const auto check = [&](std::vector<std::unique_ptr<Module>> behind) {
    Linear by_hand(own(), 4, 3, true, 1);
    Tensor want = by_hand(x);
    for (const auto& layer : behind) want = (*layer)(want);
    want.backward(seed);
    Sequential net(std::make_unique<Linear>(own(), 4, 3, true, 1));
    for (auto& layer : behind) net.add(std::move(layer));
    const Tensor got = net(x);
    got.backward(seed);
    const auto& linear = static_cast<Linear&>(net[0]);
    REQUIRE(host(got.detach()) == host(want.detach()));
    REQUIRE(host(linear.weight.grad()) == host(by_hand.weight.grad()));
    REQUIRE(host(linear.bias.grad()) == host(by_hand.bias.grad()));
  };
  const auto layers = [](auto... each) {
    std::vector<std::unique_ptr<Module>> all;
    (all.push_back(std::move(each)), ...);
    return all;
  };
  check(layers(std::make_unique<ReLU>()));
  check(layers(std::make_unique<Tanh>()));
  check(layers(std::make_unique<Sigmoid>()));
  check(layers(std::make_unique<GELU>()));
  check(layers(std::make_unique<ReLU>(), std::make_unique<Tanh>()));
  check(layers(std::make_unique<GELU>(), std::make_unique<ReLU>()));
  check(layers(std::make_unique<Sigmoid>(), std::make_unique<GELU>(), std::make_unique<Tanh>()));
}

// ---- First values and refusals ------------------------------------------------------------------

TEST_CASE("first values follow from the seed, within their bounds") {
  const auto within = [](const Tensor& t, double bound) {
    double largest = 0;
    for (const double v : host_doubles(t)) largest = std::fmax(largest, std::fabs(v));
    REQUIRE((largest <= bound && largest > 0.9 * bound));
  };
  const Linear linear1(own(), 100, 50, true, 1), again(own(), 100, 50, true, 1),
      other(own(), 100, 50, true, 2), on_reference(reference(), 100, 50, true, 1);
  within(linear1.weight, 0.1), within(linear1.bias, 0.1);
  REQUIRE(host(linear1.weight.detach()) == host(again.weight.detach()));
  REQUIRE(host(linear1.weight.detach()) == host(on_reference.weight.detach()));
  REQUIRE(host(linear1.weight.detach()) != host(other.weight.detach()));
  REQUIRE(host(linear1.bias.detach()) != host(other.bias.detach()));
  const Conv2d conv(own(), 4, 50, 5, 1, 0, true, 1);
  within(conv.weight, 0.1), within(conv.bias, 0.1);
  // No two tensors of a layer begin alike.
  REQUIRE(host(conv.weight.detach())[0] != host(conv.bias.detach())[0]);
  REQUIRE(host(linear1.weight.detach())[0] != host(linear1.bias.detach())[0]);
  const MultiHeadAttention attention(own(), 24, 2, false, 1);
  within(attention.in_proj_weight, std::sqrt(6.0 / 96));
  within(attention.out_proj.weight, 1 / std::sqrt(24.0));
  REQUIRE(host(attention.in_proj_bias.detach()) == Floats(72));
  REQUIRE(host(attention.out_proj.bias.detach()) == Floats(24));
  const Embedding embedding1(own(), 100, 50, 1);
  double mean = 0, square = 0;
  for (const double v : host_doubles(embedding1.weight)) mean += v / 5000, square += v * v / 5000;
  REQUIRE((std::fabs(mean) < 0.1 && std::fabs(square - 1) < 0.1));
  const BatchNorm2d norm(own(), 3);
  REQUIRE((host(norm.weight.detach()) == Floats(3, 1) && host(norm.bias.detach()) == Floats(3)));
  REQUIRE((host(norm.running_mean) == Floats(3) && host(norm.running_var) == Floats(3, 1)));
}

TEST_CASE("what layers refuse") {
  Device& on = own();
  REQUIRE(error_of([&] { Linear(on, 0, 3); }) == "Linear: a size is 0");
  REQUIRE(error_of([&] { Linear(on, 3, -1); }) == "Linear: a size is -1");
  REQUIRE(error_of([&] { Conv2d(on, 1, 1, 0); }) == "Conv2d: a size is 0");
  REQUIRE(error_of([&] { Conv2d(on, 1, 1, 3, 0); }) == "Conv2d: a size is 0");
  REQUIRE(contains_text(error_of([&] { Conv2d(on, 1, 1, 3, 1, -1); }), "Conv2d: "));
  REQUIRE(error_of([&] { BatchNorm2d(on, 0); }) == "BatchNorm2d: a size is 0");
  REQUIRE(error_of([&] { LayerNorm(on, 0); }) == "LayerNorm: a size is 0");
  REQUIRE(error_of([&] { Embedding(on, 0, 1); }) == "Embedding: a size is 0");
  REQUIRE(error_of([&] { MaxPool2d(0); }) == "MaxPool2d: a size is 0");
  REQUIRE(contains_text(error_of([&] { MaxPool2d(2, -1); }), "MaxPool2d: a size is "));
  REQUIRE(error_of([&] { AvgPool2d(0); }) == "AvgPool2d: a size is 0");
  REQUIRE(error_of([&] { MultiHeadAttention(on, 4, 0); }) == "MultiHeadAttention: a size is 0");
  REQUIRE(error_of([&] { MultiHeadAttention(on, 4, 3); }) ==
          "MultiHeadAttention: 4 channels are no multiple of 3 heads");
  for (const double p : {-0.1, 1.0, 1.5, static_cast<double>(NAN)})
    REQUIRE(contains_text(error_of([&] { Dropout{p}; }), "not from 0 to below 1"));
  const Tensor rows = random_tensor({2, 3}, 1);
  REQUIRE(error_of([&] { BatchNorm2d(on, 3)(rows); }) ==
          "BatchNorm2d of f32 (2,3): its rank is not 4");
  REQUIRE(error_of([&] { AvgPool2d(2)(rows); }) == "AvgPool2d of f32 (2,3): its rank is not 4");
  REQUIRE(error_of([&] { self_attention(rows, 1, true); }) ==
          "self_attention of f32 (2,3): its rank is not 3");
  for (const auto& [channels, heads] : {std::pair{7, 1}, std::pair{12, 3}, std::pair{12, 0}})
    REQUIRE(contains_text(error_of([&, c = channels, h = heads] {
                            self_attention(random_tensor({1, 2, c}, 1), h, true);
                          }),
                          std::to_string(channels) + " are not queries, keys and values of " +
                              std::to_string(heads) + " heads"));
  for (const bool trains : {true, false}) {  // one channel would be broadcast to three
    BatchNorm2d norm(on, 3);
    norm.train(trains);
    REQUIRE(error_of([&] {
              norm(random_tensor({2, 1, 4, 4}, 1));
            }) == "BatchNorm2d of f32 (2,1,4,4): it has 3 channels");
    REQUIRE(host(norm.running_mean) == Floats(3));
  }
}
