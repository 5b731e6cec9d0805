// Rows of a tensor by their numbers: 8.1's copy, but the numbers say where a row comes from.
#include <cstring>
#include <limits>

#include "stage8_framework/01_tensor/detail/convert.h"
#include "stage8_framework/01_tensor/detail/packs.h"
#include "stage8_framework/01_tensor/detail/walk.h"
#include "stage8_framework/02_backends/own/detail/permuted.h"

namespace own {
namespace {

using tensor::kPacks;
using vector_add::kBlock;

// The rows that one launch fetches, in packs.
struct Rows {
  const std::int32_t* ids;  // of the rows, one each
  std::int64_t count;       // rows of a: an id is below it
  std::int64_t out_step, a_step;
  conv2d::Divisor size;
  tensor::Walk within;  // a row
};

// out[r, ...] = a[ids[r], ...], or `missing` where a has no such row    out (rows, ...), a (N, ...)
// Thread: t of block b moves the packs b kBlock kPacks + t, + kBlock, ...: all of their ids are on
//         their way at the same time, then all of the packs.
template <class Pack>
static __global__ void __launch_bounds__(kBlock)
    gather_rows(Pack* out, const Pack* a, Rows rows, Pack missing, unsigned packs) {
  const unsigned first = blockIdx.x * (kBlock * kPacks) + threadIdx.x;
  std::int64_t id[kPacks], from[kPacks], to[kPacks];
  GPU_UNROLL
  for (unsigned k = 0; k < kPacks; ++k) {
    const unsigned i = first + k * kBlock;
    id[k] = -1;
    if (i >= packs) continue;
    const unsigned row = rows.size.quotient(i);
    const tensor::Walk::Place place = rows.within(i - row * rows.size.value);
    id[k] = rows.ids[row];
    from[k] = place.a, to[k] = row * rows.out_step + place.out;
  }
  Pack held[kPacks];
  GPU_UNROLL
  for (unsigned k = 0; k < kPacks; ++k) {
    held[k] = missing;
    if (id[k] >= 0 && id[k] < rows.count) held[k] = a[id[k] * rows.a_step + from[k]];
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kPacks; ++k)
    if (first + k * kBlock < packs) out[to[k]] = held[k];
}

// NaN, or 0 where the type has none, in each element of a pack.
template <class Pack>
Pack missing_of(Dtype type) {
  const bool has_nan =
      type == Dtype::f32 || type == Dtype::f64 || type == Dtype::f16 || type == Dtype::bf16;
  alignas(tensor::kPackBytes) unsigned char bytes[tensor::kPackBytes];
  for (size_t i = 0; i < tensor::kPackBytes / size_of(type); ++i)
    tensor::store_as(bytes, type, static_cast<std::int64_t>(i),
                     has_nan ? std::numeric_limits<double>::quiet_NaN() : 0);
  Pack pack;
  std::memcpy(&pack, bytes, sizeof pack);
  return pack;
}

// Queues `total` rows of packs, each of which is the copy `row`, in as few launches as 32 bits
// allow.
template <class Pack>
void launch_rows(Pack* out, const Pack* a, Rows rows, const tensor::Problem& row, size_t total,
                 Pack missing, hipStream_t stream) {
  tensor::for_each_part(row, [&](const tensor::Problem& part, std::int64_t to, std::int64_t from) {
    const auto size = static_cast<size_t>(part.elements());
    const size_t most = std::max(size_t{1}, static_cast<size_t>(tensor::part_limit) / size);
    Rows some = rows;
    some.size = conv2d::Divisor(size), some.within = tensor::Walk(part);
    for (size_t first = 0; first < total; first += most) {
      const size_t packs = std::min(most, total - first) * size;
      some.ids = rows.ids + first;
      LAUNCH_ON(stream, gather_rows<Pack>,
                static_cast<unsigned>(gpu::ceil_div(packs, size_t{kBlock} * kPacks)), kBlock, 0,
                out + to + static_cast<std::int64_t>(first) * rows.out_step, a + from, some,
                missing, static_cast<unsigned>(packs));
    }
  });
}

const char* supports_gather(const CourseCall& call) {
  return is_contiguous(call.inputs[1]) ? nullptr : "ids must be row-major without gaps";
}

void run_gather(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &a = call.inputs[0], &ids = call.inputs[1], &out = call.outputs[0];
  if (elements(out) == 0) return;
  const auto type = static_cast<Dtype>(a.dtype);
  tensor::Problem row = with_axes_last(a, 0);  // all of a; its first axis leads from row to row
  const std::int64_t out_step = row.out_stride[0], a_step = row.a_stride[0];
  tensor::remove_axis(row, 0);
  row = tensor::collapse(row);
  std::int64_t n = 1;
  if (row.rank > 0) {
    n = tensor::elements_of_pack(out.data, a.data, size_of(type), row);
    while (a_step % n != 0) n /= 2;
    row = tensor::in_packs(row, n);
  }
  const Rows rows{data_of<const std::int32_t>(ids), a.extent[0], out_step / n, a_step / n, {}, {}};
  tensor::with_pack(size_of(type) * static_cast<size_t>(n), [&](auto pack) {
    using Pack = decltype(pack);
    launch_rows(data_of<Pack>(out), data_of<const Pack>(a), rows, row, elements(ids),
                missing_of<Pack>(type), stream);
  });
}

}  // namespace

std::vector<Operation> gathers() { return {{"gather", supports_gather, run_gather}}; }

}  // namespace own
