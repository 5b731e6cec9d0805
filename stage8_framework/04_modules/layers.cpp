#include "stage8_framework/04_modules/layers.h"

#include <cmath>
#include <mutex>
#include <stdexcept>

#include "common/random.h"
#include "stage8_framework/03_autograd/detail/layer_rules.h"
#include "stage8_framework/03_autograd/tape.h"

namespace framework {

namespace {

struct Seeds {
  std::mutex mutex;
  std::uint64_t seed = 0, given = 0;
};
Seeds& seeds() {
  static Seeds all;
  return all;
}

void require_positive(const char* layer, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes)
    if (size < 1)
      throw std::invalid_argument(std::string(layer) + ": a size is " + std::to_string(size));
}

void require_rank(const char* layer, const Tensor& x, size_t rank) {
  if (x.rank() != rank)
    throw std::invalid_argument(std::string(layer) + " of " + x.text() + ": its rank is not " +
                                std::to_string(rank));
}

// Numbers of `draw`, which random.h has: `scale` times the numbers of sequence `stream`.
using Draw = float (*)(std::uint64_t seed, std::uint32_t stream, std::uint64_t i);
Tensor drawn(Device& device, const Shape& shape, Draw draw, double scale, std::uint64_t seed,
             std::uint32_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(scale) * draw(seed, stream, i);
  return Tensor::from_host(device, values, shape);
}

Tensor between(Device& device, const Shape& shape, double bound, std::uint64_t seed,
               std::uint32_t stream) {
  return drawn(device, shape, random_numbers::uniform, bound, seed, stream);
}

double root(std::int64_t n) { return std::sqrt(static_cast<double>(n)); }

// (C) beside the images (N, C, H, W).
Tensor per_channel(const Tensor& a) { return a.reshape({a.shape()[0], 1, 1}); }

}  // namespace

void manual_seed(std::uint64_t seed) {
  const std::lock_guard<std::mutex> guard(seeds().mutex);
  seeds().seed = seed, seeds().given = 0;
}

std::uint64_t next_seed() {
  constexpr std::uint32_t kStream = 0x5EEDu;
  const std::lock_guard<std::mutex> guard(seeds().mutex);
  const std::uint64_t high = random_numbers::word(seeds().seed, kStream, 2 * seeds().given);
  const std::uint64_t low = random_numbers::word(seeds().seed, kStream, 2 * seeds().given + 1);
  ++seeds().given;
  return high << 21 ^ low >> 11;
}

// ---- Products -----------------------------------------------------------------------------------

Linear::Linear(Device& device, std::int64_t in, std::int64_t out, bool has_bias,
               std::uint64_t seed) {
  require_positive("Linear", {in, out});
  weight = between(device, {out, in}, 1 / root(in), seed, 0);
  if (has_bias) bias = between(device, {out}, 1 / root(in), seed, 1);
  add_parameter("weight", weight), add_parameter("bias", bias);
}

Conv2d::Conv2d(Device& device, std::int64_t in, std::int64_t out, std::int64_t kernel,
               std::int64_t stride, std::int64_t padding, bool has_bias, std::uint64_t seed)
    : at_{stride, stride, padding, padding} {
  require_positive("Conv2d", {in, out, kernel, stride, padding + 1});
  const double bound = 1 / root(in * kernel * kernel);
  weight = between(device, {out, in, kernel, kernel}, bound, seed, 0);
  if (has_bias) bias = between(device, {out}, bound, seed, 1);
  add_parameter("weight", weight), add_parameter("bias", bias);
}

// ---- Normalization ------------------------------------------------------------------------------

