// 7.7  train_shakespeare: a transformer learns to write, one character after the other.
//
//   characters -> token + position -> block -> ... -> block -> norm -> head -> logits
//
// Behind each character the model says how probable every character is as the next one, and is told
// which one it was. A text of T + 1 characters is T examples at once, since no block lets a
// character see those that follow. After the training the model writes: it takes the logits behind
// the last character, draws the next one, and goes on (writer.h).
//
// Embedding, normalization, attention and blocks are those of this stage, the loss is step 3.3's,
// the optimizer 5.4's. A step of the small model is 2.5 thousand million operations in about a
// hundred launches, and none of them fills a large GPU. Its time depends on how many launches wait
// for one another, and on who launches them. That is the ladder.
//
//   operations   a kernel per operation, launched by the host one after the other
//   fused        the blocks' fused version; what the chain does not need runs beside it
//   rows         at few channels: from attention to attention in one launch, over the blocks'
//   borders graph        the same kernels, replayed from a graph
//
//   forward    embed - block 0 - block 1 - norm - head - loss -+
//   backward   embed - block 0 - block 1 - norm - head --------+      the chain, and beside it
//                   \ weights  \ weights        \ weights       \ mean, curve, schedule
//
// The text stays on the device, a byte per character. No kernel is told which step it is: the
// number of steps is in the optimizer's Schedule in device memory. From it follow the pieces of the
// text that a step reads (pieces.h) and its learning rate, one of an array. So a captured step can
// be replayed forever.
//
// As in GPT-2 there are learned positions, biases everywhere but in the head, which shares no
// weights with the embedding, and no dropout. All versions give the same bits on every run of one
// device.
#pragma once

#include <cstddef>
#include <string>

#include "common/gpu_runtime.h"
#include "common/options.h"
#include "common/version.h"
#include "stage7_transformer/07_train_shakespeare/training.h"

namespace train_shakespeare {

// What the program trains unless it is told otherwise: the small model, for 1000 steps. On the CPU
// backend it takes 100.
inline const TrainingDefaults kDefaults{
    kConfigs[0].steps, 100, 20, 0, kConfigs[0].learning_rate, "adamw", true, false, "steps"};

// What such a training reaches on Tiny Shakespeare after so many steps: at most this loss, both of
// the last steps and of the text that is not trained on.
struct Promise {
  size_t steps;
  double loss;  // nats per character
};
inline constexpr Promise kPromises[] = {{100, 2.8}, {1000, 2.2}};  // the fewest steps first

// The medium model, trained in bf16, is at most so much worse on the text that is not trained on
// than trained in float.
inline constexpr double kBf16Share = 0.01;

// ---- The versions -----------------------------------------------------------------------------

// Each queues `steps` more steps.
void run_operations(Training& t, size_t steps);
void run_fused(Training& t, size_t steps);
void run_rows(Training& t, size_t steps);
void run_graph(Training& t, size_t steps);
void run_bf16(Training& t, size_t steps);
void run_bf16_graph(Training& t, size_t steps);

// Queues one step of fused, of rows, or of bf16.
void queue_fused(Training& t);
void queue_rows(Training& t);
void queue_bf16(Training& t);

inline constexpr Version<Launch> kVersions[] = {
    {"operations", run_operations, "a kernel per operation, launched by the host"},
    {"fused", run_fused, "fused blocks; weights' gradients beside the chain"},
    {"rows", run_rows, "few channels: rows stay in shared memory from attention to attention"},
    {"graph", run_graph, "the same kernels, replayed from a graph"},
};

// With blocks of bf16, and parameters, states and losses of float.
inline constexpr Version<Launch> kBf16Versions[] = {
    {"bf16", run_bf16, "bf16 between the products, on matrix units", gemm_mixed::kNeedsOfMmaSync},
    {"bf16_graph", run_bf16_graph, "the same kernels, replayed from a graph",
     gemm_mixed::kNeedsOfMmaSync},
};

// The version to take where one is enough. A processor does not care how kernels are launched, nor
// how many wait for one another.
inline const Version<Launch>& best() {
  return kVersions[std::string(gpu::kBackend) == "cpu" ? 1 : 3];
}

inline const Version<Launch>& best_bf16() {
  return kBf16Versions[std::string(gpu::kBackend) == "cpu" ? 0 : 1];
}

}  // namespace train_shakespeare
