// 5.7  train_sales: from a shop's receipts to a model that says what a sale brings in.
//
//   sale -> 24 features -> Linear(24, 32) -> ReLU -> Linear(32, 1) -> total
//
// The features are made on the device: one-hot category, day of the year, weekend, and three
// numbers normalised by mean and deviation of the training split. The model has 833 parameters, and
// a step of 1024 sales is 5 million operations: next to nothing for a large GPU. What a step costs
// is how it is launched, and that is the ladder.
//
//   operations   a kernel per operation, launched by the host
//   graph        the same kernels, replayed from a graph
//   fused        two kernels per step: the gradient, and the update that has to wait for all of it
//   persistent   one kernel for an epoch; that wait is a barrier of the grid
//
// No kernel is told which step it is: it reads the number of steps behind it from the optimizer's
// Schedule, and which sales come next follows from it (random_numbers::permute). An epoch drops
// what does not fill its last batch. All sums are taken in an order that follows from the sizes and
// the grid, so that a device gives the same bits on every run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/graph.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/train_toy.h"
#include "stage5_training/07_train_sales/sales_data.h"
#include "stage5_training/07_train_sales/sales_features.h"

namespace train_sales {

using gpu::Graph;
using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::ParameterArena;
using optimizers::Schedule;
using sequential::Sequential;
using train_toy::compare_losses;
using train_toy::Trajectory;

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kGroups = 8;           // groups of a block, one thread per hidden unit
inline constexpr unsigned kSamples = 4;          // that a group has in its registers at a time
inline constexpr unsigned kMaxBlocks = 32;       // of fused and persistent
inline constexpr unsigned kLoads = 8;            // blocks' sums on their way per thread
inline constexpr size_t kGraphSteps = 64;        // steps in a graph
inline constexpr size_t kPredictionRows = 8192;  // of a forward pass that is not trained on

// ---- Batches ----------------------------------------------------------------------------------

// Which rows of the training split a step trains on.
struct Batches {
  size_t rows, batch;  // batch is at most rows
  std::uint64_t seed;

