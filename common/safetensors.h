// Named arrays of float, and of 64-bit integers, in one file: the safetensors format, which
// PyTorch, JAX and others read and write too (github.com/huggingface/safetensors, section
// "Format").
//
//   8 bytes    the length H of the header, little-endian; at most 100 MB
//   H bytes    JSON: {"__metadata__": {"key": "text"},
//                     "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest   the arrays, row-major and little-endian, one behind the other without gaps; the
//              offsets count from here
//
// Such a file holds numbers and texts and nothing that could run. The processor is taken to be
// little-endian, as all are that the course runs on. Implemented in safetensors.cpp (nlohmann-json
// stays in there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace safetensors {

struct Tensor {
  std::string name;
  std::vector<std::size_t> shape;  // row-major; empty for a scalar
  std::vector<float> values;       // as many as the shape's product
  bool is_integer = false;         // of type I64: then `integers` has them in place of `values`
  std::vector<std::int64_t> integers = {};
};

// What a reader can use.
enum class Types { f32, f32_and_i64 };

struct File {
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;  // each name once

  // The tensor of this name, or nullptr.
  const Tensor* find(const std::string& name) const;
};

// For messages: "[16, 4]", and a text of a file in quotes, on one line and not too long.
std::string shape_text(const std::vector<std::size_t>& shape);
std::string quoted(const std::string& text);

// Reads a whole file. Whatever is not exactly as above, or not of these types, throws
// std::runtime_error, one line that names the file and what is wrong with it; no length that the
// file claims is believed before it is held against the file's size.
File read(const std::string& path, Types types = Types::f32);

// The same of a file's bytes, however they came; the messages name `path`.
File parse_tensors(const std::string& path, std::string_view bytes, Types types = Types::f32);

// The bytes of such a file. Throws std::invalid_argument as write() does.
std::string bytes_of(const File& file);

// Writes the file, or throws std::runtime_error, one line that names it. The name never holds half
// a file: everything goes to a temporary file beside it, on to the disk, and is renamed then; where
// that fails, what was there before is there still. Throws std::invalid_argument where a tensor has
// not as many values as its shape, or a name that another one has.
void write(const std::string& path, const File& file);

}  // namespace safetensors
