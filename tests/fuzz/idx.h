// IDX files as bytes, for the targets that read them.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace fuzz {

// A number of an IDX header: big-endian.
inline std::string idx_number(std::size_t value) {
  std::string bytes;
  for (const unsigned shift : {24u, 16u, 8u, 0u}) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

// The same bytes as gzip has them, in the smallest window.
inline std::string gzip(std::string_view bytes) {
  z_stream stream = {};
  constexpr int kWindow = 9 + 16;  // 16: gzip's header and trailer
  expect(deflateInit2(&stream, 1, Z_DEFLATED, kWindow, 1, Z_DEFAULT_STRATEGY) == Z_OK,
         "the target can pack");
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "the target can pack");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline bool is_gzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

}  // namespace fuzz
