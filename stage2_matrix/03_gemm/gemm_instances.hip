// What gemm.h declares extern: compiled once, here, for all programs that multiply matrices.
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

template void launch_vectorized<Square, Rectangles<Square>, AllLayouts>(const Product&,
                                                                        const Combine&,
                                                                        hipStream_t);
template void launch_vectorized<Square, Waves<Square>, AllLayouts>(const Product&, const Combine&,
                                                                   hipStream_t);
template void launch_double_buffered<Large, AllLayouts>(const Product&, const Combine&,
                                                        hipStream_t);
template void best<AllLayouts>(const Product&, const Combine&, hipStream_t);

}  // namespace gemm
