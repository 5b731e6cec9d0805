#include "stage7_transformer/07_train_shakespeare/reference.h"

#include <cmath>

#include "common/rounding.h"
#include "stage5_training/06_train_toy/reference.h"
#include "stage7_transformer/07_train_shakespeare/pieces.h"

namespace train_shakespeare {

using rounding::Approximate;
using sequential::at;
using sequential::Roundings;

// ---- Layers -----------------------------------------------------------------------------------

Values DoubleEmbedding::forward_cpu(HostPass& pass) const {
  const size_t length = pass.x.value.size() / pass.batch;
  const bool with_errors = !pass.x.error.empty();
  Values y;
  for (size_t i = 0; i < pass.x.value.size() * width_; ++i) {
    const size_t row = i / width_, token = static_cast<size_t>(pass.x.value[row]);
    const Approximate of_token = at(pass.parameters[0], token * width_ + i % width_);
    const Approximate of_place = at(pass.parameters[1], row % length * width_ + i % width_);
    y.value.push_back(of_token.value + of_place.value);
    if (with_errors)
      y.error.push_back(
          std::hypot(of_token.error, of_place.error, rounding::random_bound(1, y.value.back())));
  }
  return y;
}

// Numbers of tokens have no gradient.
Values DoubleEmbedding::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                     const HostPass& pass) const {
  const size_t length = pass.x.value.size() / pass.batch;
  std::vector<rounding::ApproximateSum> of_tokens(vocabulary_ * width_);
  std::vector<rounding::ApproximateSum> of_places(positions_ * width_);
  for (size_t i = 0; i < grad_y.value.size(); ++i) {
    const size_t row = i / width_, token = static_cast<size_t>(pass.x.value[row]);
    of_tokens[token * width_ + i % width_].add(at(grad_y, i));
    of_places[row % length * width_ + i % width_].add(at(grad_y, i));
  }
  const double most_terms = static_cast<double>(pass.x.value.size());
  for (const auto* sums : {&of_tokens, &of_places}) {
    Values& gradient = gradients.emplace_back();
    for (const rounding::ApproximateSum& sum : *sums) {
      gradient.value.push_back(sum.value);
      if (!pass.x.error.empty()) gradient.error.push_back(sum.random_bound(most_terms).error);
    }
  }
  return {};
}

Values DoubleHead::forward_cpu(HostPass& pass) const {
  pass.kept = {store(pass.x), store(pass.parameters[0])};
  return sequential::linear_cpu(pass.kept[0], pass.kept[1], {}, pass.x.value.size() / width_,
                                Roundings::random);
}

Values DoubleHead::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                const HostPass& pass) const {
  return store(sequential::linear_backward_cpu(gradients, store(grad_y), pass.kept[0], pass.kept[1],
                                               pass.x.value.size() / width_, false,
                                               Roundings::random));
}

Values DoubleHead::store(const Values& values) const {
  return values.error.empty() ? transformer_block::stored<double>(values, precision_)
                              : transformer_block::stored<Approximate>(values, precision_);
}

// ---- The model --------------------------------------------------------------------------------

Layers::Layers(const ModelSizes& sizes, size_t vocabulary, size_t length, Precision precision)
    : blocks_(sizes.layers),
      length_(length),
      embedding_(vocabulary, sizes.context, sizes.width),
      block_({1, length, sizes.width, sizes.heads}, precision),
      norm_(sizes.width),
      head_(vocabulary, sizes.width, precision) {}

sequential::DoubleNetwork Layers::network() const {
  sequential::DoubleNetwork network{{&embedding_}, length_, "Transformer"};
  network.layers.insert(network.layers.end(), blocks_, &block_);
  network.layers.push_back(&norm_);
  network.layers.push_back(&head_);
  return network;
}

Values tokens_of(const std::vector<std::uint8_t>& tokens) {
  return {{tokens.begin(), tokens.end()}, std::vector<double>(tokens.size())};
}

sequential::Loss loss_cpu(const Values& logits, const std::vector<std::uint8_t>& labels,
                          bool stores_floats) {
  return sequential::cross_entropy_cpu(logits, {labels.begin(), labels.end()},
                                       logits.value.size() / labels.size(), stores_floats);
}

// ---- A training -------------------------------------------------------------------------------

Batch batch_of(const Settings& settings, const std::vector<std::uint8_t>& text,
               std::uint64_t step) {
  Batch batch;
  const size_t T = settings.sizes.context;
  for (size_t b = 0; b < settings.sizes.batch; ++b) {
    const size_t place =
        Drawn::place(settings.seed, step, settings.sizes.batch, b, text.size() - T);
    for (size_t t = 0; t < T; ++t) {
      batch.tokens.push_back(text[place + t]);
      batch.labels.push_back(text[place + t + 1]);
    }
  }
  return batch;
}

train_toy::Trajectory trajectory_cpu(const Settings& settings,
                                     const std::vector<std::uint8_t>& text,
                                     const std::vector<std::vector<float>>& parameters,
                                     size_t steps, Precision precision) {
  const std::vector<Schedule> list = schedules(settings);
  const size_t vocabulary = parameters[0].size() / settings.sizes.width;
  const Layers layers(settings.sizes, vocabulary, precision);
  const Layers of_twins(settings.sizes, vocabulary,
                        precision == Precision::fp32 ? precision : Precision::bf16_twin);
  const sequential::DoubleNetwork network_of_twins = of_twins.network();
  const train_toy::Examples pieces{
      [&](std::uint64_t step) { return tokens_of(batch_of(settings, text, step).tokens); },
      [&](std::uint64_t step, const Values& logits, bool stores_floats) {
        return loss_cpu(logits, batch_of(settings, text, step).labels, stores_floats);
      },
      [&](std::uint64_t step) { return list[step].hyper; }};
  return train_toy::trajectory_cpu(layers.network(), parameters, settings, settings.sizes.batch,
                                   pieces, steps, twins(), {{false, 0, 0, true}},
                                   &network_of_twins);
}

}  // namespace train_shakespeare
