// Copies of boxes between global and shared memory, and the maps that describe them.
#include "common/cpu/async_copies.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "common/cpu/events.h"

namespace cpu {

TensorMap tensor_map(void* data, unsigned element_bytes, unsigned dimensions,
                     const std::uint64_t* sizes, const std::uint64_t* row_bytes,
                     const unsigned* box, bool swizzled) {
  const auto refuse = [](const char* why) {
    throw std::runtime_error(std::string("tensor map: ") + why);
  };
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32,
                          kMostBytes = std::uint64_t{1} << 40;
  constexpr unsigned kMostInBox = 256;
  TensorMap map{
      static_cast<char*>(data), {1, 1, 1, 1}, {element_bytes, 0, 0, 0}, {1, 1, 1, 1}, swizzled};
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
    refuse("the matrix must begin at a multiple of 16 bytes");
  for (unsigned i = 0; i < dimensions; ++i) {
    map.sizes[i] = sizes[i], map.box[i] = box[i];
    if (sizes[i] == 0 || sizes[i] > kMostElements)
      refuse("a dimension must have 1 to 2^32 elements");
    if (box[i] == 0 || box[i] > kMostInBox) refuse("a box must have 1 to 256 elements a dimension");
    if (i == 0) continue;
    map.strides[i] = row_bytes[i - 1];
    if (row_bytes[i - 1] % 16 != 0 || row_bytes[i - 1] >= kMostBytes)
      refuse("strides must be multiples of 16 bytes, and less than 2^40");
  }
  if (box[0] * element_bytes != TensorMap::kRowBytes) refuse("a row of a box must have 128 bytes");
  return map;
}

namespace {

// Calls row(where its first element is in global memory, how many bytes lie before the matrix, how
// many of the 128 are inside, which row of the box it is) for each row of a box.
template <class Row>
void for_each_row(const TensorMap& map, const int* at, Row&& row) {
  const auto inside = [&](int dimension, std::int64_t i) {
    return i >= 0 && static_cast<std::uint64_t>(i) < map.sizes[dimension];
  };
  const std::int64_t first = std::max<std::int64_t>(at[0], 0);
  const std::int64_t end = std::min<std::int64_t>(std::int64_t{at[0]} + map.box[0],
                                                  static_cast<std::int64_t>(map.sizes[0]));
  const auto element = static_cast<std::int64_t>(map.strides[0]);
  unsigned number = 0;
  for (unsigned l = 0; l < map.box[3]; ++l)
    for (unsigned k = 0; k < map.box[2]; ++k)
      for (unsigned j = 0; j < map.box[1]; ++j, ++number) {
        const std::int64_t place[] = {first, std::int64_t{at[1]} + j, std::int64_t{at[2]} + k,
                                      std::int64_t{at[3]} + l};
        const bool any =
            first < end && inside(1, place[1]) && inside(2, place[2]) && inside(3, place[3]);
        char* data = map.data;
        if (any)
          for (int d = 0; d < 4; ++d) data += place[d] * static_cast<std::int64_t>(map.strides[d]);
        row(data, any ? static_cast<unsigned>((first - at[0]) * element) : 0,
            any ? static_cast<unsigned>((end - first) * element) : 0, number);
      }
}

// Where byte `byte` of the row at `address` stands, relative to the row.
unsigned place_in_row(const TensorMap& map, unsigned address, unsigned byte) {
  if (!map.swizzled) return byte;
  return (byte / 16 ^ (address / TensorMap::kRowBytes) % 8) * 16 + byte % 16;
}

bool overlap(unsigned a, unsigned bytes_a, unsigned b, unsigned bytes_b) {
  return a < b + bytes_b && b < a + bytes_a;
}

}  // namespace

std::string AsyncCopies::begin_load(void* to, const TensorMap& map, const int* at, size_t barrier) {
  const unsigned bytes = map.box_rows() * TensorMap::kRowBytes;
  if (!view_.holds(to, bytes)) return "a box does not lie in dynamic shared memory";
  Load load{map, {at[0], at[1], at[2], at[3]}, view_.offset(to), bytes, barrier};
  if (load.to % TensorMap::kRowBytes != 0) return "a box must begin at a multiple of 128 bytes";
  if (is_arriving(load.to, bytes)) return "another copy is on its way to the same place";
  for (const Store& store : stores_)
    if (!store.is_read && overlap(load.to, bytes, store.from, store.bytes))
      return "overwrites a box that a store has not read yet";
  if (view_.may_be_stored_late(load.to, bytes))
    return "overwrites what threads have changed, without fence_for_tma() behind it";
  for (unsigned i = 0; i < bytes; i += sizeof kNotThereYet)
    std::memcpy(static_cast<char*>(to) + i, &kNotThereYet, sizeof kNotThereYet);
  loads_.push_back(load);
  return "";
}

AsyncCopies::Load AsyncCopies::arrive(size_t i) {
  const Load load = loads_[i];
  loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(i));
  for_each_row(
      load.map, load.at, [&](const char* data, unsigned before, unsigned bytes, unsigned r) {
        char row[TensorMap::kRowBytes] = {};  // zeros beyond the edges
        if (bytes > 0) std::memcpy(row + before, data, bytes);
        const unsigned address = load.to + r * TensorMap::kRowBytes;
        for (unsigned b = 0; b < TensorMap::kRowBytes; b += 16)
          std::memcpy(view_.arena() + address + place_in_row(load.map, address, b), row + b, 16);
      });
  view_.learn(load.to, load.bytes);
  return load;
}

