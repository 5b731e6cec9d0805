// Epilogues for product_test.cpp, and wrong kernels that it must see fail. On a GPU those may go
// well by chance, so they are there on the CPU backend only. gemm_mixed_test.hip compiles them.
#pragma once

#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/choose_product.h"
#include "stage2_matrix/04_gemm_mixed/product_kernels_for_tests.h"

namespace gemm_mixed_test {

using gemm_mixed::Layout;

struct BiasResidualRelu {
  const float* bias;
  const float* residual;
  size_t columns;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    const float value = sum + bias[col] + residual[row * columns + col];
    return value < 0 ? 0.0f : value;
  }
};

template <class T, class C>
void launch_residual(gemm_mixed::Kernel kernel, const gemm_mixed::Product<T, C>& p,
                     const float* bias, const float* residual) {
  gemm_mixed::launch(kernel, gemm::AllLayouts{}, p, BiasResidualRelu{bias, residual, p.N}, nullptr);
}
template void launch_residual(gemm_mixed::Kernel,
                              const gemm_mixed::Product<gpu::bfloat16, gpu::bfloat16>&,
                              const float*, const float*);
template void launch_residual(gemm_mixed::Kernel, const gemm_mixed::Product<gpu::half, float>&,
                              const float*, const float*);

// sum + bias. One that stores two neighbours at once.
struct PlusBias {
  const float* bias;
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    return sum + bias[col];
  }
  __device__ float2 two(float first, float second, size_t, size_t col) const {
    if (!fits_two()) return make_float2(NAN, NAN);  // which no result may be
    const float2 b = *reinterpret_cast<const float2*>(bias + col);
    return make_float2(first + b.x, second + b.y);
  }
  __device__ bool fits_two() const { return reinterpret_cast<size_t>(bias) % sizeof(float2) == 0; }
};
struct Negated {
  PlusBias of;
  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    return -of(sum, row, col, c);
  }
};
template <class C>
struct KeepAndNegate {
  PlusBias sums;
  C* kept;
  size_t columns;
  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    const float value = sums(sum, row, col, c);
    kept[row * columns + col] = gpu::from_float<C>(value);
    return -value;
  }
  __device__ PlusBias first() const { return sums; }
  __device__ Negated second() const { return {sums}; }
  C* stored_first() const { return kept; }
};

template <class C>
void launch_kept(std::optional<gemm_mixed::Kernel> kernel,
                 const gemm_mixed::Product<gpu::bfloat16, C>& p, const float* bias, C* kept) {
  const KeepAndNegate<C> epilogue{{bias}, kept, p.N};
  if (kernel)
    gemm_mixed::launch(*kernel, gemm::Layouts<Layout::NT>{}, p, epilogue, nullptr);
  else
    gemm_mixed::best<gemm::Layouts<Layout::NT>>(p, epilogue);
}
template void launch_kept(std::optional<gemm_mixed::Kernel>,
                          const gemm_mixed::Product<gpu::bfloat16, float>&, const float*, float*);
template void launch_kept(std::optional<gemm_mixed::Kernel>,
                          const gemm_mixed::Product<gpu::bfloat16, gpu::bfloat16>&, const float*,
                          gpu::bfloat16*);

#if defined(GPU_BACKEND_CPU)

using T = gpu::bfloat16;
using Product = gemm_mixed::Product<T, float>;

struct WhereItIs {
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return sum + static_cast<float>(1000 * row + col);
  }
};

template <Layout kLayout, PairMistake kMistake>
struct WrongPair : gemm_mixed::ProductPair<T, float, kLayout, WhereItIs> {
  using Right = gemm_mixed::ProductPair<T, float, kLayout, WhereItIs>;
  using Tile = gemm_mixed::SpecializedTile;
  using Stage = gemm_mixed::SpecializedStage<T>;
  using Is = PairMistake;

  __device__ void copy(Stage& stage, gemm_mixed::PhaseBarrier& full,
                       const gemm_mixed::TileOfPair& at, int k) const {
    gemm_mixed::TileOfPair place = at;
    if (kMistake == Is::batch_of_one_a) place.product = 0;
    if (kMistake != Is::half_of_b_in_the_other_half && kMistake != Is::first_box_of_a_twice)
      return Right::copy(stage, full, place, k);
    // As Right::copy() for TN.
    const int first = static_cast<int>(this->block) * gemm_mixed::kHalfOfB;
    for (int i = 0; i < 2; ++i) {
      const int row = at.row + (kMistake == Is::first_box_of_a_twice ? 0 : i * 64);
      gemm_mixed::load_box(stage.a + i * 64 * Tile::kDepth, this->map_a, {k, row, at.product, 0},
                           full);
      const int box = first + i;
      const int to = kMistake == Is::half_of_b_in_the_other_half ? box ^ 2 : box;
      gemm_mixed::load_box_for(gemm_mixed::kWholeCluster, stage.b[to], this->map_b,
                               {k, at.column + box * 64, at.product, 0}, full);
    }
  }