  __host__ __device__ size_t steps() const { return rows / batch; }  // of an epoch
  __host__ __device__ std::uint32_t epoch(std::uint64_t step) const {
    return static_cast<std::uint32_t>(step / steps());
  }
  // Of the mean of squared errors: 2 / batch.
  __host__ __device__ float gradient_scale() const { return 2.0f / static_cast<float>(batch); }
  // The row of `sample` of the batch of step number `step`, the first being 0.
  __host__ __device__ size_t row(std::uint64_t step, size_t sample) const {
    const size_t place = step % steps() * batch + sample;
    return random_numbers::permute(place, rows, seed, epoch(step));
  }
};

// What all versions train; they leave it as any other would, up to rounding.
struct Settings {
  Kind kind = Kind::Adam;
  Hyperparameters hyper{};
  size_t batch = 1024;
  std::uint64_t seed = 1;
};

inline constexpr unsigned kHidden = 32;  // units; a wave's size is a multiple of it

inline Sequential make_model() {
  return Sequential{sequential::Linear(kFeatures, kHidden), sequential::ReLU(),
                    sequential::Linear(kHidden, 1)};
}

// What the steps of every version work on; they leave it as any other would, up to rounding. One
// host thread uses it.
struct Training {
  // Trains on train_rows (count, kParts) in device memory, which must outlive it. Throws
  // std::invalid_argument where they do not fill one batch.
  Training(const float4* train_rows, size_t count, const Settings& wanted);
  ~Training() { static_cast<void>(hipStreamDestroy(stream)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // New weights from the seed, and no step behind them.
  void restart();
  // Writes a checkpoint: the model, the optimizer's state, and how the sales were encoded. `source`
  // says which sales they were. Throws as sequential::save does.
  void save(const std::string& path, const Encoding& encoding, const std::string& source) const;
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where it is
  // of a training with another optimizer, seed, batch or other sales; then nothing has changed.
  void resume(const std::string& path, const std::string& source);

  const float4* rows;
  Settings settings;
  Batches batches;
  Sequential model = make_model();
  DeviceBuffer<Schedule> schedule;
  DeviceBuffer<float> curve;  // the losses of the steps of an epoch
  hipStream_t stream = nullptr;
  std::uint64_t steps = 0;  // behind us

  // Of one batch, of operations and graph.
  DeviceBuffer<float4> x;
  DeviceBuffer<float> target, grad_y, loss;
  losses::Buffers loss_buffers{1};
  // A graph of kGraphSteps steps and one of a single step, of the version that was run last.
  void (*captured)(Training&) = nullptr;
  std::unique_ptr<Graph> many, one;
  // Of fused and persistent: what the blocks leave for one another, and an epoch's rows.
  DeviceBuffer<float4> sums, shuffled;
  DeviceBuffer<Schedule> schedules;

 private:
  void begin(std::uint64_t steps_behind);
};

// ---- A kernel per operation -------------------------------------------------------------------

// Which row is sample i of a batch: the next of a training, or the next of a test.
struct Shuffled {
  Batches batches;
  const Schedule* schedule;  // of the step that begins
  __device__ size_t operator()(size_t i) const { return batches.row(schedule->step, i); }
};
struct InOrder {
  size_t first;
  __device__ size_t operator()(size_t i) const { return first + i; }
};

// x[i] = features of row which(i), target[i] = its target    x (count, kFeatures), target (count).
// Fixes : a host that shuffles has to copy every batch.
// Idea  : each thread asks which row it is to fetch a part of: nothing but a number is shuffled.
// Thread: t owns part t % kParts of sample t / kParts.
// Costs : 32 kParts bytes of global memory per sample; kParts threads find out the same row.
template <class Which>
static __global__ void gather(float4* x, float* target, const float4* rows, Which which,
                              size_t count) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t sample = thread / kParts, part = thread % kParts;
  if (sample >= count) return;
  // exercise: fetch this thread's part, and put it where the model or the loss reads it (about 5
  // lines)
  const float4 values = rows[which(sample) * kParts + part];
  if (part < kFeatureParts)
    x[sample * kFeatureParts + part] = values;
  else
    target[sample] = values.x;
  // end exercise
}

template <class Which>
inline void launch_gather(float4* x, float* target, const float4* rows, const Which& which,
                          size_t count, hipStream_t stream = nullptr) {
  if (count > 0)
    LAUNCH_ON(stream, (gather<Which>), static_cast<unsigned>(gpu::ceil_div(count * kParts, kBlock)),
              kBlock, 0, x, target, rows, which, count);
}

// curve[step of the epoch] = *loss.
// Fixes : a host that reads every loss waits for every step.
// Idea  : the device writes the curve; the host reads an epoch of it at once.
// Thread: the only one does it all.
// Costs : one launch of one thread per step.
static __global__ void record_loss(float* curve, const float* loss, Batches batches,
                                   const Schedule* schedule) {
  curve[schedule->step % batches.steps()] = *loss;
}

// Queues one step: the layers of step 5.5, the loss of 3.3 and the optimizer of 5.4 as they are.
inline void queue_operations(Training& t) {
  const size_t batch = t.settings.batch;
  Schedule* const schedule = t.schedule.data();
  // exercise: rows, forward, loss, backward, the curve and the optimizer, on t.stream (about 10
  // lines)
  launch_gather(t.x.data(), t.target.data(), t.rows, Shuffled{t.batches, schedule}, batch,
                t.stream);
  const float* y = t.model.forward(reinterpret_cast<const float*>(t.x.data()), batch, t.stream);
  losses::launch_squared_error_vectorized(t.loss.data(), t.grad_y.data(), y, t.target.data(), batch,
                                          t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.grad_y.data(), t.stream);
  LAUNCH_ON(t.stream, record_loss, 1, 1, 0, t.curve.data(), t.loss.data(), t.batches, schedule);
  optimizers::step(t.settings.kind, t.model.arena(), schedule, t.stream);
  // end exercise
}

inline void run_operations(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_operations(t);
  t.steps += steps;
}

// ---- The same kernels from a graph ------------------------------------------------------------

// Queues `steps` steps as launches of graphs that `queue` was captured in.
inline void replay(Training& t, size_t steps, void (*queue)(Training&)) {
  if (t.captured != queue) {
    const auto capture = [&](size_t count) {
      return std::make_unique<Graph>(t.stream, [&] {
        for (size_t i = 0; i < count; ++i) queue(t);
      });
    };
    t.many = capture(kGraphSteps), t.one = capture(1);
    t.captured = queue;
  }
  t.steps += steps;
  for (; steps >= kGraphSteps; steps -= kGraphSteps) t.many->launch(t.stream);
  for (; steps > 0; --steps) t.one->launch(t.stream);
}

inline void run_graph(Training& t, size_t steps) { replay(t, steps, queue_operations); }

// ---- A block's part of a step -----------------------------------------------------------------
// One thread is one hidden unit for one sample at a time: kHidden threads are a group, which takes
// a sample through the network and back without leaving the registers but for the sum over the
// units. kGroups groups are a block; it takes tiles of kTile samples.
//
// Parameters, gradients and their sums lie in slots, so that all threads of a group can read or
// write theirs at once: kRow is odd, and so no two of a wave meet in a bank of shared memory.
//
//   slot  0 ... 23   24   25 ... 48   49     ...   800 ... 831   832   833    834 835
//         unit 0     its  unit 1      its          units'        bias  (loss) 0   0
//         weights    bias weights     bias         output weight

inline constexpr unsigned kThreads = kGroups * kHidden;
inline constexpr unsigned kTile = kGroups * kSamples;
inline constexpr unsigned kRow = kFeatures + 1;
inline constexpr unsigned kOutWeights = kHidden * kRow, kOutBias = kOutWeights + kHidden;
inline constexpr unsigned kSlots = kOutBias + 4, kSlotParts = kSlots / 4;
static_assert(kRow % 2 == 1 && kSlots % 4 == 0, "banks, and slots in parts of 16 bytes");
static_assert(kSlotParts < kThreads && kTile * kParts <= kThreads, "a part per thread at most");

// Where the slots' parameters are in the arena of the model.
struct Places {
  size_t weights, biases, out_weights, out_bias;
};

// The place of a slot, or kNowhere where it holds no parameter.
inline constexpr size_t kNowhere = ~size_t{0};
__host__ __device__ inline size_t place(const Places& places, unsigned slot) {
  if (slot > kOutBias) return kNowhere;
  if (slot == kOutBias) return places.out_bias;
  if (slot >= kOutWeights) return places.out_weights + (slot - kOutWeights);
  const unsigned unit = slot / kRow, column = slot % kRow;
  return column < kFeatures ? places.weights + size_t{unit} * kFeatures + column
                            : places.biases + unit;
}

inline Places places_of(const Sequential& model) {
  const auto offset = [&](size_t tensor) {
    return static_cast<size_t>(model.tensors()[tensor].w - model.arena().w);
  };
  return {offset(0), offset(1), offset(2), offset(3)};
}

// Part `part` of the slots, from and to an array of the arena.
__device__ inline float4 load_slots(const float* array, const Places& places, unsigned part) {
  float values[4];
  GPU_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const size_t at = place(places, 4 * part + i);
    values[i] = at == kNowhere ? 0.0f : array[at];
  }
  return make_float4(values[0], values[1], values[2], values[3]);
}
__device__ inline void store_slots(float* array, const Places& places, unsigned part,
                                   float4 stored) {
  const float values[] = {stored.x, stored.y, stored.z, stored.w};
  GPU_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const size_t at = place(places, 4 * part + i);
    if (at != kNowhere) array[at] = values[i];
  }
}