BatchNorm2d::BatchNorm2d(Device& device, std::int64_t channels, double eps, double momentum)
    : eps_(eps), momentum_(momentum) {
  require_positive("BatchNorm2d", {channels});
  weight = full(device, {channels}, 1), bias = full(device, {channels}, 0);
  running_mean = full(device, {channels}, 0), running_var = full(device, {channels}, 1);
  num_batches_tracked = full(device, {}, 0, Dtype::i64);
  add_parameter("weight", weight), add_parameter("bias", bias);
  add_buffer("running_mean", running_mean), add_buffer("running_var", running_var);
  add_buffer("num_batches_tracked", num_batches_tracked);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  require_rank("BatchNorm2d", x, 4);
  if (x.shape()[1] != weight.shape()[0])
    throw std::invalid_argument("BatchNorm2d of " + x.text() + ": it has " +
                                std::to_string(weight.shape()[0]) + " channels");
  if (!is_training()) {
    const Tensor scale = weight * rsqrt(running_var + scalar_like(running_var, eps_));
    return x * per_channel(scale) + per_channel(bias - running_mean * scale);
  }
  const Shape images_and_pixels{0, 2, 3};
  const Tensor centred = x - mean(x, images_and_pixels, true);
  const Tensor var = mean(square(centred), images_and_pixels, true);
  track(mean(x.detach(), images_and_pixels), var.detach().reshape(running_var.shape()),
        x.elements() / x.shape()[1]);
  const Tensor normal = centred * rsqrt(var + scalar_like(var, eps_));
  return normal * per_channel(weight) + per_channel(bias);
}

// The running variance is that of `count` numbers of which the mean is known, n / (n - 1) times
// their own.
void BatchNorm2d::track(const Tensor& of_mean, const Tensor& var, std::int64_t count) {
  const NoGrad guard;
  const double n = static_cast<double>(count), unbiased = count > 1 ? n / (n - 1) : 1;
  running_mean.copy_from(scaled(running_mean, 1 - momentum_) + scaled(of_mean, momentum_));
  running_var.copy_from(scaled(running_var, 1 - momentum_) + scaled(var, unbiased * momentum_));
  count_up(num_batches_tracked);
}

LayerNorm::LayerNorm(Device& device, std::int64_t channels, double eps) : eps_(eps) {
  require_positive("LayerNorm", {channels});
  weight = full(device, {channels}, 1), bias = full(device, {channels}, 0);
  add_parameter("weight", weight), add_parameter("bias", bias);
}

Pair LayerNorm::added(const Tensor& x, const Tensor& branch) const {
  const Normalized of_sum = add_layernorm(x, branch, weight, bias, eps_);
  return {of_sum.y, of_sum.sum};
}

// ---- Text ---------------------------------------------------------------------------------------

Embedding::Embedding(Device& device, std::int64_t rows, std::int64_t channels, std::uint64_t seed) {
  require_positive("Embedding", {rows, channels});
  weight = drawn(device, {rows, channels}, random_numbers::bell, 1, seed, 0);
  add_parameter("weight", weight);
}

Tensor self_attention(const Tensor& qkv, std::int64_t heads, bool is_causal) {
  return self_attention_for_linear(qkv, heads, is_causal).to(qkv.dtype());
}

Tensor self_attention_for_linear(const Tensor& qkv, std::int64_t heads, bool is_causal) {
  require_rank("self_attention", qkv, 3);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  if (qkv.shape()[2] % 3 != 0 || heads < 1 || C % heads != 0)
    throw std::invalid_argument("self_attention of " + qkv.text() + ": " +
                                std::to_string(qkv.shape()[2]) + " are not queries, keys and " +
                                "values of " + std::to_string(heads) + " heads");
  // Three views of heads (B, heads, T, D).
  const auto by_head = [&](const Tensor& rows) -> Triple {
    const std::vector<Tensor> parts = unbind(rows.reshape({B, T, 3, heads, C / heads}), 2);
    return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
  };
  const double scale = 1 / root(C / heads);
  Triple of = by_head(qkv);
  Dtype type;
  if (is_cast_attention(of.first, of.second, of.third, is_causal, scale, &type))
    of = by_head(qkv.to(type));                // all three by one cast
  const framework::Autocast none(Dtype::f32);  // it has been asked
  const Tensor out = attention(of.first, of.second, of.third, is_causal, scale, true).first;
  return reshaped(out.transpose(1, 2), {B, T, C});
}

