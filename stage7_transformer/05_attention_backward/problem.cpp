#include "stage7_transformer/05_attention_backward/problem.h"

#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/05_attention_backward/query_data.h"

namespace attention_backward {

void check_backward(const View& grad_q, const View& grad_k, const View& grad_v,
                    const ConstView& grad_out, const ConstView& out, const float* lse,
                    const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                    const float* memory) {
  attention::check(p);
  const size_t queries = p.heads() * p.Tq, keys = p.heads() * p.Tk;
  attention::check_array("grad_q", grad_q.data, queries),
      attention::check_array("grad_k", grad_k.data, keys);
  attention::check_array("grad_v", grad_v.data, keys);
  attention::check_array("memory", memory, queries);
  if (queries == 0 || keys == 0) return;
  attention::check_array("grad_out", grad_out.data, queries),
      attention::check_array("out", out.data, queries);
  attention::check_array("lse", lse, queries), attention::check_array("q", q.data, queries);
  attention::check_array("k", k.data, keys), attention::check_array("v", v.data, keys);
}

void launch_flash(const View& grad_q, const View& grad_k, const View& grad_v,
                  const ConstView& grad_out, const ConstView& out, const float* lse,
                  const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                  float* memory, hipStream_t stream) {
  check_backward(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p, memory);
  launch_row_products(memory, grad_out, out, p, stream);
  launch_flash_behind_delta(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p, memory, stream);
}

// delta, the probabilities and the gradients of the scores.
size_t memory_of_composed(const Problem& p) { return p.heads() * p.Tq * (1 + 2 * p.Tk); }
size_t memory_of_flash(const Problem& p) { return p.heads() * p.Tq; }  // delta
size_t memory_of_flash_bf16(const Problem& p) {
  return p.heads() * padded_queries(p) * sizeof(QueryData) / sizeof(float);
}
// The same, the sums of grad_q, and counts: of the blocks, and of those that have added to a tile
// of 64 queries or more.
size_t memory_of_flash_wgmma(const Problem& p) {
  const size_t queries = p.heads() * padded_queries(p), depth = p.D <= 64 ? 64 : 128;
  // Whole chunks of 16 bytes: memory that ends where a guard page begins then begins at one.
  const size_t counts = gpu::ceil_div(1 + queries / 64, size_t{4}) * 4;
  return memory_of_flash_bf16(p) + queries * depth + counts;
}

}  // namespace attention_backward
