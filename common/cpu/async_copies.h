// The unit that copies boxes of matrices between global and shared memory. Each function that can
// find a mistake returns it, else an empty text. For common/cpu/*.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/cpu/async_view.h"
#include "common/cpu/tensor_map.h"

namespace cpu {

class AsyncCopies {
 public:
  explicit AsyncCopies(AsyncView& view) : view_(view) {}
  void begin_block() { loads_.clear(), stores_.clear(); }

  struct Load {
    TensorMap map;
    int at[4];
    unsigned to, bytes;
    size_t barrier;
  };
  std::string begin_load(void* to, const TensorMap& map, const int* at, size_t barrier);
  size_t loads() const { return loads_.size(); }
  // Load number `i` arrives.
  Load arrive(size_t i);
  // A load on its way to any of these bytes?
  bool is_arriving(unsigned offset, unsigned bytes) const;

  std::string begin_store(unsigned thread, const TensorMap& map, const int* at, const void* from);
  // Of `bytes` bytes as they lie, to `to`; where `adds`, each float is added to what is there.
  std::string begin_store(unsigned thread, float* to, const float* from, unsigned bytes, bool adds);
  void end_stores(unsigned thread);
  std::string wait_for_stores(unsigned thread, bool complete);
  std::string end_block();

 private:
  struct Store {
    TensorMap map;
    int at[4];
    unsigned thread, from, bytes;
    bool is_ended, is_read;
    std::vector<char> box;  // as it was when the store began
    float* to;              // null: to the map's matrix
    bool adds;
  };
  std::string begin(Store store, const void* from);
  void write(const Store& store);

  AsyncView& view_;
  std::vector<Load> loads_;
  std::vector<Store> stores_;
};

}  // namespace cpu
