// 7.7  The reference in double: the model and its optimizer on the host, without anything of the
// course's kernels, and the first steps of a training that versions are held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"

namespace train_shakespeare {

// Pieces of text, one behind the other, and what comes next behind each character.
struct Batch {
  std::vector<std::uint8_t> tokens, labels;
};

// The pieces of the text that step `step` reads.
Batch batch_of(const Settings& settings, const std::vector<std::uint8_t>& text, std::uint64_t step);

using Numbers = std::vector<double>;

// A row of a normalization: (x - mean) / deviation, and 1 / deviation.
struct Hat {
  Numbers hat, rstd;
};

// Tensors are in the order of Model::tensors(). A twin begins nearby: see train_toy::Twins.
class Reference {
 public:
  Reference(const ModelSizes& sizes, const std::vector<std::vector<float>>& parameters,
            unsigned twin = 0);

  // The mean loss of a batch; then, if that is wanted, step number t (the first is 1) of the
  // optimizer.
  double step(const Batch& batch, optimizers::Kind kind, const optimizers::Hyperparameters& hyper,
              std::uint64_t t, bool update);
  // The forward pass alone. A batch has pieces of sizes.context characters, as many as it likes.
  double loss_of(const Batch& batch);

  const std::vector<Numbers>& parameters() const { return p_; }
  // Of the last step that was wanted.
  Numbers gradient() const { return train_toy::flat(grad_); }

 private:
  struct Block {
    Hat hat1, hat2;
    Numbers norm1, qkv, attended, norm2, sums, hidden;
  };

  Numbers block(const Numbers& x, size_t layer, Block& kept) const;
  template <class Row>
  void for_each_query(const Numbers& qkv, Row row) const;
  Numbers attend(const Numbers& qkv) const;
  Numbers attend_backward(const Numbers& grad_y, const Numbers& qkv) const;
  Numbers block_backward(const Numbers& grad_y, size_t layer);
  void backward(const Batch& batch);  // from grad_logits_ to grad_

  ModelSizes sizes_;
  size_t vocabulary_;
  unsigned twin_;
  std::vector<Numbers> p_, grad_;
  std::vector<std::vector<optimizers::Element>> elements_;
  std::vector<Numbers> x_;
  std::vector<Block> kept_;
  Hat hat_;
  Numbers norm_, grad_logits_;
};

// What the losses of the first kCheckedSteps steps may be off: a loss is a mean over all characters
// of a batch, each of which went through some hundred roundings, twice as many as in step 5.6; and
// ten times what two trainings drift apart whose weights are four roundings away.
inline train_toy::Twins twins() { return train_toy::Twins(10, 0, 2e-5); }
inline constexpr size_t kCheckedSteps = 3;

// What the first `steps` steps must do from these parameters, in double; it may end before.
train_toy::Trajectory trajectory_cpu(const Settings& settings,
                                     const std::vector<std::uint8_t>& text,
                                     const std::vector<std::vector<float>>& parameters,
                                     size_t steps);

}  // namespace train_shakespeare
