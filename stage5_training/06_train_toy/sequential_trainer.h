// A Trainer whose model is step 5.5's Sequential: its step is the same for all data. A training of
// a data set derives from it (training.h here, and those of 5.7, 5.8 and 6.4) and says what a batch
// is and what its loss.
#pragma once

#include <cstddef>

#include "stage5_training/05_sequential/model.h"
#include "stage5_training/06_train_toy/trainer.h"

namespace train_toy {

class SequentialTrainer : public Trainer {
 public:
  // Steps of `batch` samples. The model has its memory for steps from model.reserve().
  SequentialTrainer(sequential::Sequential trained, const Settings& wanted, size_t batch_size,
                    const CurveShape& curve_shape);

  // ---- What a training of its own says
  // Queues the kernels that bring the batch of the step that begins, if there are any. Returns
  // where its x (batch, inputs) is: always the same place, which a graph remembers.
  virtual const float* queue_batch() = 0;
  // Queues the mean loss of y (batch, outputs) against what the batch should give, to `loss`, and
  // its gradient by y, to `grad_y`.
  virtual void queue_loss(const float* y) = 0;

  // versions/operations.hip: queues one step, or many, a kernel per operation.
  void queue_step();
  void run_operations(size_t count);

  sequential::Stored stored() const override { return sequential::stored(model); }
  void initialize() override { model.initialize(settings.seed); }
  size_t moves() const override { return model.moves(); }
  void use_branches(const dense_backward::Branches* of_stream) override {
    model.use_branches(of_stream);
  }

  sequential::Sequential model;
  size_t batch;
  DeviceBuffer<float> grad_y;  // of one step

 private:
  void queue_record();
};

}  // namespace train_toy