// A hidden unit's slots in registers: its weights and bias, its weight in the output and the
// output's bias; or the gradients of those.
struct Unit {
  float row[kRow];
  float out_weight, out_bias;
};

__device__ inline Unit load_unit(const float* slots, unsigned unit) {
  Unit result;
  GPU_UNROLL
  for (unsigned k = 0; k < kRow; ++k) result.row[k] = slots[unit * kRow + k];
  result.out_weight = slots[kOutWeights + unit];
  result.out_bias = slots[kOutBias];
  return result;
}

// Takes the samples group, group + kGroups, ... of a tile forward and back, as far as they are
// among the first `count`; adds to the unit's gradient and to the sum of their squared errors.
// scale is 2 / batch.
__device__ inline void add_tile(Unit& gradient, float& loss, const Unit& unit,
                                const float4 (*tile)[kParts], unsigned count, float scale) {
  const unsigned group = threadIdx.x / kHidden;
  float sums[kSamples], y[kSamples];
  GPU_UNROLL
  for (unsigned s = 0; s < kSamples; ++s) {
    const float4* row = tile[group + s * kGroups];
    float sum = unit.row[kFeatures];
    GPU_UNROLL
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float4 x = row[part];
      sum = fmaf(unit.row[4 * part], x.x, sum);
      sum = fmaf(unit.row[4 * part + 1], x.y, sum);
      sum = fmaf(unit.row[4 * part + 2], x.z, sum);
      sum = fmaf(unit.row[4 * part + 3], x.w, sum);
    }
    sums[s] = sum, y[s] = fmaxf(sum, 0.0f) * unit.out_weight;
  }
  // The sum over the units of a group: all its lanes get it. The samples' exchanges overlap.
  for (unsigned distance = kHidden / 2; distance > 0; distance /= 2) {
    GPU_UNROLL
    for (unsigned s = 0; s < kSamples; ++s)
      y[s] += gpu::wave_shfl_xor(y[s], static_cast<int>(distance));
  }
  GPU_UNROLL
  for (unsigned s = 0; s < kSamples; ++s) {
    const float4* row = tile[group + s * kGroups];
    const float error =
        group + s * kGroups < count ? y[s] + unit.out_bias - row[kFeatureParts].x : 0.0f;
    // exercise: add to the loss and to the gradients of all that this thread has (about 13 lines)
    loss = fmaf(error, error, loss);
    const float grad_y = scale * error;
    gradient.out_bias += grad_y;
    gradient.out_weight = fmaf(grad_y, fmaxf(sums[s], 0.0f), gradient.out_weight);
    const float grad_sum = sums[s] > 0 ? grad_y * unit.out_weight : 0.0f;
    gradient.row[kFeatures] += grad_sum;
    GPU_UNROLL
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float4 x = row[part];
      gradient.row[4 * part] = fmaf(grad_sum, x.x, gradient.row[4 * part]);
      gradient.row[4 * part + 1] = fmaf(grad_sum, x.y, gradient.row[4 * part + 1]);
      gradient.row[4 * part + 2] = fmaf(grad_sum, x.z, gradient.row[4 * part + 2]);
      gradient.row[4 * part + 3] = fmaf(grad_sum, x.w, gradient.row[4 * part + 3]);
    }
    // end exercise
  }
}

__device__ inline void add(float4& sum, float4 x) {
  sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
}

