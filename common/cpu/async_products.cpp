// Products of warp groups: what wgmma does, with its descriptors and its 128-byte swizzle.
#include "common/cpu/async_products.h"

#include <algorithm>
#include <cstring>

#include "common/cpu/half.h"
#include "common/fp8.h"

namespace cpu {

namespace {

// A tile as wgmma's descriptor has it. Eight rows of 128 bytes, a block of 1024, are the unit of
// the swizzle.
struct Tile {
  static constexpr unsigned kBlock = 1024;
  unsigned address, next_box, next_block;
  bool is_swizzled;

  explicit Tile(std::uint64_t descriptor)
      : address(static_cast<unsigned>(descriptor & 0x3FFF) * 16),
        next_box(static_cast<unsigned>(descriptor >> 16 & 0x3FFF) * 16),
        next_block(static_cast<unsigned>(descriptor >> 32 & 0x3FFF) * 16),
        is_swizzled(descriptor >> 62 == 1) {}

  // Where byte `byte` of row r is that lies along K.
  unsigned along_k(unsigned r, unsigned byte) const {
    return swizzled(address + r / 8 * next_block + r % 8 * TensorMap::kRowBytes + byte);
  }
  // Where the 16-bit element n of row k is, 64 of which are a row of a box.
  unsigned across_k(unsigned k, unsigned n) const {
    return swizzled(address + n / 64 * next_box + k / 8 * next_block +
                    k % 8 * TensorMap::kRowBytes + n % 64 * 2);
  }
  static unsigned swizzled(unsigned place) { return place ^ (place >> 3 & 0x70u); }

