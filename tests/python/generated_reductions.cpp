// What `fusion --sources` writes for GPUs, on the CPU backend: its reductions of 300 x 40 elements,
// against those for the host (the library that is the argument), in one part and in many. All
// outputs must have the same bits. test_fusion_sources.py compiles and runs it.
#include <dlfcn.h>
#include <math.h>  // exp(float) and the like outside of std

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/guarded.h"
#include "common/random.h"
#include "reductions.hip"
#include "stage8_framework/02_backends/own/reductions.h"

namespace {

using Size = unsigned long long;
using Kernel = void (*)(float*, float*, float*, const float*, const float*, Size, Size, Size, Size,
                        Size);
using Block = void (*)(unsigned, unsigned, const Size*);

// Sums, means and maxima, each over the first axis, the last one, and both.
constexpr Kernel kKernels[] = {fused_0, fused_1, fused_2, fused_3, fused_4,
                               fused_5, fused_6, fused_7, fused_8};
constexpr size_t kRows = 300, kCols = 40;

std::vector<float> inputs(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = random_numbers::uniform(1, stream, i);
  return values;
}

// The same bits, or two NaNs: which of two it adds passes on, a compiler chooses.
bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

// Whether both make the same of the `count` elements of each result, in parts of `length`.
bool agree(size_t number, size_t length, Block block) {
  const bool are_columns = number % 3 == 0;
  const size_t results = are_columns ? kCols : number % 3 == 1 ? kRows : 1;
  const size_t count = kRows * kCols / results, parts = gpu::ceil_div(count, length);
  const size_t divisor = number / 3 == 1 ? count : 1;
  std::vector<float> a = inputs(kRows * kCols, 0), b = inputs(kCols, 1);
  a[777] = std::numeric_limits<float>::quiet_NaN(), a[5000] = INFINITY;
  std::vector<float> of_host[] = {a, a, std::vector<float>(results * parts)};
  Guarded<float> d_a(a, 0), d_b(b, 0), out0(a.size(), 0), out1(a.size(), 0);
  Guarded<float> out2(results * parts, 0);

  const unsigned columns = own::kFewColumns;  // of a block
  const auto blocks_x = static_cast<unsigned>(are_columns ? kCols / columns : results * parts);
  const unsigned blocks_y = are_columns ? static_cast<unsigned>(parts) : 1;
  const dim3 block_of_columns(columns, own::kThreadsOfColumns / columns);
  LAUNCH(kKernels[number], dim3(blocks_x, blocks_y),
         are_columns ? block_of_columns : dim3(vector_add::kBlock), 0, out0.data(), out1.data(),
         out2.data(), d_a.data(), d_b.data(), count, results, length, parts, divisor);
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<Size> arguments;
  for (std::vector<float>* array : {&of_host[0], &of_host[1], &of_host[2], &a, &b})
    arguments.push_back(reinterpret_cast<Size>(array->data()));
  arguments.insert(arguments.end(), {count, results, length, parts, divisor});
  for (unsigned y = 0; y < blocks_y; ++y)
    for (unsigned x = 0; x < blocks_x; ++x) block(x, y, arguments.data());
  const Guarded<float>* of_gpu[] = {&out0, &out1, &out2};
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> got = of_gpu[i]->to_host();
    const bool is_equal = std::equal(got.begin(), got.end(), of_host[i].begin(), same);
    if (is_equal && of_gpu[i]->intact()) continue;
    std::printf("fused_%zu in parts of %zu: output %d differs\n", number, length, i);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr) return std::puts("no library"), 2;
  size_t cases = 0;
  bool are_equal = true;
  for (size_t number = 0; number < std::size(kKernels); ++number) {
    const std::string name = "fused_" + std::to_string(number);
    const auto block = reinterpret_cast<Block>(dlsym(library, name.c_str()));
    const size_t count = number % 3 == 0 ? kRows : number % 3 == 1 ? kCols : kRows * kCols;
    for (const size_t length : {count, count / 2 + 1, count / 3 + 1, size_t{37}}) {
      are_equal = agree(number, length, block) && are_equal;
      ++cases;
    }
  }
  std::printf("%zu cases\n", cases);
  return are_equal ? 0 : 1;
}