// sums[part] = the block's gradients and loss, in slots. `of_groups` is shared memory, which no
// thread reads any more.
__device__ inline void sum_block(float4* sums, float (*of_groups)[kSlots], const Unit& gradient,
                                 float loss) {
  const unsigned group = threadIdx.x / kHidden, unit = threadIdx.x % kHidden;
  float* slots = of_groups[group];
  GPU_UNROLL
  for (unsigned k = 0; k < kRow; ++k) slots[unit * kRow + k] = gradient.row[k];
  slots[kOutWeights + unit] = gradient.out_weight;
  if (unit == 0) {
    slots[kOutBias] = gradient.out_bias, slots[kOutBias + 1] = loss;
    slots[kOutBias + 2] = slots[kOutBias + 3] = 0;
  }
  __syncthreads();  // every group's gradients are there; nobody reads the tile any more
  if (threadIdx.x >= kSlotParts) return;
  float4 sum = make_float4(0, 0, 0, 0);
  for (unsigned g = 0; g < kGroups; ++g)
    add(sum, reinterpret_cast<const float4*>(of_groups[g])[threadIdx.x]);
  sums[threadIdx.x] = sum;
}

// This thread's part of the sum over all blocks, in their order.
__device__ inline float4 sum_of_blocks(const float4* sums, unsigned blocks) {
  float4 sum = make_float4(0, 0, 0, 0);
  unsigned b = 0;
  for (; b + kLoads <= blocks; b += kLoads) {
    float4 held[kLoads];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) held[k] = sums[(b + k) * kSlotParts + threadIdx.x];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) add(sum, held[k]);
  }
  for (; b < blocks; ++b) add(sum, sums[b * kSlotParts + threadIdx.x]);
  return sum;
}

// The mean loss of the batch is in the part that begins with the bias of the output.
__device__ inline bool has_loss(unsigned part) { return part == kOutBias / 4; }

// ---- Two kernels per step ---------------------------------------------------------------------

// sums[b] = gradients and loss of block b's samples, in slots    sums (gridDim.x, kSlotParts).
// Fixes : every operation sends through memory what the next one reads again, and is a launch.
// Idea  : 833 parameters fit into every block: samples go forward and back in its registers.
// Thread: hidden unit threadIdx.x % kHidden, for the samples of its group in tiles b, b + G, ...
// Costs : the rows once; 4 kSlots gridDim.x bytes for the sums; 3 barriers for the first tile.
static __global__ void __launch_bounds__(kThreads)
    train_fused(float4* sums, const float4* rows, const float* w, Places places, Batches batches,
                const Schedule* schedule) {
  __shared__ float4 weights[kSlotParts];
  __shared__ float4 tile[kTile][kParts];
  __shared__ size_t row_of[kTile];
  __shared__ float of_groups[kGroups][kSlots];
  const unsigned sample = threadIdx.x / kParts, part = threadIdx.x % kParts;
  if (threadIdx.x < kSlotParts) weights[threadIdx.x] = load_slots(w, places, threadIdx.x);
  Unit gradient = {};
  float loss = 0;
  for (size_t first = size_t{blockIdx.x} * kTile; first < batches.batch;
       first += size_t{gridDim.x} * kTile) {
    const unsigned count = static_cast<unsigned>(
        batches.batch - first < kTile ? batches.batch - first : size_t{kTile});
    if (threadIdx.x < count) row_of[threadIdx.x] = batches.row(schedule->step, first + threadIdx.x);
    __syncthreads();  // the tile's rows are known; nobody reads the tile before any more
    if (sample < kTile)
      tile[sample][part] =
          sample < count ? rows[row_of[sample] * kParts + part] : make_float4(0, 0, 0, 0);
    __syncthreads();  // the weights and the tile are there
    const Unit unit = load_unit(reinterpret_cast<const float*>(weights), threadIdx.x % kHidden);
    add_tile(gradient, loss, unit, tile, count, batches.gradient_scale());
  }
  sum_block(sums + blockIdx.x * kSlotParts, of_groups, gradient, loss);
}

// w, m, v = rule(w, sum of the blocks' gradients, m, v), the curve's next loss, and the next step's
// number    sums (blocks, kSlotParts), one block.
// Fixes : a block of train_fused can't know when the others have left their sums.
// Idea  : the end of a kernel is a barrier of the grid; what is left fits into one block.
// Thread: t owns the slots 4 t to 4 t + 3; the last thread, which has none, begins the step.
// Costs : 4 kSlots blocks bytes of global memory; 1 barrier; two powers in double beside the sums.
template <class Rule>
static __global__ void __launch_bounds__(kThreads)
    update_fused(const float4* sums, unsigned blocks, ParameterArena arena, Places places,
                 float* curve, Batches batches, Schedule* schedule) {
  if (threadIdx.x == kThreads - 1) optimizers::advance(*schedule);
  float4 sum = make_float4(0, 0, 0, 0);
  if (threadIdx.x < kSlotParts) sum = sum_of_blocks(sums, blocks);
  __syncthreads();  // the step has begun
  if (threadIdx.x >= kSlotParts) return;
  const Schedule begun = *schedule;
  float4 w = load_slots(arena.w, places, threadIdx.x), m = {}, v = {};
  if constexpr (Rule::kStates >= 1) m = load_slots(arena.m, places, threadIdx.x);
  if constexpr (Rule::kStates >= 2) v = load_slots(arena.v, places, threadIdx.x);
  optimizers::apply(Rule{}, w, sum, m, v, begun);
  store_slots(arena.w, places, threadIdx.x, w);
  if constexpr (Rule::kStates >= 1) store_slots(arena.m, places, threadIdx.x, m);
  if constexpr (Rule::kStates >= 2) store_slots(arena.v, places, threadIdx.x, v);
  if (has_loss(threadIdx.x))
    curve[(begun.step - 1) % batches.steps()] = sum.y / static_cast<float>(batches.batch);
}

