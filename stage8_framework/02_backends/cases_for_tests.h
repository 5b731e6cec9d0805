// What the walk over kOps gives each operation: twelve arrangements of its inputs, for every seed
// other shapes, numbers and attributes.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "stage8_framework/02_backends/call_for_tests.h"

namespace backends_test {

// The first seven are shapes, the others layouts of inputs of one shape.
enum class Arrangement {
  contiguous,
  other_rank,  // no axes beyond what the operation needs, or many
  ones,        // axes of extent 1
  nothing,     // no elements, or sums of no terms
  blocks,      // more than a block of threads has
  primes,
  offset,         // begins one element behind the storage
  transposed,     // the last two axes
  stepped,        // every second element of the last axis
  reversed,       // the last axis
  repeated,       // the first axis has stride 0
  channels_last,  // the second axis is the innermost one
};
struct NamedArrangement {
  Arrangement arrangement;
  const char* name;
};
inline constexpr NamedArrangement kArrangements[] = {{Arrangement::contiguous, "contiguous"},
                                                     {Arrangement::other_rank, "other rank"},
                                                     {Arrangement::ones, "ones"},
                                                     {Arrangement::nothing, "nothing"},
                                                     {Arrangement::blocks, "blocks"},
                                                     {Arrangement::primes, "primes"},
                                                     {Arrangement::offset, "offset"},
                                                     {Arrangement::transposed, "transposed"},
                                                     {Arrangement::stepped, "stepped"},
                                                     {Arrangement::reversed, "reversed"},
                                                     {Arrangement::repeated, "repeated"},
                                                     {Arrangement::channels_last, "channels last"}};
static_assert(std::size(kArrangements) == 12);

// Elements of `shape` in a storage, arranged so. *storage is how many numbers that takes.
inline Layout arranged(const Shape& shape, Arrangement arrangement, size_t* storage) {
  const size_t rank = shape.rank();
  const auto layout = [&]() -> Layout {
    Shape stored = shape;
    if (arrangement == Arrangement::transposed && rank >= 2) {
      std::swap(stored[rank - 1], stored[rank - 2]);
      return Layout::contiguous(stored).transpose(-1, -2);
    }
    if (arrangement == Arrangement::channels_last && rank >= 3) {
      stored.erase(1), stored.insert(rank - 1, shape[1]);
      Shape axes = Shape::filled(rank, 0);  // (0, rank - 1, 1, 2, ...)
      for (size_t d = 0; d < rank; ++d)
        axes[d] = static_cast<std::int64_t>(d == 0 ? 0 : d == 1 ? rank - 1 : d - 1);
      return Layout::contiguous(stored).permute(axes);
    }
    if (arrangement == Arrangement::stepped && rank >= 1) {
      stored[rank - 1] *= 2;
      return Layout::contiguous(stored).slice(-1, 0, stored[rank - 1], 2);
    }
    if (arrangement == Arrangement::reversed && rank >= 1)
      return Layout::contiguous(stored).slice(-1, shape[rank - 1] - 1, -1, -1);
    if (arrangement == Arrangement::repeated && rank >= 1) {
      stored[0] = 1;
      return Layout::contiguous(stored).expand(shape);
    }
    Layout plain = Layout::contiguous(stored);
    plain.offset = arrangement == Arrangement::offset ? 1 : 0;
    return plain;
  }();
  *storage = static_cast<size_t>(layout.span().end);
  return layout;
}

// Real numbers, integers; and NaN, infinities, both zeros and numbers that are nearly those.
inline constexpr std::uint64_t kSeeds[] = {2, 3}, kSpecialSeed = 4;

// Makes the inputs of one call.
class Maker {
 public:
  Maker(Arrangement arrangement, std::uint64_t seed)
      : arrangement_(arrangement), seed_(seed), integers_(seed % 2 == 1) {}

  bool odd() const { return integers_; }
  // Whether sums of products of the numbers are exact in float.
  bool integers() const { return integers_; }
  bool is_special() const { return seed_ == kSpecialSeed; }

  // ---- Extents ----
  struct Extents {
    Shape lead;            // of the axes in front
    std::int64_t m, n, k;  // of a matrix (m, n), which is a product of (m, k) and (k, n)
  };
  Extents extents() const {
    if (is_special()) return {{1}, kSpecials, kSpecials, 4};
    switch (arrangement_) {
      case Arrangement::other_rank:
        return odd() ? Extents{{2, 1, 3, 2}, 2, 3, 4} : Extents{{}, 4, 5, 3};
      case Arrangement::ones:
        return odd() ? Extents{{1}, 4, 1, 6} : Extents{{3}, 1, 5, 1};
      case Arrangement::nothing:
        return odd() ? Extents{{2}, 0, 4, 3} : Extents{{0}, 3, 4, 2};
      case Arrangement::blocks:
        return {{1}, 3, 277, 70};
      case Arrangement::primes:
        return {{2}, 7, 31, 13};
      default:
        return {{2}, 5, 6, 4};
    }
  }
  // An extent of an axis that no sum or row may be without.
  static std::int64_t least_one(std::int64_t extent) { return std::max(extent, std::int64_t{1}); }
  Shape matrix() const {
    const Extents e = extents();
    return with(e.lead, {e.m, e.n});
  }
  static Shape with(Shape lead, const Shape& more) {
    for (const std::int64_t extent : more) lead.insert(lead.rank(), extent);
    return lead;
  }

