// The gradients of queries, from the sums to which flash_wgmma's blocks have added.
#include "common/gpu.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/wgmma_backward_sm90.h"

namespace attention_backward {

#if !defined(GPU_BACKEND_HIP)

// grad_q = scale sums      grad_q (B,H,Tq,D)   sums (B,H, tiles of queries, parts), as wgmma has it
// Fixes : a gradient is complete when the last block of keys has added to it, in float.
// Idea  : the sums lie as the threads have held them; each thread reads its own again.
// Thread: a warp group for each part of a tile; a warp turns 16 rows into whole chunks.
// Costs : 6 D bytes of global memory per query.
template <class Tile>
static __global__ void flash_wgmma_grad_q(Bf16View grad_q, const float* sums, float scale,
                                          Sizes shape) {
  constexpr int kChunks = 64 * 8;
  __shared__ uint4 staged[kChunks];
  static_assert(sizeof staged == Tile::kPart * sizeof(bfloat16), "a part of a tile");
  const HeadRows block(shape);
  const int part = block.tile % Tile::kConsumers, tile = block.tile / Tile::kConsumers;
  const int first = tile * Tile::kQueries + Tile::queries_of(part) * 64;
  const int column = Tile::columns_of(part) * 64;
  // Nobody has added anything for queries that see no key.
  const int rows = min(shape.Tq - first, 64);
  if (rows <= 0) return;
  const bool seeing = visible_keys(min((tile + 1) * Tile::kQueries, shape.Tq), shape) > 0;
  const float4* fours = reinterpret_cast<const float4*>(sums + size_t{blockIdx.x} * Tile::kPart) +
                        threadIdx.x % kWarpGroup;
  float own[1][8][4] = {};
  GPU_UNROLL
  for (int j = 0; j < 8; ++j) {
    if (seeing) memcpy(own[0][j], fours + j * kWarpGroup, sizeof own[0][j]);
  }
  const float factors[1][2] = {{scale, scale}};
  store_chunks<true>(block.row(grad_q, first) + column, grad_q.stride_row, shape.D - column, rows,
                     staged, static_cast<int>(threadIdx.x) / kLanes * 16, own, factors);
}

template <class Tile>
void launch_grad_q(const Bf16View& grad_q, const float* sums, const Problem& problem,
                   hipStream_t stream) {
  const size_t parts = padded_queries(problem) / Tile::kQueries * Tile::kConsumers;
  LAUNCH_ON(stream, (flash_wgmma_grad_q<Tile>), static_cast<unsigned>(parts * problem.heads()),
            unsigned{kWarpGroup}, 0, grad_q, sums, problem.scale, sizes_of(problem, parts));
}

template void launch_grad_q<SmallHeads>(const Bf16View&, const float*, const Problem&, hipStream_t);
template void launch_grad_q<LargeHeads>(const Bf16View&, const float*, const Problem&, hipStream_t);

#endif

}  // namespace attention_backward
