// What attention's programs print and check, and what its launchers share on the host.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/report.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention {

inline constexpr size_t kFewQueries = 16;  // with so many, reading the keys is all the work

// B, H, T and D on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();
// With a scale of 1 / sqrt(D).
Problem problem_of(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal);

// One table each: the sizes given, causal and full (forwards) or causal (backwards), and forwards a
// step of generating text; without --size on a GPU also larger heads, what step 7.7 trains with and
// longer texts.
std::vector<Problem> printed(const std::vector<size_t>& sizes, bool backward, bool more);
// The same for bf16; without --size on a GPU also shorter sequences, with a mask and without, and
// gradients of long ones without a mask.
std::vector<Problem> printed_in_bf16(const std::vector<size_t>& sizes, bool backward, bool more);

// Throws UsageError where the sizes can't be, or the arrays, `arrays` with queries and as many with
// keys, fit neither the device nor, beside it, the host.
void require_sizes(const Options& options, double arrays);

// "B=4 H=16 T=2^12 D=64, causal"
std::string name(const Problem& p);
double pairs(const Problem& p);  // of a query and a key that it sees, in all heads
// Of arrays (B, H, T, D) of float: `queries` of them with T = Tq, `keys` with T = Tk.
double bytes(const Problem& p, double queries, double keys);
std::string memory_text(double bytes);  // "1.07 GB beside"

// ---- What launchers share -----------------------------------------------------------------------

// Throws where `data` is null or begins between two floats, unless it has no elements.
void check_array(const char* name, const float* data, size_t elements);
// Throws where a grid can't have so many blocks.
unsigned grid_of(size_t blocks);

// Whether each float4 of a head's rows lies at a multiple of 16 bytes, in the row as a whole or not
// at all.
bool is_aligned(const ConstView& view, size_t D);

// The view from row `row` on.
template <class V>
V from_row(V view, size_t row) {
  view.data += row * view.stride_row;
  return view;
}

// The problem without the queries that see no key.
inline Problem seeing(Problem p) {
  p.Tq -= blind_queries(p);
  return p;
}
inline View matrix(float* data, const Problem& p) { return heads_first(data, p.H, p.Tq, p.Tk); }

}  // namespace attention