  // ---- Inputs ----
  static constexpr size_t kSpecials = 14;
  using Number = std::function<double(size_t i)>;  // of one sequence
  Input real(const Shape& shape) {
    if (is_special()) return special(shape);
    if (integers_) return integer(shape, 3);
    return input(shape, Dtype::f32, [s = next()](size_t i) { return 2 * uniform(s, i); });
  }
  Input positive(const Shape& shape) {
    if (is_special()) return special(shape);
    if (integers_)
      return input(shape, Dtype::f32,
                   [s = next()](size_t i) { return 1 + std::floor(2 + 2 * uniform(s, i)); });
    return input(shape, Dtype::f32, [s = next()](size_t i) { return 1.125 + uniform(s, i); });
  }
  // What a kernel gets wrong that has only seen plain numbers. Rows of kSpecials of them: two
  // inputs that are broadcast to each other have all pairs.
  Input special(const Shape& shape) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static constexpr double kSpecial[] = {kNaN, kInfinity, -kInfinity, 0,       -0.0,  1, -1,
                                          2.5,  0x1p-130,  0x1p-149,   0x1p127, 1e-30, 3, -0x1p127};
    static_assert(std::size(kSpecial) == kSpecials);
    return input(shape, Dtype::f32, [s = next()](size_t i) {
      return kSpecial[(s.stream % 2 == 0 ? i : i + i / kSpecials) % kSpecials];
    });
  }
  // In (0, 1), as a sigmoid's or a softmax's results are.
  Input share(const Shape& shape) {
    return input(shape, Dtype::f32,
                 [s = next()](size_t i) { return 0.5 + 0.46875 * uniform(s, i); });
  }
  Input integer(const Shape& shape, std::int64_t most) {
    return input(shape, Dtype::f32, [s = next(), most](size_t i) {
      return std::rint(static_cast<double>(most) * uniform(s, i));
    });
  }
  // From `least` up to and without `below`; i32.
  Input whole(const Shape& shape, std::int64_t least, std::int64_t below) {
    return input(shape, Dtype::i32, [s = next(), least, below](size_t i) {
      const auto range = static_cast<std::uint64_t>(std::max(below - least, std::int64_t{1}));
      return static_cast<double>(least) +
             static_cast<double>(random_numbers::word(s.seed, s.stream, i) % range);
    });
  }
  Input truth(const Shape& shape) {
    return input(shape, Dtype::boolean, [s = next()](size_t i) { return uniform(s, i) < 0; });
  }
  Input scalar() { return dense({}, {1.5}); }
  // The same numbers where an output holds them: without gaps, and in some arrangements off the
  // alignment that an allocation has.
  Input held(const Input& numbers) const {
    const bool is_off = arrangement_ == Arrangement::offset || arrangement_ == Arrangement::primes;
    Input output = dense(numbers.layout.shape, numbers.values(), numbers.dtype);
    if (!is_off) return output;
    output.layout.offset = 1;
    output.storage.insert(output.storage.begin(), numbers.dtype == Dtype::f32 ? kNaN : -7);
    return output;
  }
  // The same for an output that is only written: poison.
  Input written(const Shape& shape) {
    return held(input(shape, Dtype::f32, [](size_t) { return kNaN; }));
  }
  // Row-major numbers in this arrangement.
  Input of(const Shape& shape, const std::vector<double>& values, Dtype dtype) {
    size_t storage = 0;
    Input result{arranged(shape, arrangement_, &storage), dtype, {}};
    result.storage.assign(storage, dtype == Dtype::f32 ? kNaN : -7);
    size_t i = 0;
    for_each_place(result.layout, [&](size_t place) { result.storage[place] = values[i++]; });
    return result;
  }

