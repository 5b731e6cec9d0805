// Writing with a model: the keys and values of all characters so far are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "stage7_transformer/07_train_shakespeare/sampling.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

namespace train_shakespeare {

// Reads and writes with a model, a few characters at a time. A character's keys and values do not
// depend on what follows it, so they are computed once and kept. The cache of a block holds the
// rows of q, k and v of all characters so far, and attention looks back in it from the last few.
//
//   qkv of a block    | q k v | q k v | q k v | q k v |               (context, 3, H, D)
//                       read before             new: only these rows go through the products
//
// Positions are learned, so that a full context can't slide: its last half is read again, from
// position 0 on.
class Writer {
 public:
  explicit Writer(const Model& model);

  // Forgets all.
  void restart() { history_.clear(), cached_ = 0; }
  // The logits (V) behind the last of these tokens, which come behind all that was read before.
  // Throws std::invalid_argument where there is no token, or one that is out of the vocabulary.
  std::vector<float> read(const std::vector<std::uint8_t>& tokens);
  // How many characters the cache holds.
  size_t cached() const { return cached_; }

 private:
  void advance(size_t count);  // the last `count` tokens of history_ go into the cache
  // The block's result for the `count` rows of x_ behind the cached ones, in place.
  void advance_block(size_t layer, size_t count);

  const Model& model_;
  std::vector<std::uint8_t> history_;  // what the cache holds, and what is about to be read
  size_t cached_ = 0;
  std::vector<DeviceBuffer<float>> qkv_;  // of each block
  DeviceBuffer<std::int32_t> tokens_;
  DeviceBuffer<float> x_, h_, norm_, attended_, hidden_, logits_;
};

// `count` characters that the model writes behind the prompt. Throws std::invalid_argument for a
// prompt that is empty, or has a character that the model does not know.
std::string write(const Model& model, const shakespeare::Vocabulary& vocabulary,
                  const std::string& prompt, size_t count, const Sampling& sampling);

}  // namespace train_shakespeare