// One block per tile, as far as there are multiprocessors: persistent's must all run at once.
inline unsigned blocks_for(size_t batch) {
  int device = 0, multiprocessors = 0;
  HIP_CHECK(hipGetDevice(&device));
  HIP_CHECK(hipDeviceGetAttribute(&multiprocessors, hipDeviceAttributeMultiprocessorCount, device));
  const size_t most = std::min(kMaxBlocks, static_cast<unsigned>(multiprocessors));
  return static_cast<unsigned>(std::min(gpu::ceil_div(batch, kTile), most));
}

inline void queue_fused(Training& t) {
  const unsigned blocks = blocks_for(t.settings.batch);
  const ParameterArena& arena = t.model.arena();
  const Places places = places_of(t.model);
  LAUNCH_ON(t.stream, train_fused, blocks, kThreads, 0, t.sums.data(), t.rows, arena.w, places,
            t.batches, t.schedule.data());
  optimizers::visit_rule(t.settings.kind, [&](auto rule) {
    LAUNCH_ON(t.stream, (update_fused<decltype(rule)>), 1, kThreads, 0, t.sums.data(), blocks,
              arena, places, t.curve.data(), t.batches, t.schedule.data());
  });
}

inline void run_fused(Training& t, size_t steps) { replay(t, steps, queue_fused); }

// ---- One kernel for an epoch ------------------------------------------------------------------

// shuffled[i] = the row that is at place i of this epoch    rows, shuffled (n, kParts).
// Fixes : a block of train_fused waits until a few threads have found out its rows.
// Idea  : the whole device does an epoch's shuffling at once; batches then lie one behind another.
// Thread: t owns part t % kParts of row t / kParts.
// Costs : 32 kParts n bytes of global memory per epoch, and as much memory again as the rows take.
static __global__ void shuffle_rows(float4* shuffled, const float4* rows, Batches batches,
                                    const Schedule* schedule) {
  const Permutation order(batches.rows, batches.seed, batches.epoch(schedule->step));
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < batches.rows * kParts;
       i += threads)
    shuffled[i] = rows[order(i / kParts) * kParts + i % kParts];
}

// `steps` steps of an epoch    shuffled (rows, kParts), sums (2, gridDim.x, kSlotParts), schedules
// (steps) of these steps, *schedule the one before them.
// Fixes : fused begins every step with two launches, the weights' way from memory, and cold rows.
// Idea  : blocks stay; they exchange sums, wait for one another once, and each updates all weights.
// Thread: as in train_fused; also the slots 4 t to 4 t + 3 of w, m and v, in registers all along.
// Costs : a barrier of the grid per step; 4 kSlots gridDim.x bytes read by every block.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kThreads, 1)
    train_persistent(float4* sums, const float4* shuffled, ParameterArena arena, Places places,
                     float* curve, Batches batches, Schedule* schedule, const Schedule* schedules,
                     size_t steps) {
  __shared__ float4 weights[kSlotParts];
  __shared__ float4 tile[kTile][kParts];
  __shared__ float of_groups[kGroups][kSlots];
  const unsigned sample = threadIdx.x / kParts, part = threadIdx.x % kParts;
  const bool has_slots = threadIdx.x < kSlotParts;
  float4 w = {}, m = {}, v = {};
  if (has_slots) {
    weights[threadIdx.x] = w = load_slots(arena.w, places, threadIdx.x);
    if constexpr (Rule::kStates >= 1) m = load_slots(arena.m, places, threadIdx.x);
    if constexpr (Rule::kStates >= 2) v = load_slots(arena.v, places, threadIdx.x);
  }
  const size_t begin = schedule->step % batches.steps();  // step of the epoch
  // This thread's part of the tile that begins with sample `first` of a step.
  const auto load = [&](size_t step, size_t first) {
    const bool is_there = sample < kTile && step < begin + steps && first + sample < batches.batch;
    return is_there ? shuffled[(step * batches.batch + first + sample) * kParts + part]
                    : make_float4(0, 0, 0, 0);
  };
  const size_t first_tile = size_t{blockIdx.x} * kTile, stride = size_t{gridDim.x} * kTile;
  float4 next = load(begin, first_tile);
  for (size_t step = begin; step < begin + steps; ++step) {
    Unit gradient = {};
    float loss = 0;
    for (size_t first = first_tile; first < batches.batch; first += stride) {
      if (sample < kTile) tile[sample][part] = next;
      __syncthreads();  // the weights and the tile are there
      // The next tile is on its way while this one is worked on.
      const bool last = first + stride >= batches.batch;
      next = last ? load(step + 1, first_tile) : load(step, first + stride);
      const Unit unit = load_unit(reinterpret_cast<const float*>(weights), threadIdx.x % kHidden);
      const size_t left = batches.batch - first;
      add_tile(gradient, loss, unit, tile, static_cast<unsigned>(left < kTile ? left : kTile),
               batches.gradient_scale());
      if (!last) __syncthreads();  // nobody reads this tile any more
    }
    // Two sets of sums in turn: whoever is ahead writes into the one that nobody reads.
    float4* const of_step = sums + step % 2 * gridDim.x * kSlotParts;
    sum_block(of_step + blockIdx.x * kSlotParts, of_groups, gradient, loss);
    const Schedule begun = schedules[step - begin];
    gpu::grid_sync();  // the sums of all blocks are there
    if (has_slots) {
      const float4 sum = sum_of_blocks(of_step, gridDim.x);
      optimizers::apply(Rule{}, w, sum, m, v, begun);
      weights[threadIdx.x] = w;
      if (blockIdx.x == 0 && has_loss(threadIdx.x))
        curve[step] = sum.y / static_cast<float>(batches.batch);
    }
  }
  if (blockIdx.x > 0 || !has_slots) return;
  store_slots(arena.w, places, threadIdx.x, w);
  if constexpr (Rule::kStates >= 1) store_slots(arena.m, places, threadIdx.x, m);
  if constexpr (Rule::kStates >= 2) store_slots(arena.v, places, threadIdx.x, v);
  if (threadIdx.x == 0) *schedule = schedules[steps - 1];
}

