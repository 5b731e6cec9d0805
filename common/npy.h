// Reads arrays that NumPy wrote with numpy.save: the references of scripts/references/.
// Format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

struct NpyArray {
  std::vector<std::size_t> shape;  // row-major; empty for a scalar
  std::vector<double> values;      // every element type is widened to double
  std::size_t size() const { return values.size(); }
  std::vector<float> floats() const { return {values.begin(), values.end()}; }
};

// Reads a little-endian C-order array of float32, float64, int32, int64 or uint8. Throws
// std::runtime_error naming the file and what is wrong with it (missing, truncated, other type).
NpyArray read_npy(const std::string& path);

// The same of a file's bytes; the messages name `path`.
NpyArray parse_npy(const std::string& path, std::string_view bytes);

// $COURSE_REFERENCES/name, which CTest points at the folder that its fixture has filled.
std::string reference_path(const std::string& name);
