// What attention_sm80.h declares extern: compiled once, here.
#include "stage7_transformer/04_attention/attention_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {
namespace sm80 {

template void launch_forward_depth<16>(const View&, float*, const ConstView&, const ConstView&,
                                       const ConstView&, const Problem&, hipStream_t);
template void launch_forward_depth<32>(const View&, float*, const ConstView&, const ConstView&,
                                       const ConstView&, const Problem&, hipStream_t);
template void launch_forward_depth<64>(const View&, float*, const ConstView&, const ConstView&,
                                       const ConstView&, const Problem&, hipStream_t);
template void launch_forward_depth<128>(const View&, float*, const ConstView&, const ConstView&,
                                        const ConstView&, const Problem&, hipStream_t);
template void launch_forward_depth<256>(const View&, float*, const ConstView&, const ConstView&,
                                        const ConstView&, const Problem&, hipStream_t);

template void launch_gradients_depth<16>(const View&, const View&, const View&, const ConstView&,
                                         const ConstView&, const float*, const ConstView&,
                                         const ConstView&, const ConstView&, const Problem&,
                                         Workspace&, hipStream_t);
template void launch_gradients_depth<32>(const View&, const View&, const View&, const ConstView&,
                                         const ConstView&, const float*, const ConstView&,
                                         const ConstView&, const ConstView&, const Problem&,
                                         Workspace&, hipStream_t);
template void launch_gradients_depth<64>(const View&, const View&, const View&, const ConstView&,
                                         const ConstView&, const float*, const ConstView&,
                                         const ConstView&, const ConstView&, const Problem&,
                                         Workspace&, hipStream_t);
template void launch_gradients_depth<128>(const View&, const View&, const View&, const ConstView&,
                                          const ConstView&, const float*, const ConstView&,
                                          const ConstView&, const ConstView&, const Problem&,
                                          Workspace&, hipStream_t);

}  // namespace sm80
}  // namespace attention

#endif