inline void run_persistent(Training& t, size_t steps) {
  const size_t per_epoch = t.batches.steps();
  if (t.shuffled.size() == 0) {
    t.shuffled = DeviceBuffer<float4>(t.batches.rows * kParts);
    t.schedules = DeviceBuffer<Schedule>(per_epoch);
  }
  Schedule* const schedule = t.schedule.data();
  while (steps > 0) {
    const size_t count = std::min(steps, per_epoch - t.steps % per_epoch);
    LAUNCH(shuffle_rows, full_grid(t.shuffled.size()), kBlock, 0, t.shuffled.data(), t.rows,
           t.batches, schedule);
    LAUNCH(train_toy::fill_schedules, static_cast<unsigned>(gpu::ceil_div(count, kBlock)), kBlock,
           0, t.schedules.data(), t.settings.hyper, static_cast<unsigned>(t.steps),
           static_cast<unsigned>(count));
    optimizers::visit_rule(t.settings.kind, [&](auto rule) {
      LAUNCH_COOPERATIVE((train_persistent<decltype(rule)>), blocks_for(t.settings.batch), kThreads,
                         0, t.sums.data(), t.shuffled.data(), t.model.arena(), places_of(t.model),
                         t.curve.data(), t.batches, schedule, t.schedules.data(), count);
    });
    t.steps += count, steps -= count;
  }
}

// ---- The versions -----------------------------------------------------------------------------

// Queues `steps` more steps.
using Launch = void (*)(Training& training, size_t steps);

inline constexpr Version<Launch> kVersions[] = {
    {"operations", run_operations, "a kernel per operation, launched by the host"},
    {"graph", run_graph, "the same kernels, replayed from a graph"},
    {"fused", run_fused, "two kernels per step: samples go forward and back in registers"},
    {"persistent", run_persistent, "one kernel per epoch: a step is a barrier of the grid"},
};

// ---- Training ---------------------------------------------------------------------------------

inline Training::Training(const float4* train_rows, size_t count, const Settings& wanted)
    : rows(train_rows), settings(wanted), batches{count, wanted.batch, wanted.seed} {
  if (wanted.batch == 0 || wanted.batch > batches.rows)
    throw std::invalid_argument("a batch of " + std::to_string(wanted.batch) +
                                " is not from 1 to the " + std::to_string(batches.rows) +
                                " rows of the training split");
  schedule = DeviceBuffer<Schedule>(1);
  curve = DeviceBuffer<float>(batches.steps());
  x = DeviceBuffer<float4>(wanted.batch * kFeatureParts);
  target = DeviceBuffer<float>(wanted.batch);
  grad_y = DeviceBuffer<float>(wanted.batch);
  loss = DeviceBuffer<float>(1);
  sums = DeviceBuffer<float4>(size_t{2} * kMaxBlocks * kSlotParts);
  model.reserve(std::max(wanted.batch, kPredictionRows));  // before a graph knows where it is
  HIP_CHECK(hipStreamCreate(&stream));
  restart();
}

inline void Training::begin(std::uint64_t steps_behind) {
  Schedule behind;
  behind.hyper = settings.hyper, behind.step = steps_behind;
  schedule.to_device(&behind, 1);  // graphs know where it is
  curve.poison();
  steps = steps_behind;
}

inline void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

// ---- Reference --------------------------------------------------------------------------------

// The model's parameters one behind the other, in the order of its tensors. Waits for the device.
inline std::vector<float> parameters_of(const Sequential& model) {
  std::vector<float> result;
  for (const sequential::NamedTensor& tensor : model.tensors()) {
    result.resize(result.size() + tensor.n);
    HIP_CHECK(hipMemcpy(result.data() + result.size() - tensor.n, tensor.w,
                        tensor.n * sizeof(float), hipMemcpyDeviceToHost));
  }
  return result;
}

