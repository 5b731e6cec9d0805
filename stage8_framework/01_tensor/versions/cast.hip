// cast: a copy that converts. The types are arguments of the kernel, not of a template for each of
// their 64 pairs.
#include "common/gpu.h"
#include "stage8_framework/01_tensor/detail/convert.h"
#include "stage8_framework/01_tensor/detail/walk.h"

namespace tensor {

// out[i] = a[i], converted    out, a: any strides.
// Fixes : the versions of the copy move bytes, whatever they mean.
// Idea  : every lane of a grid takes the same branch of a switch over the type: it costs little,
// and
//         three kernels serve all pairs of types.
// Thread: element number blockIdx.x * kBlock + threadIdx.x.
// Costs : the bytes of both sides; some 10 instructions for each axis that is left, 10 for the
// types.
template <class Carrier>
static __global__ void __launch_bounds__(vector_add::kBlock)
    copy_cast(void* out, Dtype out_type, const void* a, Dtype a_type, Walk walk, std::int64_t to,
              std::int64_t from, unsigned elements) {
  const unsigned i = blockIdx.x * vector_add::kBlock + threadIdx.x;
  if (i >= elements) return;
  const Walk::Place place = walk(i);
  store_as(out, out_type, to + place.out, load_as<Carrier>(a, a_type, from + place.a));
}

template <class Carrier>
static void launch_carrier(void* out, Dtype out_type, const void* a, Dtype a_type, const Problem& p,
                           hipStream_t stream) {
  for_each_part(collapse(p), [&](const Problem& piece, std::int64_t to, std::int64_t from) {
    const unsigned elements = static_cast<unsigned>(piece.elements());
    LAUNCH_ON(stream, copy_cast<Carrier>,
              static_cast<unsigned>(gpu::ceil_div(elements, vector_add::kBlock)),
              vector_add::kBlock, 0, out, out_type, a, a_type, Walk(piece), to, from, elements);
  });
}

void launch_cast(void* out, Dtype out_type, const void* a, Dtype a_type, const Problem& p,
                 hipStream_t stream) {
  const bool is_f64 = a_type == Dtype::f64;
  const bool is_short = a_type == Dtype::f32 || a_type == Dtype::f16 || a_type == Dtype::bf16;
  const auto launch = is_f64     ? launch_carrier<double>
                      : is_short ? launch_carrier<float>
                                 : launch_carrier<std::int64_t>;
  launch(out, out_type, a, a_type, p, stream);
}

}  // namespace tensor