 private:
  struct Sequence {
    std::uint64_t seed;
    std::uint32_t stream;
  };
  Sequence next() { return {seed_, drawn_++}; }
  static double uniform(const Sequence& s, size_t i) {
    return static_cast<double>(random_numbers::uniform(s.seed, s.stream, i));
  }
  Input input(const Shape& shape, Dtype dtype, const Number& number) {
    std::vector<double> values(static_cast<size_t>(Layout::contiguous(shape).elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(static_cast<float>(number(i)));
    return of(shape, values, dtype);
  }

  Arrangement arrangement_;
  std::uint64_t seed_;
  bool integers_;
  std::uint32_t drawn_ = 0;
};

// The inputs and attributes of one call.
struct Ingredients {
  std::vector<Input> inputs;
  std::vector<double> attributes = {};
  std::vector<Input> given = {};
};

// What a convolution or a pooling slides over, and how.
struct Sliding {
  std::int64_t N, C, H, W, K, R, S, stride_y, stride_x, pad_y, pad_x;

  std::int64_t P() const { return (H + 2 * pad_y - R) / stride_y + 1; }
  std::int64_t Q() const { return (W + 2 * pad_x - S) / stride_x + 1; }
  Shape x() const { return {N, C, H, W}; }
  Shape w() const { return {K, C, R, S}; }
  std::vector<double> window() const {
    return {static_cast<double>(stride_y), static_cast<double>(stride_x),
            static_cast<double>(pad_y), static_cast<double>(pad_x)};
  }
};
inline Sliding sliding(Arrangement arrangement, bool odd) {
  switch (arrangement) {
    case Arrangement::ones:
      return odd ? Sliding{1, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0}
                 : Sliding{2, 1, 1, 4, 3, 1, 1, 1, 1, 0, 0};
    case Arrangement::nothing:
      return odd ? Sliding{0, 2, 4, 4, 3, 3, 3, 1, 1, 1, 1}
                 : Sliding{0, 1, 5, 5, 2, 2, 2, 2, 2, 0, 0};
    case Arrangement::blocks:
      return {1, 2, 21, 19, 3, 3, 3, 1, 1, 1, 1};
    case Arrangement::primes:
      return {3, 5, 7, 11, 7, 5, 3, 2, 3, 2, 1};
    default:
      return odd ? Sliding{2, 3, 6, 7, 4, 3, 3, 1, 1, 1, 1}
                 : Sliding{2, 3, 7, 8, 4, 3, 2, 2, 1, 1, 0};
  }
}

struct Heads {
  std::int64_t B, H, Tq, Tk, D;
};
inline Heads heads(Arrangement arrangement, bool odd) {
  switch (arrangement) {
    case Arrangement::ones:
      return odd ? Heads{1, 1, 1, 9, 4} : Heads{1, 2, 1, 1, 1};
    case Arrangement::nothing:
      return odd ? Heads{1, 2, 0, 3, 4} : Heads{0, 2, 3, 3, 4};
    case Arrangement::blocks:
      return {1, 1, 37, 70, 8};
    case Arrangement::primes:
      return {1, 3, 13, 17, 11};
    default:
      return odd ? Heads{2, 2, 7, 5, 8} : Heads{2, 2, 5, 7, 4};
  }
}

// The ingredients of every operation, by its name in kOps. `witness` computes what a backward pass
// is given of a forward one.
Ingredients ingredients_of(const std::string& op, Arrangement arrangement, std::uint64_t seed,
                           const Backend& witness);

// Whether `op` has ingredients.
bool has_ingredients(const std::string& op);

inline TestCall call_of(const Op& op, Arrangement arrangement, std::uint64_t seed,
                        const Backend& witness) {
  Ingredients ingredients = ingredients_of(op.name, arrangement, seed, witness);
  return {&op, std::move(ingredients.inputs), std::move(ingredients.attributes), false,
          std::move(ingredients.given)};
}

// The types that an operation is tested in, and the call with its factors, or rows of heads,
// rounded to one of them.
inline std::vector<Dtype> factor_types(const Op& op) {
  if (op.narrow == framework::Narrow::none) return {Dtype::f32};
  if (op.narrow == framework::Narrow::heads) return {Dtype::f32, Dtype::bf16};
  return {Dtype::f32, Dtype::bf16, Dtype::f16};
}
inline TestCall with_factors_in(Dtype type, TestCall call) {
  if (type == Dtype::f32) return call;
  const bool has_lse = call.inputs.size() > 3 && call.op->narrow == framework::Narrow::heads;
  const size_t end =
      call.op->narrow == framework::Narrow::factors ? 2 : call.inputs.size() - has_lse;
  for (size_t i = 0; i < end; ++i) {
    Input& factor = call.inputs[i];
    factor.dtype = type;
    factor.storage = values_of(bytes_of(factor.storage, type), type);
  }
  return call;
}

// A step of an optimizer of this kind; call_of() has one kind for each arrangement.
TestCall optimizer_call(int kind, Arrangement arrangement, std::uint64_t seed);

}  // namespace backends_test