// The network in double, and its training by the settings.
class Reference {
 public:
  // rows: the training split. The first twin decides otherwise where a float version might: whether
  // a hidden unit's sum that is nearly 0 is above ReLU's corner.
  Reference(const std::vector<float>& parameters, const std::vector<float4>& rows,
            const Batches& batches, const Settings& settings, unsigned twin)
      : rows_(rows),
        batches_(batches),
        settings_(settings),
        twin_(twin),
        elements_(parameters.size()) {
    for (size_t i = 0; i < elements_.size(); ++i)
      elements_[i].w = static_cast<double>(parameters[i]);
  }

  // The loss of step number `step`, the first being 0; leaves its gradient, and takes it.
  double step(size_t step) {
    gradient_.assign(elements_.size(), 0);
    double loss = 0;
    for (size_t sample = 0; sample < batches_.batch; ++sample)
      loss += sale(rows_.data() + batches_.row(step, sample) * kParts);
    // One rounding of each gradient: less than any version has made of it.
    const std::vector<float> rounded(gradient_.begin(), gradient_.end());
    optimizers::step_cpu(settings_.kind, settings_.hyper, step + 1, rounded, elements_);
    train_toy::Twins::move(elements_, twin_, step + 1);
    return loss;
  }
  const std::vector<double>& gradient() const { return gradient_; }

 private:
  // Its share in the loss; adds to the gradient.
  double sale(const float4* row) {
    constexpr size_t kBiases = size_t{kHidden} * kFeatures, kOuts = kBiases + kHidden;
    const double n = static_cast<double>(batches_.batch);
    double x[kFeatures], sums[kHidden], y = elements_.back().w;
    bool passes[kHidden];
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float values[] = {row[part].x, row[part].y, row[part].z, row[part].w};
      for (unsigned i = 0; i < 4; ++i) x[4 * part + i] = static_cast<double>(values[i]);
    }
    for (size_t unit = 0; unit < kHidden; ++unit) {
      double sum = elements_[kBiases + unit].w, terms = std::fabs(sum);
      for (size_t k = 0; k < kFeatures; ++k) {
        const double term = elements_[unit * kFeatures + k].w * x[k];
        sum += term, terms += std::fabs(term);
      }
      // What a float version's sum usually is off: sqrt(n) u of its terms.
      const double doubt = 2 * std::sqrt(double{kFeatures}) * kFloatRoundoff * terms;
      passes[unit] = (sum > 0) != (twin_ == 1 && sum != 0 && std::fabs(sum) <= doubt);
      sums[unit] = sum;
      y += std::fmax(sum, 0.0) * elements_[kOuts + unit].w;
    }
    const double error = y - static_cast<double>(row[kFeatureParts].x);
    const double grad_y = 2 * error / n;
    gradient_.back() += grad_y;
    for (size_t unit = 0; unit < kHidden; ++unit) {
      if (!passes[unit]) continue;
      const double grad_sum = grad_y * elements_[kOuts + unit].w;
      gradient_[kOuts + unit] += grad_y * sums[unit];
      gradient_[kBiases + unit] += grad_sum;
      for (size_t k = 0; k < kFeatures; ++k) gradient_[unit * kFeatures + k] += grad_sum * x[k];
    }
    return error * error / n;
  }

  const std::vector<float4>& rows_;
  Batches batches_;
  Settings settings_;
  unsigned twin_;
  std::vector<optimizers::Element> elements_;
  std::vector<double> gradient_;
};

// How many first steps are held against the reference.
inline constexpr size_t kChecked = kTimes ? 20 : 2;

// What the first `steps` steps must do from these parameters; it may end before. Ten times what the
// twins drift away is allowed. A parameter whose gradient is all rounding may go anywhere, by
// Adam's rule even far; but then, to first order, the loss does not depend on it.
inline Trajectory trajectory_cpu(const std::vector<float>& parameters,
                                 const std::vector<float4>& rows, const Batches& batches,
                                 const Settings& settings, size_t steps) {
  return train_toy::follow(
      steps, 3, train_toy::Twins(10),
      [&](unsigned twin) {
        return Reference(train_toy::Twins::beside(parameters, twin), rows, batches, settings, twin);
      },
      [](Reference& run, std::uint64_t t) { return run.step(t - 1); });
}

// ---- How good the model is --------------------------------------------------------------------

// The model's totals, normalised, of rows [0, count). Waits for the device.
inline std::vector<float> predict(Sequential& model, const float4* rows, size_t count) {
  HIP_CHECK(hipDeviceSynchronize());
  const size_t most = std::min(kPredictionRows, count);
  DeviceBuffer<float4> x(most * kFeatureParts);
  DeviceBuffer<float> target(most);
  std::vector<float> totals(count);
  for (size_t first = 0; first < count; first += most) {
    const size_t some = std::min(most, count - first);
    launch_gather(x.data(), target.data(), rows, InOrder{first}, some);
    const float* y = model.forward(reinterpret_cast<const float*>(x.data()), some);
    HIP_CHECK(hipMemcpy(totals.data() + first, y, some * sizeof(float), hipMemcpyDeviceToHost));
  }
  return totals;
}

// The mean of |total - prediction(i)| over the test split, in the currency of the file.
template <class Prediction>
double mean_absolute_error(const DataSet& data, Prediction prediction) {
  double sum = 0;
  for (size_t i = 0; i < data.test(); ++i)
    sum += std::fabs(static_cast<double>(data.totals()[data.train() + i]) - prediction(i));
  return sum / static_cast<double>(data.test());
}