bool AsyncCopies::is_arriving(unsigned offset, unsigned bytes) const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [&](const Load& load) { return overlap(offset, bytes, load.to, load.bytes); });
}

std::string AsyncCopies::begin_store(unsigned thread, const TensorMap& map, const int* at,
                                     const void* from) {
  const unsigned bytes = map.box_rows() * TensorMap::kRowBytes;
  return begin(
      {map, {at[0], at[1], at[2], at[3]}, thread, 0, bytes, false, false, {}, nullptr, false},
      from);
}

std::string AsyncCopies::begin_store(unsigned thread, float* to, const float* from, unsigned bytes,
                                     bool adds) {
  if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(to) % 16 != 0)
    return "stores chunks of 16 bytes, to multiples of 16 bytes";
  return begin({{}, {}, thread, 0, bytes, false, false, {}, to, adds}, from);
}

std::string AsyncCopies::begin(Store store, const void* from) {
  if (!view_.holds(from, store.bytes)) return "a box does not lie in dynamic shared memory";
  store.from = view_.offset(from);
  if (store.from % TensorMap::kRowBytes != 0) return "a box must begin at a multiple of 128 bytes";
  if (is_arriving(store.from, store.bytes)) return "stores a box that has not arrived yet";
  if (std::string mistake = view_.read(store.from, store.bytes); !mistake.empty()) return mistake;
  const char* first = static_cast<const char*>(from);
  store.box.assign(first, first + store.bytes);
  stores_.push_back(std::move(store));
  return "";
}

void AsyncCopies::end_stores(unsigned thread) {
  for (Store& store : stores_)
    if (store.thread == thread) store.is_ended = true;
}

std::string AsyncCopies::wait_for_stores(unsigned thread, bool complete) {
  for (Store& store : stores_) {
    if (store.thread != thread || !store.is_ended) continue;
    if (!store.is_read &&
        std::memcmp(view_.arena() + store.from, store.box.data(), store.bytes) != 0)
      return "a box was changed before its store had read it";
    store.is_read = true;
    if (complete) write(store);
  }
  if (complete)
    stores_.erase(std::remove_if(stores_.begin(), stores_.end(),
                                 [&](const Store& s) { return s.thread == thread && s.is_read; }),
                  stores_.end());
  return "";
}

void AsyncCopies::write(const Store& store) {
  if (store.to != nullptr) {
    for (unsigned i = 0; i < store.bytes / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, store.box.data() + i * sizeof value, sizeof value);
      if (store.adds)
        atomicAdd(store.to + i, value);
      else
        store.to[i] = value;
    }
    return;
  }
  for_each_row(store.map, store.at, [&](char* data, unsigned before, unsigned bytes, unsigned r) {
    const unsigned address = store.from + r * TensorMap::kRowBytes;
    char row[TensorMap::kRowBytes];
    for (unsigned b = 0; b < TensorMap::kRowBytes; b += 16)
      std::memcpy(row + b,
                  store.box.data() + r * TensorMap::kRowBytes + place_in_row(store.map, address, b),
                  16);
    // Seen on an H100: a row of the matrix that ends within 16 bytes is stored up to their end.
    const unsigned end = (before + bytes + 15) / 16 * 16;
    if (bytes > 0) std::memcpy(data, row + before, end - before);
  });
}

std::string AsyncCopies::end_block() {
  if (!loads_.empty()) return "has ended, and copies to its shared memory are on their way";
  for (const Store& store : stores_)
    if (!store.is_read) return "has ended, and stores have not read its shared memory yet";
  for (const Store& store : stores_) write(store);
  return "";
}

}  // namespace cpu
