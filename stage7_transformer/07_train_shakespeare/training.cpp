#include "stage7_transformer/07_train_shakespeare/training.h"

#include <algorithm>
#include <stdexcept>

#include "stage7_transformer/07_train_shakespeare/checkpoint.h"

namespace train_shakespeare {

Training::Training(const Settings& wanted, const Corpus& corpus)
    : Trainer(wanted, {wanted.steps}),
      vocabulary(corpus.vocabulary),
      model(wanted.sizes, corpus.vocabulary.size()),
      train_text(corpus.train),
      validation_text(corpus.validation),
      schedules(train_shakespeare::schedules(wanted)),
      plain(wanted.sizes, corpus.vocabulary.size(), transformer_block::kVersions[1].launch),
      fused(wanted.sizes, corpus.vocabulary.size(), transformer_block::kVersions[3].launch) {
  const size_t shortest = std::min(corpus.train.size(), corpus.validation.size());
  if (shortest <= wanted.sizes.context)
    throw std::invalid_argument("a context of " + std::to_string(wanted.sizes.context) +
                                " characters needs a longer text: a tenth of this one has " +
                                std::to_string(shortest));
  if (wanted.steps == 0) throw std::invalid_argument("a training has at least one step");
  most_graph_steps = kGraphSteps;
  restart();
}

Settings Training::wanted() const {
  Settings all(settings);
  all.sizes = model.sizes(), all.steps = schedules.size();
  return all;
}

std::map<std::string, std::string> Training::facts() const {
  std::map<std::string, std::string> facts = facts_of(model.sizes(), vocabulary);
  facts["schedule"] = std::to_string(schedules.size()) + " steps up to " +
                      std::to_string(settings.hyper.learning_rate);
  facts["characters"] = std::to_string(train_text.size());
  return facts;
}

void train(Training& training, Launch version, size_t steps) {
  const size_t all = training.schedules.size();
  if (steps > all - training.steps)
    throw std::invalid_argument("this training has " + std::to_string(all) + " steps, and " +
                                std::to_string(training.steps) + " of them are behind it");
  version(training, steps);
  HIP_CHECK(hipDeviceSynchronize());
}

void join_and_update(Training& t) {
  t.branches.join(t.stream);
  for (size_t i = 0; i < std::min<size_t>(t.model.sizes().layers, 2); ++i)
    t.of_blocks[i].join(t.stream);
  optimizers::launch_update(t.settings.kind, t.model.arena(), t.schedule.data(), t.stream);
}

double validation_loss(Training& t) { return loss_of(t.model, t.fused, t.validation()); }

}  // namespace train_shakespeare
