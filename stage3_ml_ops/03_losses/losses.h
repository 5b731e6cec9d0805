// 3.3  Losses: one number that says how wrong a batch is, and its gradient.
//
//   squared error    mean of (p - t)^2 over n elements           gradient  2 (p - t) / n
//   cross-entropy    mean of -log softmax(x)[label] over rows    gradient  (softmax(x) - 1[label])
//                    of logits X (rows, classes)                           / counted rows
//
// Both means are sums in a fixed order, the same bits on every run, and stay on the device. The
// ladders are about how often the large arrays are read and written: in the end once each.
//
// Matrices are row-major without gaps, floats and labels aligned to 4 bytes, any sizes. A mean over
// nothing (no elements, no rows, or none that counts) is 0 / 0 = NaN; its gradient is 0. Targets
// and Workspace: detail/targets.h. Errors: gpu::Error; of cross-entropies also those of count_rows.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage3_ml_ops/03_losses/buffers.h"

namespace losses {

using softmax::Roundings;

// *mean = (sum of values) / count, in a fixed order    values (n), partials (kMaxBlocks).
void launch_mean(float* mean, const float* values, size_t n, Count count, float* partials,
                 hipStream_t stream);

// ---- Squared error ----------------------------------------------------------------------------
// *loss = the mean alone, for a batch that is not trained on.
void launch_squared_error_loss(float* loss, const float* p, const float* t, size_t n,
                               const Workspace& workspace, hipStream_t stream = nullptr);

// *loss = the mean, grad (n) = its gradient by p, which may be p or t (not in `separate`).
void launch_squared_error_separate(float* loss, float* grad, const float* p, const float* t,
                                   size_t n, const Workspace& workspace,
                                   hipStream_t stream = nullptr);
void launch_squared_error_fused(float* loss, float* grad, const float* p, const float* t, size_t n,
                                const Workspace& workspace, hipStream_t stream = nullptr);
void launch_squared_error_vectorized(float* loss, float* grad, const float* p, const float* t,
                                     size_t n, const Workspace& workspace,
                                     hipStream_t stream = nullptr);

// What the mean `want` may be off; split of grad, p and t.
double squared_error_scalar_bound(double want, const Split& split);
double squared_error_vectorized_bound(double want, const Split& split);

struct SquaredErrorLaunch {
  void (*run)(float* loss, float* grad, const float* p, const float* t, size_t n,
              const Workspace& workspace, hipStream_t stream);
  double (*bound)(double want, const Split& split);
};

inline constexpr Version<SquaredErrorLaunch> kSquaredErrorVersions[] = {
    {"mse_separate",
     {launch_squared_error_separate, squared_error_scalar_bound},
     "the loss in one pass, its gradient in another"},
    {"mse_fused",
     {launch_squared_error_fused, squared_error_scalar_bound},
     "one pass for both: they need the same difference"},
    {"mse_vectorized",
     {launch_squared_error_vectorized, squared_error_vectorized_bound},
     "16 bytes per load, a tile of them in flight"},
};

// ---- Cross-entropy ----------------------------------------------------------------------------
// *loss = the mean alone, of probabilities p or of logits (rows, classes). The second returns what
// the mean is divided by, and leaves each row's maximum and sum in workspace.wholes.
void launch_loss_of_probabilities(float* loss, const float* p, const Targets& targets,
                                  const Workspace& workspace, hipStream_t stream = nullptr);
Count launch_loss_of_logits(float* loss, const float* logits, const Targets& targets,
                            const Workspace& workspace, hipStream_t stream = nullptr);

// *loss = the mean, grad (rows, classes) = its gradient by the logits, which may be logits.
void launch_from_probabilities(float* loss, float* grad, const float* logits,
                               const Targets& targets, const Workspace& workspace,
                               hipStream_t stream = nullptr);
void launch_from_logits(float* loss, float* grad, const float* logits, const Targets& targets,
                        const Workspace& workspace, hipStream_t stream = nullptr);
void launch_fused_online(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream = nullptr);
void launch_fused_registers(float* loss, float* grad, const float* logits, const Targets& targets,
                            const Workspace& workspace, hipStream_t stream = nullptr);
void launch_fused_shared(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream = nullptr);

// The same by the version of step 3.2 that suits the number of classes: the entry for later stages.
void cross_entropy(float* loss, float* grad, const float* logits, const Targets& targets,
                   const Workspace& workspace, hipStream_t stream = nullptr);

// Through how many roundings the sum of a row's exponentials goes, for the error bounds.
Roundings roundings_from_logits(size_t classes);
using softmax::roundings_best;

struct Launch {
  void (*run)(float* loss, float* grad, const float* logits, const Targets& targets,
              const Workspace& workspace, hipStream_t stream);
  Roundings (*roundings)(size_t classes);
  bool from_probabilities;  // infinity where the label's probability is below float's range
};

inline constexpr Version<Launch> kVersions[] = {
    {"from_probabilities",
     {launch_from_probabilities, roundings_best, true},
     "softmax, loss and gradient in three kernels"},
    {"from_logits",
     {launch_from_logits, roundings_from_logits, false},
     "log-sum-exp: no probability is stored, and none underflows"},
    {"fused_online",
     {launch_fused_online, softmax::roundings_online, false},
     "loss and gradient in one kernel, which reads the row twice"},
    {"fused_registers",
     {launch_fused_registers, softmax::roundings_row_in_registers, false},
     "the row stays in registers: one read, one write"},
    {"fused_shared",
     {launch_fused_shared, softmax::roundings_row_in_shared, false},
     "part of the row in shared memory: for rows that registers can't hold"},
};

}  // namespace losses
