// How the next character is chosen from the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_shakespeare {

struct Sampling {
  double temperature = 0.8;  // logits are divided by it; 0: always the most probable character
  size_t top_k = 0;          // only so many of the most probable ones; 0: all
  std::uint64_t seed = 1;
};

// The token of character number i of a text. Among equal logits the smaller token comes first.
size_t choose(const std::vector<float>& logits, const Sampling& sampling, std::uint64_t i);

}  // namespace train_shakespeare