  __device__ void multiply(float (&sums)[128], const Stage& stage, int consumer, bool add) const {
    constexpr bool kA = Right::kAcrossA != (kMistake == Is::a_read_the_other_way);
    constexpr bool kB = Right::kAcrossB != (kMistake == Is::b_read_the_other_way);
    constexpr bool kStep = kB != (kMistake == Is::step_of_the_other_way);
    constexpr unsigned kBoxBytes = sizeof stage.b[0];
    const int rows = kMistake == Is::rows_of_the_other_consumer ? 1 - consumer : consumer;
    gemm_mixed::begin_wgmma();
    for (int step = 0; step < Tile::kSteps; ++step)
      gemm_mixed::multiply_64x256<T, kA, kB>(
          sums,
          gemm_mixed::describe_either<kA>(stage.a + rows * 64 * Tile::kDepth, kBoxBytes, step),
          gemm_mixed::describe_either<kStep>(stage.b, kBoxBytes, step), add || step > 0);
    gemm_mixed::end_wgmma();
  }

  __device__ void store(const gemm_mixed::TileOfPair& at, int consumer, const float (&sums)[128],
                        gemm_mixed::StoreBuffer& buffer, int group) const {
    if (kMistake != Is::epilogue_of_the_first_tile)
      return Right::store(at, consumer, sums, buffer, group);
    const typename Right::Place first_tile{0, 0, 64, 256, this->p.c, this->p.ldc};
    gemm_mixed::store_passes<float>(
        buffer, group, 256,
        typename Right::template Write<WhereItIs>{this->epilogue, first_tile, sums, buffer},
        typename Right::StoreBox{this->map_c, at.row + consumer * 64, at.column, at.product});
  }
};

template <Layout kLayout, PairMistake kMistake>
static __global__ void wrong_pairs(const CUtensorMap map_c, const CUtensorMap map_a,
                                   const CUtensorMap map_b, const Product p, int steps,
                                   const gemm_mixed::BatchOfPairs batch) {
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<gemm_mixed::SpecializedShared<T>>(dynamic);
  const WhereItIs epilogue;
  gemm_mixed::multiply_pairs(shared, batch.rows * batch.columns * static_cast<unsigned>(p.batch),
                             steps,
                             WrongPair<kLayout, kMistake>{{map_c, map_c, map_a, map_b, p, epilogue,
                                                           batch, gemm_mixed::block_of_cluster()}});
}

template <Layout kLayout, PairMistake kMistake>
static void launch_wrong(const Product& p) {
  using Tile = gemm_mixed::SpecializedTile;
  using Pair = WrongPair<kLayout, kMistake>;
  const gemm_mixed::BatchOfPairs batch{static_cast<unsigned>(gemm_mixed::pair_rows(p)),
                                       static_cast<unsigned>(gemm_mixed::tile_columns(p)), false,
                                       false};
  const unsigned pairs = batch.rows * batch.columns * static_cast<unsigned>(p.batch);
  auto c = gemm_mixed::matrices_c(p);
  if (kMistake == PairMistake::rows_of_c_without_gaps) c.ld = c.columns;
  const unsigned rows_of_b =
      (Pair::kAcrossB ? unsigned{Tile::kDepth} : unsigned{Pair::kRowsOfHalf}) /
      (kMistake == PairMistake::boxes_of_half_the_rows ? 2 : 1);
  gpu::allow_shared_bytes(wrong_pairs<kLayout, kMistake>,
                          gemm_mixed::kBytesOfRing<gemm_mixed::SpecializedStage<T>>);
  LAUNCH_IN_CLUSTERS(nullptr, (wrong_pairs<kLayout, kMistake>), gemm_mixed::kClusterBlocks,
                     gemm_mixed::clusters_of(pairs) * gemm_mixed::kClusterBlocks,
                     unsigned{Tile::kThreads},
                     gemm_mixed::kBytesOfRing<gemm_mixed::SpecializedStage<T>>,
                     gemm_mixed::tensor_map(c, gemm_mixed::kStoreRows),
                     gemm_mixed::tensor_map(gemm_mixed::matrices_a(p),
                                            Pair::kAcrossA ? Tile::kDepth : Tile::kRows),
                     gemm_mixed::tensor_map(gemm_mixed::matrices_b(p), rows_of_b), p,
                     static_cast<int>(p.K) / Tile::kDepth, batch);
}

template <int... kMistakes>
static void launch_wrong_of(PairMistake mistake, std::integer_sequence<int, kMistakes...>,
                            const Product& p) {
  using Launch = void (*)(const Product&);
  static constexpr Launch kOfTN[] = {&launch_wrong<Layout::TN, PairMistake{kMistakes}>...};
  static constexpr Launch kOfNT[] = {&launch_wrong<Layout::NT, PairMistake{kMistakes}>...};
  (p.layout == Layout::TN ? kOfTN : kOfNT)[static_cast<int>(mistake)](p);
}
void launch_pairs(PairMistake mistake, const Product& p) {
  launch_wrong_of(mistake, std::make_integer_sequence<int, kPairMistakes>(), p);
}

#endif

}  // namespace gemm_mixed_test