  // Calls action(where it begins) for each block of `rows` rows along K, or of 16 rows across it.
  template <class Action>
  void for_each_block(bool lies_along_k, unsigned length, Action&& action) const {
    const unsigned first = address / TensorMap::kRowBytes * TensorMap::kRowBytes;
    for (unsigned i = 0; i < (lies_along_k ? length / 8 : length / 64); ++i)
      for (unsigned j = 0; j < (lies_along_k ? 1u : 2u); ++j)
        action(lies_along_k ? first + i * next_block : first + i * next_box + j * next_block);
  }
};

template <class Action>
void for_each_block(const Product& p, Action&& action) {
  if (!p.is_held) Tile(p.a).for_each_block(!p.a_has_rows_across_k, 64, action);
  Tile(p.b).for_each_block(p.b_has_rows_along_k, p.columns, action);
}

bool same(const Product& a, const Product& b) {
  return a.a == b.a && a.b == b.b && a.columns == b.columns && a.element == b.element &&
         a.is_held == b.is_held && a.b_has_rows_along_k == b.b_has_rows_along_k &&
         a.adds == b.adds && a.a_has_rows_across_k == b.a_has_rows_across_k;
}

unsigned size_of(Element element) {
  return element == Element::tf32 ? 4 : element == Element::e4m3 ? 1 : 2;
}

// The element whose bits these are, the lowest ones. Of tf32 it ignores the last 13, as NVIDIA's
// units do.
float decode(Element element, unsigned bits) {
  if (element == Element::e4m3) return gpu::to_float(gpu::fp8{static_cast<std::uint8_t>(bits)});
  if (element == Element::bfloat16) return bfloat16_bits_to_float(static_cast<std::uint16_t>(bits));
  if (element == Element::half) return half_bits_to_float(static_cast<std::uint16_t>(bits));
  bits &= ~0x1FFFu;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

// Thread t holds sums 4 j + i, i = 0, 1: row t/32*16 + t%32/4, column 8 j + t%4*2 + i; i = 2, 3: 8
// rows further.
float& AsyncProducts::value(Sums& sums, unsigned thread, unsigned i) {
  const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
  return sums.values[row * sums.columns + i / 4 * 8 + thread % 4 * 2 + i % 2];
}

void AsyncProducts::fence(unsigned thread) {
  if (thread / kGroup < groups_.size())
    groups_[thread / kGroup].threads[thread % kGroup].fenced = true;
}

std::string AsyncProducts::check_operands(const Product& p) {
  if (p.element == Element::e4m3 && (!p.b_has_rows_along_k || p.a_has_rows_across_k))
    return "8-bit numbers want K along the rows of both tiles";
  std::string why;
  for (const Tile& tile : {Tile(p.b), Tile(p.is_held ? p.b : p.a)}) {
    if (!tile.is_swizzled) return "a descriptor without the 128-byte swizzle";
    if (tile.address / TensorMap::kRowBytes % 8 != 0)
      return "a descriptor of a tile that does not begin at a multiple of 1024 bytes";
  }
  for_each_block(p, [&](unsigned block) {
    if (!why.empty()) return;
    if (!view_.holds(block, Tile::kBlock))
      why = "a descriptor leads out of dynamic shared memory";
    else if (copies_.is_arriving(block, Tile::kBlock))
      why = "reads a tile that has not arrived yet";
    else
      why = view_.read(block, Tile::kBlock);
  });
  return why;
}

std::string AsyncProducts::begin(unsigned thread, const Product& product, float* sums,
                                 const unsigned* held) {
  if (thread / kGroup >= groups_.size()) return "this thread is in no complete warp group";
  WarpGroup& group = groups_[thread / kGroup];
  const unsigned t = thread % kGroup;
  Thread& own = group.threads[t];
  const size_t place = own.products++ - group.completed;
  const auto known = std::find_if(group.sums.begin(), group.sums.end(),
                                  [&](const Sums& s) { return s.of_thread[t] == sums; });
  if (known == group.sums.end() && !own.fenced)
    return "begin_wgmma() is missing: the sums are not ordered behind what was done to them";
  if (place == group.in_flight.size()) {  // the group's first thread here
    if (std::string why = check_operands(product); !why.empty()) return why;
    Sums* of = known != group.sums.end() ? &*known : &group.sums.emplace_back();
    of->columns = product.columns, of->values.resize(kRows * product.columns);
    ++of->products;
    group.in_flight.push_back({product, of, own.groups, {}, {}});
  }
  InFlight& here = group.in_flight[place];
  if (!same(here.product, product) || here.number != own.groups ||
      (known != group.sums.end() && here.sums != &*known) ||
      (known == group.sums.end() && here.sums->of_thread[t] != nullptr))
    return "the threads of a warp group do not agree on the product";
  if (held != nullptr) std::copy(held, held + 4, here.held_at_begin[t].begin());
  here.held[t] = held;
  if (known != group.sums.end()) return "";
  here.sums->of_thread[t] = sums;
  for (unsigned i = 0; i < product.columns / 2; ++i) {
    value(*here.sums, t, i) = sums[i];
    std::memcpy(&sums[i], &kNotThereYet, sizeof sums[i]);
  }
  return "";
}

void AsyncProducts::end_group(unsigned thread) {
  if (thread / kGroup < groups_.size()) ++groups_[thread / kGroup].threads[thread % kGroup].groups;
}

void AsyncProducts::multiply(InFlight& in_flight) {
  const Product& p = in_flight.product;
  const unsigned bytes = size_of(p.element), depth = kStepBytes / bytes;
  const unsigned in_word = sizeof(unsigned) / bytes;
  const auto read = [&](unsigned place) {
    unsigned bits = 0;
    std::memcpy(&bits, view_.arena() + place, bytes);
    return decode(p.element, bits);
  };
  float a[kRows][kStepBytes], b[kStepBytes][256];  // as deep as the smallest elements make it
  const Tile tile_a(p.a), tile_b(p.b);
  for (unsigned r = 0; r < kRows; ++r)
    for (unsigned k = 0; k < depth; ++k) {
      if (!p.is_held) {
        a[r][k] =
            read(p.a_has_rows_across_k ? tile_a.across_k(k, r) : tile_a.along_k(r, k * bytes));
        continue;
      }
      const unsigned column = k / in_word, thread = r / 16 * 32 + r % 8 * 4 + column % 4;
      const unsigned word = in_flight.held_at_begin[thread][r % 16 / 8 + column / 4 * 2];
      a[r][k] = decode(p.element, word >> k % in_word * 8 * bytes);
    }
  for (unsigned k = 0; k < depth; ++k)
    for (unsigned n = 0; n < p.columns; ++n)
      b[k][n] = read(p.b_has_rows_along_k ? tile_b.along_k(n, k * bytes) : tile_b.across_k(k, n));
  for (unsigned r = 0; r < kRows; ++r) {
    float* sums = in_flight.sums->values.data() + r * p.columns;
    if (!p.adds) std::fill(sums, sums + p.columns, 0.0f);
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned n = 0; n < p.columns; ++n) sums[n] += a[r][k] * b[k][n];
  }
}

std::string AsyncProducts::complete(unsigned number, unsigned late) {
  WarpGroup& group = groups_[number];
  const Thread& first = group.threads[0];
  for (const Thread& thread : group.threads)
    if (thread.products != first.products || thread.groups != first.groups)
      return "the threads of a warp group have not begun the same products";
  while (!group.in_flight.empty() && group.in_flight.front().number + late < first.groups) {
    InFlight& next = group.in_flight.front();
    std::string why;
    for_each_block(next.product, [&](unsigned block) {
      if (copies_.is_arriving(block, Tile::kBlock) || !view_.is_unchanged(block, Tile::kBlock))
        why = "a tile was overwritten while a product read it";
    });
    for (unsigned t = 0; t < kGroup && next.product.is_held; ++t)
      if (!std::equal(next.held[t], next.held[t] + 4, next.held_at_begin[t].begin()))
        why = "a held operand was overwritten while a product read it";
    if (!why.empty()) return why;
    multiply(next);
    --next.sums->products;
    group.in_flight.pop_front(), ++group.completed;
  }
  return deliver(group);
}

// Gives the threads their sums of which no product is under way.
std::string AsyncProducts::deliver(WarpGroup& group) {
  for (auto sums = group.sums.begin(); sums != group.sums.end();) {
    if (sums->products > 0) {
      ++sums;
      continue;
    }
    for (unsigned t = 0; t < kGroup; ++t) {
      group.threads[t].fenced = false;
      for (unsigned i = 0; i < sums->columns / 2; ++i) {
        float& to = sums->of_thread[t][i];
        if (std::memcmp(&to, &kNotThereYet, sizeof to) != 0)
          return "sums were changed while products were added to them";
        to = value(*sums, t, i);
      }
    }
    sums = group.sums.erase(sums);
  }
  return "";
}

bool AsyncProducts::is_reading(unsigned offset, unsigned bytes) const {
  bool reads = false;
  for (const WarpGroup& group : groups_)
    for (const InFlight& in_flight : group.in_flight)
      for_each_block(in_flight.product, [&](unsigned block) {
        reads = reads || (block < offset + bytes && offset < block + Tile::kBlock);
      });
  return reads;
}

std::string AsyncProducts::end_block() const {
  for (const WarpGroup& group : groups_)
    if (!group.in_flight.empty()) return "has ended, and products are under way";
  return "";
}

}  // namespace cpu
