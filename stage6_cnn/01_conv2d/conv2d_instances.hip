// What conv2d.h declares extern: compiled once, here, for all programs with convolutions.
#include "stage6_cnn/01_conv2d/conv2d.h"

namespace conv2d {

template void launch_right_tile(const Windows&, size_t, const BiasLinear&, hipStream_t);
template void launch_right_tile(const Windows&, size_t, const BiasRelu&, hipStream_t);
template void launch_winograd(Windows, size_t, const BiasLinear&, Workspace&, hipStream_t);
template void launch_winograd(Windows, size_t, const BiasRelu&, Workspace&, hipStream_t);
template void launch_filter_sums<HighWide>(const FilterSums&, size_t, hipStream_t);
template void launch_filter_sums<HighNarrow>(const FilterSums&, size_t, hipStream_t);
template void launch_filter_sums<LowWide>(const FilterSums&, size_t, hipStream_t);
template void launch_filter_sums<LowNarrow>(const FilterSums&, size_t, hipStream_t);

}  // namespace conv2d
