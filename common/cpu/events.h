// What the instructions of sm_90 are made of, for kernels on the CPU backend: barriers that count
// phases, barriers with numbers, copies and products that run while the threads go on. Each
// function takes the calling thread's number and the place of the call, for messages. What a GPU
// would turn into garbage or an endless wait is reported.
//
// Copies and products happen as late as they may:
//   a copy to shared memory     when all threads of the block wait; until then the place is poison
//   a copy from shared memory   when its thread waits for it
//   a product                   when all threads of the block wait, and its warp group for it;
//                               before that the sums are poison
#pragma once

#include <cstdint>

#include "common/cpu/device.h"
#include "common/cpu/tensor_map.h"

namespace cpu {

inline constexpr unsigned kWarpGroupThreads = 128;
using Poison = std::uint32_t;
inline constexpr Poison kNotThereYet = 0x7FFFFFFFu;  // NaN in float, and in halves of it

struct Caller {
  unsigned thread;
  const Site& site;
};

// ---- Phases (common/cpu/block_events.cpp) -------------------------------------------------------

// *state becomes a barrier whose phases end with so many arrivals and when no bytes are missing.
void init_phases(const Caller& caller, std::uint64_t* state, int arrivals);
void publish_phases();
// Makes this phase wait for `bytes` more, then arrives.
void arrive_in_phase(const Caller& caller, std::uint64_t* state, unsigned bytes);
// Waits until the phase of this parity is complete.
Switch arrive_for_phase(const Caller& caller, std::uint64_t* state, unsigned parity);

// ---- Clusters (common/cpu/block_cluster.cpp) ----------------------------------------------------
// Blocks of a launch that run at the same time. What lies at a place in shared memory of one of
// them has the same place in the others'.

// This block's number in its cluster.
unsigned block_of_cluster();
// Waits for all threads of the cluster.
Switch arrive_at_cluster(const Caller& caller);
// Arrives at the barrier of block `block` that lies where `state` lies in this one. What the thread
// has written is not ordered before it.
void arrive_in_phase_of(const Caller& caller, unsigned block, const std::uint64_t* state);
// Where `bytes` bytes of block `block` lie that have the place of `here`. Null, and the caller is
// told, where they are not there.
const void* find_in_block(const Caller& caller, unsigned block, const void* here, unsigned bytes);

// ---- Barriers with numbers ----------------------------------------------------------------------

// Arrives at barrier `number`, 1 to 15, of `threads` threads, and waits for it unless `goes_on`.
// *any: whether any of them voted true; it must be there until the thread goes on, or be null.
Switch arrive_at_number(const Caller& caller, int number, int threads, bool goes_on, bool vote,
                        bool* any);

// ---- Copies -------------------------------------------------------------------------------------

// The place of `pointer` in shared memory.
unsigned shared_address(const void* pointer);
// `at`: the coordinates of the box's first element, the innermost first. Four of them.
void begin_load(const Caller& caller, void* to, const TensorMap& map, const int* at,
                std::uint64_t* state);
// To each block of the cluster whose bit is set; there the bytes arrive at its own barrier.
void begin_load_for(const Caller& caller, unsigned blocks, void* to, const TensorMap& map,
                    const int* at, std::uint64_t* state);
void begin_store(const Caller& caller, const TensorMap& map, const int* at, const void* from);
// Of so many bytes as they lie; where `adds`, each float is added to what is there.
void begin_store(const Caller& caller, float* to, const float* from, unsigned bytes, bool adds);
void end_stores(unsigned thread);
// Until this thread's stores have read their memory; `complete`: until they have written, too.
void wait_for_stores(const Caller& caller, bool complete);
// What the threads have stored so far is there for the units.
void fence_for_units();

// ---- Products -----------------------------------------------------------------------------------

// 64 x columns sums of a warp group += A (64, 16) B (16, columns), half as deep of tf32 and twice
// as deep of e4m3. A and B are descriptors of wgmma; where `held`, each thread has four words of A.
enum class Element { half, bfloat16, tf32, e4m3 };
struct Product {
  std::uint64_t a, b;
  unsigned columns;
  Element element;
  bool is_held, b_has_rows_along_k, adds;
  bool a_has_rows_across_k = false;
};
void begin_products(unsigned thread);
// *held must stay as it is until the product is complete.
void begin_product(const Caller& caller, const Product& product, float* sums, const unsigned* held);
void end_products(unsigned thread);
// Waits for the products of all groups but the last `late`.
Switch arrive_for_products(const Caller& caller, unsigned late);

// A warp group changes its number of registers per thread.
void set_registers(unsigned thread, unsigned registers);

// ---- Inlined into kernels -----------------------------------------------------------------------

CPU_DEVICE_FUNCTION unsigned caller_number() { return thread_number(threadIdx); }
// Behind a call that does not wait: if it found a mistake, the thread ends.
CPU_DEVICE_FUNCTION void go_on() {
  if (__builtin_expect(block_aborted, false)) throw_aborted();
}

}  // namespace cpu