MultiHeadAttention::MultiHeadAttention(Device& device, std::int64_t channels, std::int64_t heads,
                                       bool is_causal, std::uint64_t seed)
    : out_proj(device, channels, channels, true, seed), heads_(heads), is_causal_(is_causal) {
  require_positive("MultiHeadAttention", {channels, heads});
  if (channels % heads != 0)
    throw std::invalid_argument("MultiHeadAttention: " + std::to_string(channels) +
                                " channels are no multiple of " + std::to_string(heads) + " heads");
  // Xavier's bound, of an input of C values and an output of 3 C.
  in_proj_weight =
      between(device, {3 * channels, channels}, std::sqrt(6.0) / root(4 * channels), seed, 2);
  in_proj_bias = full(device, {3 * channels}, 0);
  fill(out_proj.bias.detach(), 0);
  add_parameter("in_proj_weight", in_proj_weight), add_parameter("in_proj_bias", in_proj_bias);
  add_module("out_proj", out_proj);
}

// ---- Dropout, pooling, shapes -------------------------------------------------------------------

Dropout::Dropout(double p, std::uint64_t seed) : p_(p), seed_(seed) {
  if (!(p >= 0 && p < 1))
    throw std::invalid_argument("Dropout: p is " + std::to_string(p) + ", not from 0 to below 1");
}

Tensor Dropout::forward(const Tensor& x) {
  if (!is_training() || p_ == 0) return x;
  if (!calls_.is_defined() || &calls_.device() != &x.device())
    calls_ = full(x.device(), {}, 0, Dtype::i64);
  const Tensor mask = Tensor::empty(x.device(), x.shape(), x.dtype());
  dropout_mask(mask, calls_, p_, seed_);
  return x * mask;
}

MaxPool2d::MaxPool2d(std::int64_t size, std::int64_t stride, std::int64_t padding)
    : window_{size, size},
      at_{stride == 0 ? size : stride, stride == 0 ? size : stride, padding, padding} {
  require_positive("MaxPool2d", {size, stride + 1, padding + 1});
}

AvgPool2d::AvgPool2d(std::int64_t size) : size_(size) { require_positive("AvgPool2d", {size}); }

Tensor AvgPool2d::forward(const Tensor& x) {
  require_rank("AvgPool2d", x, 4);
  const std::int64_t rows = x.shape()[2] / size_, cols = x.shape()[3] / size_;
  const Tensor whole = x.slice(2, 0, rows * size_).slice(3, 0, cols * size_);
  const Shape windows{x.shape()[0], x.shape()[1], rows, size_, cols, size_};
  return mean(reshaped(whole, windows), {3, 5});
}

Tensor Flatten::forward(const Tensor& x) {
  std::int64_t columns = 1;
  for (size_t d = 1; d < x.rank(); ++d) columns *= x.shape()[d];
  return reshaped(x, {x.shape()[0], columns});
}

void Sequential::add(std::unique_ptr<Module> layer) {
  add_module(std::to_string(layers_.size()), *layer);
  const auto* of_elements = dynamic_cast<const OfElements*>(layer.get());
  const Linear* linear =
      parts_.empty() ? nullptr : dynamic_cast<const Linear*>(parts_.back().layer);
  if (of_elements != nullptr && linear != nullptr)
    parts_.back() = {nullptr, linear, of_elements->activation};
  else
    parts_.push_back({layer.get(), nullptr, Activation::none});
  layers_.push_back(std::move(layer));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& [layer, linear, activation] : parts_)
    y = linear != nullptr ? linear->activated(y, activation) : layer->forward(y);
  return y;
}

}  // namespace framework
