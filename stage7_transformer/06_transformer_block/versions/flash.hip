// flash: attention keeps a number per row in place of the T x T matrix.
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage7_transformer/06_transformer_block/parts.h"

namespace transformer_block {

// Fixes : composed stores and reads T x T scores and probabilities of each head.
// Idea  : step 7.4 keeps the logarithm of each row's sum, lse, from which step 7.5 computes any
//         probability again.
void attend_flash(SavedActivations& kept, const Shape& shape, hipStream_t stream) {
  const auto from = heads_of_qkv(static_cast<const float*>(kept.qkv.data()), shape);
  attention::forward(heads_of(kept.attended.data(), shape), kept.lse.data(), from.q, from.k, from.v,
                     attention_problem(shape), stream);
}

void attend_backward_flash(SavedActivations& kept, Workspace& w, const Shape& shape,
                           hipStream_t stream) {
  attend_backward(attention_backward::launch_flash, kept, w, shape, stream);
}

}  // namespace transformer_block
