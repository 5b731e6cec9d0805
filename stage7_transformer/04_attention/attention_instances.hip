// What attention.h declares extern: compiled once, here, for all programs that attend.
#include "stage7_transformer/04_attention/attention.h"

namespace softmax {

template void launch_online(float*, const float*, size_t, size_t, attention::ProbabilitiesAndLogSum,
                            hipStream_t);
template bool launch_row_in_registers(float*, const float*, size_t, size_t,
                                      attention::ProbabilitiesAndLogSum, hipStream_t);
template bool launch_row_in_shared(float*, const float*, size_t, size_t,
                                   attention::ProbabilitiesAndLogSum, hipStream_t);

}  // namespace softmax

namespace attention {

template bool launch_fused_rows<1>(const View&, float*, const ConstView&, const ConstView&,
                                   const ConstView&, const Problem&, hipStream_t);
template bool launch_fused_rows<kFusedRows>(const View&, float*, const ConstView&, const ConstView&,
                                            const ConstView&, const Problem&, hipStream_t);

template void launch_flash_head<16>(const View&, float*, const ConstView&, const ConstView&,
                                    const ConstView&, const Problem&, hipStream_t);
template void launch_flash_head<32>(const View&, float*, const ConstView&, const ConstView&,
                                    const ConstView&, const Problem&, hipStream_t);
template void launch_flash_head<64>(const View&, float*, const ConstView&, const ConstView&,
                                    const ConstView&, const Problem&, hipStream_t);
template void launch_flash_head<128>(const View&, float*, const ConstView&, const ConstView&,
                                     const ConstView&, const Problem&, hipStream_t);
template void launch_flash_head<256>(const View&, float*, const ConstView&, const ConstView&,
                                     const ConstView&, const Problem&, hipStream_t);

template void launch_backward_head<16>(const Backward&, bool, hipStream_t);
template void launch_backward_head<32>(const Backward&, bool, hipStream_t);
template void launch_backward_head<64>(const Backward&, bool, hipStream_t);
template void launch_backward_head<128>(const Backward&, bool, hipStream_t);
template void launch_backward_head<256>(const Backward&, bool, hipStream_t);

}  // namespace attention
