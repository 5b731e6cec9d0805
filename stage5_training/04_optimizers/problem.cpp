#include "stage5_training/04_optimizers/problem.h"

#include <algorithm>

#include "common/random.h"

namespace optimizers {

std::vector<Size> sizes() {
  return {{"n", 100000000, std::size_t{1} << 19, 20011}, {"tensors", 148, 148, 37}};
}

std::vector<std::size_t> printed(std::size_t n, bool size_given) {
  std::vector<std::size_t> sizes{n};
  if (!size_given) sizes.push_back(n / 100);
  return sizes;
}

std::string name(Kind kind, std::size_t n, std::size_t tensors) {
  return std::string(name(kind)) + "   n=" + size_text(n) + " tensors=" + std::to_string(tensors) +
         " float32";
}

std::vector<ParameterArena> cut(const ParameterArena& arena, std::size_t tensors,
                                std::uint64_t seed) {
  constexpr std::uint32_t kStream = 4;
  std::vector<std::size_t> cuts{0, arena.n};
  for (std::size_t i = 1; i < tensors; ++i) {
    const std::uint64_t high = random_numbers::word(seed, kStream, 2 * i);
    const std::uint64_t word = high << 32 | random_numbers::word(seed, kStream, 2 * i + 1);
    cuts.push_back(word % (arena.n + 1));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<ParameterArena> parts;
  for (std::size_t i = 0; i < tensors; ++i)
    parts.push_back(arena.part(cuts[i], cuts[i + 1] - cuts[i]));
  return parts;
}

std::vector<double> column(const std::vector<Element>& elements, double Element::*which) {
  std::vector<double> values;
  for (const Element& element : elements) values.push_back(element.*which);
  return values;
}

}  // namespace optimizers
