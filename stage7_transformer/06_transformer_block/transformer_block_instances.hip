// What transformer_block.h declares extern: compiled once, here, for all programs that stack
// blocks.
#include "stage7_transformer/06_transformer_block/transformer_block.h"

namespace transformer_block {

template void multiply<gemm::Layout::NT>(const gemm::Product&, const KeepAndActivate&, hipStream_t);
template void multiply<gemm::Layout::NT>(const gemm::Product&, const AddResidual&, hipStream_t);
template void multiply<gemm::Layout::NN>(const gemm::Product&, const TimesSlope&, hipStream_t);

}  // namespace transformer_block
