// Reads IDX files, the format of MNIST: a header of big-endian numbers, then bytes. A file may be
// compressed by gzip or plain: its first two bytes say which.
//
//   images   0x00000803, count, rows, columns, then count * rows * columns pixels
//   labels   0x00000801, count, then count labels
//
// (LeCun, Cortes, Burges: The MNIST database of handwritten digits, "File formats".)
//
// Every function throws std::runtime_error with one line that names the file: missing, truncated
// anywhere (gzip's own trailer and checksum too), of another type, of sizes that no such file has,
// with bytes behind its end. Memory grows with the bytes that are there, never with what a header
// promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct IdxImages {
  std::size_t count = 0, rows = 0, cols = 0;
  std::vector<std::uint8_t> pixels;  // (count, rows, cols)
  std::size_t pixels_per_image() const { return rows * cols; }
};

// Images of 1 to 4096 rows and columns, at least one of them, at most 2^30 pixels in all.
IdxImages read_idx_images(const std::string& path);

// At least one label, each below `classes`.
std::vector<std::uint8_t> read_idx_labels(const std::string& path, unsigned classes);

// The same of a file's bytes; the messages name `path`.
IdxImages parse_idx_images(const std::string& path, std::string_view bytes);
std::vector<std::uint8_t> parse_idx_labels(const std::string& path, std::string_view bytes,
                                           unsigned classes);
