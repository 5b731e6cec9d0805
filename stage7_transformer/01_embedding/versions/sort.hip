// The first half of backward_sorted: positions in the order of their tokens, those of one token in
// their own. A counting sort, digit by digit of the token from the lowest on, each of which keeps
// the order that it finds (Knuth: The Art of Computer Programming 3, section 5.2.5). One block does
// it: the positions of a batch are few beside their gradients.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/detail/scan.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// The lanes of `among` that have the same digit as this one: below the kernel.
__device__ inline gpu::WaveMask lanes_with(unsigned digit, gpu::WaveMask among);
__device__ inline unsigned count_lanes(gpu::WaveMask lanes) {
  return static_cast<unsigned>(__popcll(lanes));
}

// sorted = the positions by token, and first[v] = kNowhere    tokens (n), entries (n), first (V).
// Fixes : gather has every element of the table look at every token.
// Idea  : each wave counts the digits of its own consecutive positions. Summed up over the digits,
//         and for each digit over the waves, the counts say where each wave's entries go; among its
//         lanes ballots tell how many before this one have the same digit.
// Thread: lane l of wave w owns every wave size-th position from the wave's l-th on.
// Costs : for each 8 bits of a token 2 reads of n entries, 1 write and 5 barriers;
//         kCounts + kCounts / 8 words of shared memory.
static __global__ void __launch_bounds__(kSortThreads)
    embedding_sort(Entry* even, Entry* odd, std::uint32_t* first, const std::int32_t* tokens,
                   size_t n, size_t V, unsigned rounds, unsigned long long* bad_token) {
  __shared__ unsigned counts[kCounts + kCounts / 8];
  const unsigned t = threadIdx.x, lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned wave = static_cast<unsigned>(gpu::wave_id());
  const unsigned lanes = static_cast<unsigned>(gpu::wave_size()), waves = kSortThreads / lanes;
  const size_t step = size_t{kSortLoads} * lanes;
  const size_t share = gpu::ceil_div(n, waves * step) * step;
  const size_t begin = min(wave * share, n), end = min(begin + share, n);
  for (size_t v = t; v < V; v += kSortThreads) first[v] = kNowhere;

  for (unsigned round = 0; round < rounds; ++round) {
    const Entry* from = round % 2 == 0 ? odd : even;  // what the round before has written
    Entry* to = round % 2 == 0 ? even : odd;
    const auto load = [&](Entry(&held)[kSortLoads], size_t at) {
      for (unsigned k = 0; k < kSortLoads; ++k) {
        const size_t i = at + k * lanes;
        if (i >= end) continue;
        if (round > 0) {
          held[k] = from[i];
        } else {
          held[k].position = static_cast<std::uint32_t>(i);
          held[k].token = static_cast<std::uint32_t>(is_token(tokens[i], V) ? tokens[i] : V);
        }
      }
    };
    const auto digit = [&](const Entry& e) { return (e.token >> kDigitBits * round) % kDigits; };
    for (unsigned i = t; i < kDigits * waves; i += kSortThreads) counts[place_of(i)] = 0;
    __syncthreads();  // all counts are 0

    for (size_t at = begin + lane; at < end; at += step) {
      Entry held[kSortLoads] = {};
      load(held, at);
      for (unsigned k = 0; k < kSortLoads; ++k) {
        if (at + k * lanes >= end) continue;
        atomicAdd(&counts[place_of(digit(held[k]) * waves + wave)], 1u);
        if (round == 0 && held[k].token == V)
          report(bad_token, at + k * lanes, tokens[at + k * lanes]);
      }
    }
    __syncthreads();  // counts[d, w] says how many entries of wave w have the digit d
    const unsigned per_thread = kDigits * waves / kSortThreads;
    unsigned sum = 0;
    for (unsigned k = 0; k < per_thread; ++k) sum += counts[place_of(t * per_thread + k)];
    sum = sum_of_those_before(sum);
    for (unsigned k = 0; k < per_thread; ++k) {
      const unsigned count = counts[place_of(t * per_thread + k)];
      counts[place_of(t * per_thread + k)] = sum;
      sum += count;
    }
    __syncthreads();  // counts[d, w] says where the first of them goes

    for (size_t at = begin; at < end; at += step) {  // alike in all lanes of the wave
      Entry held[kSortLoads] = {};
      load(held, at + lane);
      for (unsigned k = 0; k < kSortLoads; ++k) {
        const bool mine = at + lane + k * lanes < end;
        const gpu::WaveMask same = lanes_with(digit(held[k]), gpu::wave_ballot(mine));
        const unsigned before = count_lanes(same & ((gpu::WaveMask{1} << lane) - 1));
        unsigned& next = counts[place_of(digit(held[k]) * waves + wave)];
        const unsigned place = next + before;
        gpu::wave_sync();  // every lane knows its place
        if (mine && before == 0) next += count_lanes(same);
        gpu::wave_sync();  // the counts are behind these entries
        if (mine) to[place] = held[k];
      }
    }
    __syncthreads();  // all entries are in the order of the digits so far
  }
}

__device__ inline gpu::WaveMask lanes_with(unsigned digit, gpu::WaveMask among) {
  // exercise: a ballot for each bit of the digit says who agrees in it (about 4 lines)
  for (unsigned bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1u) != 0;
    const gpu::WaveMask with = gpu::wave_ballot(set);
    among &= set ? with : ~with;
  }
  // end exercise
  return among;
}
void sort(const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
          hipStream_t stream) {
  workspace.require(checked(shape), true);
  LAUNCH_ON(stream, embedding_sort, 1, kSortThreads, 0, workspace.entries[0].data(),
            workspace.entries[1].data(), workspace.first.data(), tokens, shape.positions(), shape.V,
            sort_rounds(shape.V), workspace.bad_token());
}

}  // namespace embedding