// Of a model's normalised totals, and of always saying the same: the training split's mean, or its
// median.
inline double error_of(const std::vector<float>& normalized, const DataSet& data) {
  const Normalization& normalization = data.encoding().normalization;
  return mean_absolute_error(data, [&](size_t i) { return normalization.total(normalized[i]); });
}
inline double error_of_mean(const DataSet& data) {
  const double mean = static_cast<double>(data.encoding().normalization.mean[kOfTotal]);
  return mean_absolute_error(data, [&](size_t) { return mean; });
}
inline double error_of_median(const DataSet& data) {
  std::vector<float> totals(data.totals().begin(),
                            data.totals().begin() + static_cast<std::ptrdiff_t>(data.train()));
  const auto middle = totals.begin() + static_cast<std::ptrdiff_t>(totals.size() / 2);
  std::nth_element(totals.begin(), middle, totals.end());
  return mean_absolute_error(data, [&](size_t) { return static_cast<double>(*middle); });
}

// ---- Checkpoints ------------------------------------------------------------------------------
// A model is of no use without what turned its sales into numbers: the encoding is saved with it.
// Floats are written as hexadecimal, which loses nothing.

inline std::string text_of(const float (&values)[kMeasures]) {
  std::string text;
  for (const float value : values) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%s%a", text.empty() ? "" : " ",
                  static_cast<double>(value));
    text += digits;
  }
  return text;
}

inline std::map<std::string, std::string> texts_of(const Encoding& encoding) {
  std::string categories;
  for (const std::string& name : encoding.categories)  // no name has a tab in it
    categories += (categories.empty() ? "" : "\t") + name;
  return {{"categories", categories},
          {"mean", text_of(encoding.normalization.mean)},
          {"scale", text_of(encoding.normalization.scale)}};
}

// Throws std::invalid_argument where a text is missing or is not one of texts_of's.
inline Encoding encoding_of(const std::map<std::string, std::string>& texts) {
  const auto text = [&](const char* key) {
    const auto found = texts.find(key);
    if (found == texts.end())
      throw std::invalid_argument(std::string("it does not say the \"") + key + "\" of its sales");
    return found->second;
  };
  const auto refuse = [](const char* key, const char* what) {
    throw std::invalid_argument(std::string("its \"") + key + "\" " + what);
  };
  const auto numbers = [&](const char* key, float(&values)[kMeasures]) {
    const std::string digits = text(key);
    const char* at = digits.c_str();
    for (float& value : values) {
      char* end = nullptr;
      value = std::strtof(at, &end);
      if (end == at || !std::isfinite(value)) refuse(key, "is not four numbers");
      at = end;
    }
    if (at != digits.c_str() + digits.size()) refuse(key, "is not four numbers");
  };
  Encoding encoding;
  numbers("mean", encoding.normalization.mean);
  numbers("scale", encoding.normalization.scale);
  for (const float scale : encoding.normalization.scale)  // a total is divided by it again
    if (!(scale > 0 && std::isfinite(1 / scale))) refuse("scale", "has numbers that are no scale");
  const std::string names = text("categories");
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('\t', begin), names.size());
    encoding.categories.push_back(names.substr(begin, end - begin));
    if (encoding.categories.back().empty()) refuse("categories", "has one without a name");
    begin = end + 1;
  }
  if (encoding.categories.size() > kCategories)
    throw std::invalid_argument("it has more than " + std::to_string(kCategories) + " categories");
  return encoding;
}

// What a checkpoint says beside its tensors, and the encoding in it. Throws std::runtime_error, one
// line that names the file.
struct Checkpoint {
  sequential::TrainingState state;
  Encoding encoding;
};
inline Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  try {
    checkpoint.state = sequential::state_of(safetensors::read(path).metadata);
    checkpoint.encoding = encoding_of(checkpoint.state.more);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " is no checkpoint of train_sales: " + error.what());
  }
  return checkpoint;
}

inline void Training::save(const std::string& path, const Encoding& encoding,
                           const std::string& source) const {
  HIP_CHECK(hipStreamSynchronize(stream));
  sequential::TrainingState state;
  state.steps = steps, state.epochs = steps / batches.steps();
  state.seed = settings.seed, state.optimizer = optimizers::name(settings.kind);
  state.more = texts_of(encoding);
  state.more["batch"] = std::to_string(settings.batch);
  state.more["source"] = source;
  sequential::save(path, model, &state);
}

inline void Training::resume(const std::string& path, const std::string& source) {
  const Checkpoint found = read_checkpoint(path);
  const auto more = [&](const char* key) {
    const auto text = found.state.more.find(key);
    return text == found.state.more.end() ? "" : text->second;
  };
  sequential::require_same(path, "optimizer", found.state.optimizer,
                           optimizers::name(settings.kind));
  sequential::require_same(path, "seed", std::to_string(found.state.seed),
                           std::to_string(settings.seed));
  sequential::require_same(path, "batch", more("batch"), std::to_string(settings.batch));
  sequential::require_same(path, "sales", more("source"), source);
  begin(sequential::load(path, model).steps);
}

}  // namespace train_sales
