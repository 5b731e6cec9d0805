#include "stage0_infra/03_timing/reference.h"

#include <algorithm>
#include <cstring>

#include "common/gpu_runtime.h"
#include "common/random.h"

namespace timing {
namespace {

constexpr unsigned char kOther = 0x5B;        // every byte of memory that is not the source
constexpr unsigned kOtherWord = 0x5B5B5B5Bu;  // four of them

template <class Values>
Comparison exactly(const Values& got, const std::vector<double>& want) {
  return compare(
      want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [](size_t) { return 0.0; });
}

const unsigned* words(const void* memory) { return static_cast<const unsigned*>(memory); }

}  // namespace

ProbeCheck::ProbeCheck(const Memory& memory, std::uint64_t seed)
    : memory_(memory),
      half_(choose_sample(4 * memory.n, seed)),
      host_(choose_sample(memory.host_bytes / sizeof(unsigned), seed)) {
  random_numbers::launch_fill_uniform(reinterpret_cast<float*>(memory.from), 4 * memory.n, seed, 0);
  const std::vector<unsigned> sample = half_.to_host(words(memory.from));
  want_.assign(sample.begin(), sample.end());
  std::vector<unsigned> piece(std::min(4 * memory.n, size_t{1} << 24));
  for (size_t begin = 0; begin < 4 * memory.n; begin += piece.size()) {
    const size_t count = std::min(piece.size(), 4 * memory.n - begin);
    HIP_CHECK(hipMemcpy(piece.data(), words(memory.from) + begin, count * sizeof(unsigned),
                        hipMemcpyDeviceToHost));
    for (size_t i = 0; i < count; ++i) sum_ += piece[i];
  }
}

Comparison ProbeCheck::operator()(const Launch& probe) const {
  switch (probe.does) {
    case Does::Copy:
      return check_copy(probe);
    case Does::Read:
      return check_read(probe);
    case Does::Fma:
      return check_fma(probe);
    default:
      return check_transfer(probe);
  }
}

Comparison ProbeCheck::check_copy(const Launch& probe) const {
  gpu::poison(memory_.to, memory_.bytes());
  probe.launch(memory_, nullptr);
  return half_.compare(words(memory_.to), want_, [](size_t) { return 0.0; });
}

Comparison ProbeCheck::check_read(const Launch& probe) const {
  std::vector<unsigned> sums(most_read_threads(memory_.n));
  const size_t bytes = sums.size() * sizeof(unsigned);
  HIP_CHECK(hipMemset(memory_.to, kOther, memory_.bytes()));
  HIP_CHECK(hipMemset(memory_.sums, 0, bytes));  // probes with fewer threads write fewer sums
  probe.launch(memory_, nullptr);
  HIP_CHECK(hipMemcpy(sums.data(), memory_.sums, bytes, hipMemcpyDeviceToHost));
  unsigned got = 0;
  for (const unsigned sum : sums) got += sum;
  const unsigned want = sum_ + static_cast<unsigned>(4 * memory_.n) * kOtherWord;
  return exactly(std::vector<unsigned>{got}, {static_cast<double>(want)});
}

// A thread's chains begin at 0, 1, ..., chains - 1, and all their steps together are kMultiplyAdds.
Comparison ProbeCheck::check_fma(const Launch& probe) const {
  std::vector<float> ends(fma_threads());
  const size_t bytes = ends.size() * sizeof(float);
  gpu::poison(memory_.chain_ends, bytes);
  probe.launch(memory_, nullptr);
  HIP_CHECK(hipMemcpy(ends.data(), memory_.chain_ends, bytes, hipMemcpyDeviceToHost));
  const double want = kMultiplyAdds + probe.chains * (probe.chains - 1) / 2;
  return exactly(ends, std::vector<double>(ends.size(), want));
}

Comparison ProbeCheck::check_transfer(const Launch& probe) const {
  const bool upload = probe.does == Does::UploadPageable || probe.does == Does::UploadPinned;
  const bool pinned = probe.does == Does::UploadPinned || probe.does == Does::DownloadPinned;
  void* host = pinned ? memory_.pinned : memory_.pageable;
  void* other_host = pinned ? memory_.pageable : memory_.pinned;
  const size_t bytes = memory_.host_bytes;
  std::memset(other_host, kOther, bytes);  // a probe that takes the wrong one is found out
  if (upload) {
    HIP_CHECK(hipMemcpy(host, memory_.from, bytes, hipMemcpyDeviceToHost));
    gpu::poison(memory_.to, bytes);
  } else {
    HIP_CHECK(hipMemcpy(memory_.to, memory_.from, bytes, hipMemcpyDeviceToDevice));
    std::memset(host, 0xFF, bytes);
  }
  probe.launch(memory_, nullptr);
  HIP_CHECK(hipDeviceSynchronize());

  const std::vector<unsigned> sample = host_.to_host(words(memory_.from));
  const std::vector<double> want(sample.begin(), sample.end());
  if (upload) return exactly(host_.to_host(words(memory_.to)), want);
  std::vector<unsigned> got(host_.size);
  for (size_t i = 0; i < got.size(); ++i) got[i] = words(host)[host_.position(i)];
  return exactly(got, want);
}

}  // namespace timing
