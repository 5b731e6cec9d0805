// Which part of a long vector or of a large matrix is held against its reference: all of it where
// that is quick, else the first chunk or row, the last one and a fixed random choice between.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/gpu_runtime.h"
#include "common/random.h"

struct Sample {
  struct Chunk {
    size_t begin, count;
  };
  std::vector<Chunk> chunks;  // ascending, without overlap; all but the last have equal counts
  size_t size = 0;            // elements in all chunks
  std::string text;           // for Report::table; empty: the sample is everything

  // The place in the vector of the sample's element i.
  size_t position(size_t i) const {
    const size_t count = chunks.front().count;
    return chunks[i / count].begin + i % count;
  }

  // Copies the sampled elements of the device array `values` to the host, chunk behind chunk.
  template <class T>
  std::vector<T> to_host(const T* values) const {
    std::vector<T> result(size);
    size_t at = 0;
    for (const Chunk& chunk : chunks) {
      HIP_CHECK(hipMemcpy(result.data() + at, values + chunk.begin, chunk.count * sizeof(T),
                          hipMemcpyDeviceToHost));
      at += chunk.count;
    }
    return result;
  }

  // Holds the sampled elements of the device array `values` against want[i] within bound(i), where
  // i counts the sample's elements. The verdict's index counts the whole vector's.
  template <class T, class Bound>
  Comparison compare(const T* values, const std::vector<double>& want, Bound bound) const {
    const std::vector<T> got = to_host(values);
    Comparison result = ::compare(
        size, [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; }, bound);
    if (size > 0) result.index = position(result.index);
    return result;
  }
};

// The sample of [0, n): everything up to 2^24 elements, else up to 256 chunks of 4096.
inline Sample choose_sample(size_t n, std::uint64_t seed) {
  constexpr size_t kWhole = size_t{1} << 24, kChunk = 4096, kChunks = 256;
  constexpr std::uint32_t kStream = 0x5A3F1Eu;  // a sequence that no input uses
  Sample sample;
  if (n <= kWhole) {
    if (n > 0) sample.chunks.push_back({0, n});
    sample.size = n;
    return sample;
  }
  const size_t chunks = gpu::ceil_div(n, kChunk);
  std::vector<size_t> chosen{0, chunks - 1};
  for (size_t i = 2; i < kChunks; ++i) {
    const std::uint64_t high = random_numbers::word(seed, kStream, 2 * i);
    chosen.push_back((high << 32 | random_numbers::word(seed, kStream, 2 * i + 1)) % chunks);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (const size_t chunk : chosen) {
    sample.chunks.push_back({chunk * kChunk, std::min(kChunk, n - chunk * kChunk)});
    sample.size += sample.chunks.back().count;
  }
  sample.text = "checked on " + std::to_string(chosen.size()) + " of " + std::to_string(chunks) +
                " chunks of " + std::to_string(kChunk);
  return sample;
}

// The rows of a row-major matrix that are compared, and its number of columns.
struct RowSample {
  std::vector<size_t> rows;  // ascending
  size_t cols = 0;
  std::string text;  // for Report::table; empty: the sample is every row

  // Copies the sampled rows to the host, row behind row, from a device matrix whose rows begin
  // `stride` elements apart (0: cols).
  template <class T>
  std::vector<T> to_host(const T* matrix, size_t stride = 0) const {
    if (stride == 0) stride = cols;
    std::vector<T> result(rows.size() * cols);
    if (cols == 0) return result;
    for (size_t r = 0; r < rows.size(); ++r)
      HIP_CHECK(hipMemcpy(result.data() + r * cols, matrix + rows[r] * stride, cols * sizeof(T),
                          hipMemcpyDeviceToHost));
    return result;
  }

  // Holds the sampled rows of the device matrix against want[i] within bound(i), where i counts the
  // sample's elements. The verdict's index is row * cols + column in the whole matrix.
  template <class T, class Bound>
  Comparison compare(const T* matrix, const std::vector<double>& want, Bound bound,
                     size_t stride = 0) const {
    const std::vector<T> got = to_host(matrix, stride);
    Comparison result = ::compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; }, bound);
    if (!got.empty()) result.index = rows[result.index / cols] * cols + result.index % cols;
    return result;
  }
};

// The sample of a matrix of `rows` x `cols`: every row, or `at_most` (2 or more) of them.
inline RowSample choose_rows(size_t rows, size_t cols, size_t at_most, std::uint64_t seed) {
  constexpr std::uint32_t kStream = 0x5A3F1Fu;  // a sequence that no input uses
  RowSample sample;
  sample.cols = cols;
  if (rows <= at_most) {
    for (size_t row = 0; row < rows; ++row) sample.rows.push_back(row);
    return sample;
  }
  sample.rows = {0, rows - 1};
  for (size_t i = 2; i < at_most; ++i) {
    const std::uint64_t high = random_numbers::word(seed, kStream, 2 * i);
    sample.rows.push_back((high << 32 | random_numbers::word(seed, kStream, 2 * i + 1)) % rows);
  }
  std::sort(sample.rows.begin(), sample.rows.end());
  sample.rows.erase(std::unique(sample.rows.begin(), sample.rows.end()), sample.rows.end());
  sample.text =
      "checked on " + std::to_string(sample.rows.size()) + " of " + std::to_string(rows) + " rows";
  return sample;
}

// "2^28" for a power of two of 1024 and more, else the digits: how tables name a size.
inline std::string size_text(size_t n) {
  if (n < 1024 || (n & (n - 1)) != 0) return std::to_string(n);
  int exponent = 0;
  while (n >> exponent != 1) ++exponent;
  return "2^" + std::to_string(exponent);
}
