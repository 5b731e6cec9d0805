// Positions sorted by token: sums of neighbours in a fixed order. versions/sort.hip sorts.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// grad_token[v] = the sum of v's gradients where they are all in one chunk of kChunk sorted
// positions; else the chunk's part of it, to partials (chunks, 2, C); and where v's positions are.
//
//   sorted tokens   3 3 3 5 | 5 5 5 5 | 5 7 8 9 | 9 ...        chunks of 4
//                   \___/ \_|_________|_/ | | \_|_
//                   table  1     0      0  table  1  0         slot of the partials
//
// Fixes : gather reads a gradient where it is wanted, after B T comparisons.
// Idea  : positions of a token are neighbours now. However many a token has, a thread adds up
//         kChunk, all of them on their way at once; what goes on in the next chunk is left for
//         later.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of chunk b * height + y.
//         The first position_blocks blocks add up positions meanwhile.
// Costs : 8 bytes of grad_y per element; 4 kChunk registers; a row of partials, or two, per chunk.
template <class Value>
static __global__ void embedding_sum_chunks(Scatter out, unsigned position_blocks, float* partials,
                                            const Entry* sorted, std::uint32_t* first,
                                            std::uint32_t* last) {
  if (blockIdx.x < position_blocks) return sum_positions<Value>(out, blockIdx.x, position_blocks);
  const size_t values = out.shape.C / kWidth<Value>, n = out.shape.positions();
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const size_t step = size_t{gridDim.x - position_blocks} * blockDim.y;
  if (v >= values) return;
  const Value* grad_y = reinterpret_cast<const Value*>(out.grad_y) + v;
  for (size_t chunk = size_t{blockIdx.x - position_blocks} * blockDim.y + threadIdx.y;
       chunk * kChunk < n; chunk += step) {
    const size_t begin = chunk * kChunk;
    const unsigned count = static_cast<unsigned>(min(n - begin, size_t{kChunk}));
    std::uint32_t token[kChunk + 1];  // and the one behind the chunk
    Value held[kChunk] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kChunk; ++k) {
      token[k] = kNowhere;
      if (k >= count) continue;
      const Entry entry = sorted[begin + k];
      token[k] = entry.token;
      held[k] = grad_y[entry.position * values];
    }
    token[kChunk] = begin + kChunk < n ? sorted[begin + kChunk].token : kNowhere;

    // The run of one token that is being added up, and whether it has begun in this chunk.
    bool begun = begin == 0 || sorted[begin - 1].token != token[0];
    unsigned run = 0;
    Value sum = {};
    // exercise: add; where a run or the chunk ends, store the sum where it belongs (about 17 lines)
    GPU_UNROLL
    for (unsigned k = 0; k < kChunk; ++k) {
      add_to(sum, held[k]);
      const bool ends = token[k] != token[k + 1];
      if (k >= count || (!ends && k + 1 < kChunk)) continue;
      if (token[k] < out.shape.V) {
        const bool whole = begun && ends;
        const size_t row = whole ? token[k] : 2 * chunk + (begun ? 1 : 0);
        reinterpret_cast<Value*>(whole ? out.grad_token : partials)[row * values + v] = sum;
        if (v == 0 && begun) first[token[k]] = static_cast<std::uint32_t>(begin + run);
        if (v == 0 && ends) last[token[k]] = static_cast<std::uint32_t>(begin + k + 1);
      }
      begun = true, run = k + 1;
      sum = Value{};
    }
    // end exercise
  }
}

// grad_token[v] = 0 where no position has the token v, and the sum of its partials where its
// positions are in several chunks    grad_token (V, C), partials (chunks, 2, C).
// Fixes : a chunk can't know when the others have left their sums; the next launch can.
// Idea  : a token's partials lie behind each other: slot 1 of its first chunk, slot 0 of the rest.
//         `split` groups of threads share them, and add their sums in the order of the groups.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of token b * height / split + y /
//         split, and of its chunks y % split, y % split + split, ...
// Costs : 4 V C bytes, and 4 C for each partial; 1 barrier.
template <class Value>
static __global__ void embedding_sum_partials(float* grad_token, const float* partials,
                                              const std::uint32_t* first, const std::uint32_t* last,
                                              Shape shape, unsigned split) {
  __shared__ Value sums[kBlock];
  const size_t values = shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const unsigned part = threadIdx.y % split, tokens = blockDim.y / split;
  const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
  for (size_t block = blockIdx.x; block * tokens < shape.V; block += gridDim.x) {
    const size_t token = block * tokens + threadIdx.y / split;
    const std::uint32_t begin = token < shape.V ? first[token] : kNowhere;
    size_t chunk = 0, chunks = 0;  // none where the token has no position
    if (begin != kNowhere) chunk = begin / kChunk, chunks = (last[token] - 1) / kChunk - chunk + 1;
    Value sum = {};
    if (v < values && chunks > 1) {
      const float* rows = partials + chunk * 2 * shape.C;
      if (part == 0) sum = reinterpret_cast<const Value*>(rows)[values + v];
      add_to(sum, sum_of_rows<Value>(rows, part == 0 ? split : part, chunks, split, 2 * values, v));
    }
    sums[place] = sum;
    __syncthreads();  // the sums of all the groups are in shared memory
    if (part == 0 && v < values && token < shape.V && chunks != 1) {
      for (unsigned y = 1; y < split; ++y) add_to(sum, sums[place + y * blockDim.x]);
      reinterpret_cast<Value*>(grad_token)[token * values + v] = sum;
    }
    __syncthreads();  // the sums have been read: the next tokens' may overwrite them
  }
}

// The sums alone: two launches, or fewer where there is nothing to add.
template <class Value>
static void launch_sums(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  const Shape& shape = out.shape;
  const size_t chunks = gpu::ceil_div(shape.positions(), size_t{kChunk});
  const size_t values = shape.C / kWidth<Value>;
  std::uint32_t *first = workspace.first.data(), *last = workspace.last.data();
  float* partials = workspace.partials.data();
  if (values == 0) return;
  if (shape.T_max > 0) {  // else there is nothing at all
    BlockPlan shares = plan(chunks, values);
    const unsigned position_blocks = plan(shape.T_max, values).blocks.x;
    shares.blocks.x += position_blocks;
    LAUNCH_ON(stream, embedding_sum_chunks<Value>, shares.blocks, shares.threads, 0, out,
              position_blocks, partials, workspace.sorted(shape.V), first, last);
  }
  if (shape.V > 0) {
    BlockPlan shares = plan(shape.V, values);
    const unsigned split = shape.V <= kFewTokens ? shares.threads.y : 1;
    if (split > 1) shares.blocks.x = static_cast<unsigned>(shape.V);  // a block for each
    LAUNCH_ON(stream, embedding_sum_partials<Value>, shares.blocks, shares.threads, 0,
              out.grad_token, partials, first, last, shape, split);
  }
}

void backward_sorted(float* grad_token, float* grad_position, const float* grad_y,
                     const Shape& shape, Workspace& workspace, hipStream_t stream) {
  const Scatter out{grad_token, grad_position, grad_y, nullptr, checked(shape), nullptr};
  workspace.require(out.shape, true);
  const auto launch = rows_are_aligned(shape.C, {grad_token, grad_position, grad_y})
                          ? launch_sums<float4>
                          : launch_sums<float>;
  launch(out, workspace, stream);
}

void launch_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  sort(out.tokens, out.shape, workspace, stream);
  backward_sorted(out.grad_token, out.grad_position, out.grad_y, out.shape, workspace, stream);
}

}  // namespace embedding
