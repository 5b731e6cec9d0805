// A point in the registers of its lanes. The gradients are below the kernel.
#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/06_train_toy/detail/gradient_tiles.h"
#include "stage5_training/06_train_toy/detail/point_pass.h"
#include "stage5_training/06_train_toy/detail/span.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// All parameters take a step, a tile of them per wave.
template <class Rule, class D>
__device__ inline void update_tiles(const Network& n, int records, const float* record_of_0,
                                    float* weights, const Schedule& schedule);

// w, m, v after span.count steps    x (points, inputs), at most 4 inputs, 4 classes, and one or two
// hidden layers of at most D::kWidth units.
// Fixes : persistent reads every factor of a product from shared memory, and waits for the block
//         after every layer, forward and backward.
// Idea  : points do not need one another, but for the gradients. The lanes of a point compute it
//         forward and backward with its numbers in registers; four weights are read at once, for
//         D::kPoints points.
// Thread: of D::kPoints points the units own, own + 1, ...; then of a tile of 8 x 4 weights the
//         gradients of the points lane, lane + wave, ...
// Costs : one multiprocessor works; 2 barriers per step, no global memory but the schedule.
template <class Rule, class D>
static __global__ void GPU_LAUNCH_BOUNDS(D::kBlock, 1)
    steps_in_registers(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, weights);  // each followed by its states, kParameters further on
  float* const record_of_0 = weights + (1 + Rule::kStates) * D::kParameters;
  const int records = D::records(n.points, gpu::wave_size());
  load_records<Rule, D>(n, arrays, weights, record_of_0, records);
  for_each_step(span, arrays, [&](const Schedule& schedule, float* loss) {
    visit_points<D>(n, records, record_of_0, weights, loss != nullptr);
    __syncthreads();  // the records of all points are complete
    update_tiles<Rule, D>(n, records, record_of_0, weights, schedule);
    if (loss != nullptr) write_mean(loss, record_of_0 + D::kLoss, D::kRecord, n.points);
    __syncthreads();  // the parameters are those of the next step, and the losses have been read
  });
  store_parameters<Rule, D>(n, arrays, weights);
}

// The sum over the wave of each of 32 values, of which a lane gets number index_in_tile(lane).
__device__ inline float sum_tile(float (&values)[32]) {
  const int lane = gpu::lane_id();
  // exercise: in each of five exchanges a lane gives away half of the values that it has left, and
  // adds what it gets to the other half; the last exchange is of one value (about 12 lines)
  GPU_UNROLL
  for (int bit = 0; bit < 5; ++bit) {
    const int half = 16 >> bit;
    const bool upper = (lane >> bit & 1) != 0;
    GPU_UNROLL
    for (int j = 0; j < 16; ++j) {  // a constant, so that `upper` chooses values and never branches
      if (j >= half) continue;
      const float given = upper ? values[j] : values[j + half];
      const float kept = upper ? values[j + half] : values[j];
      values[j] = kept + gpu::wave_shfl_xor(given, 1 << bit);
    }
  }
  for (int distance = 32; distance < gpu::wave_size(); distance *= 2)
    values[0] += gpu::wave_shfl_xor(values[0], distance);
  // end exercise
  return values[0];
}

template <class Rule, class D>
__device__ inline void update_tiles(const Network& n, int records, const float* record_of_0,
                                    float* weights, const Schedule& schedule) {
  const int lane = gpu::lane_id(), waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  for (int number = gpu::wave_id(); number < D::kTiles; number += waves) {
    const Tile tile = find_tile<D>(number);
    const Place place = place_in_tile<D>(tile, index_in_tile(lane));
    const int l = tile.layer, unit = place.unit, input = place.input;
    const bool mine = lane < D::kTile && unit < n.layer[l].out && input < n.layer[l].in;
    float* const parameter = weights + (tile.biases ? D::bias(l) + unit : D::row(l, unit) + input);
    float w = 0, m = 0, v = 0;
    if (mine) {
      w = parameter[0];
      if constexpr (Rule::kStates >= 1) m = parameter[D::kParameters];
      if constexpr (Rule::kStates >= 2) v = parameter[2 * D::kParameters];
    }
    float sums[D::kTile];
    add_points<D>(sums, tile, records, record_of_0);
    const float grad = sum_tile(sums);
    if (!mine) continue;
    Rule{}(w, grad, m, v, schedule);
    parameter[0] = w;
    if constexpr (Rule::kStates >= 1) parameter[D::kParameters] = m;
    if constexpr (Rule::kStates >= 2) parameter[2 * D::kParameters] = v;
  }
}

// What a lane computes at a time: eight units of a layer, for one point. Of 4, 8 and 16 units for
// one, two and four points this was within 1% of the fastest at the spiral on an NVIDIA H200, and
// faster at XOR.
inline constexpr int kUnitsPerLane = 8, kPointsPerLane = 1;

// Calls visit(D{}) with the division for a network that why_not_registers() accepts.
template <class Visit>
static auto visit_division(const Network& n, Visit visit) {
  const bool two = n.layers == 3;
  const bool narrow = n.layer[0].out <= 8 && (!two || n.layer[1].out <= 8);
  if (two && narrow) return visit(Division<2, 8, kUnitsPerLane, kPointsPerLane>{});
  if (two) return visit(Division<2, 16, kUnitsPerLane, kPointsPerLane>{});
  if (narrow) return visit(Division<1, 8, kUnitsPerLane, kPointsPerLane>{});
  return visit(Division<1, 16, kUnitsPerLane, kPointsPerLane>{});
}

size_t registers_shared_bytes(const Network& n, Kind kind) {
  return visit_division(n, [&](auto division) {
    using D = decltype(division);
    const size_t wave = gpu::device_wave_size(), points = static_cast<size_t>(n.points);
    const size_t per_parameter = 1 + static_cast<size_t>(optimizers::states(kind));
    return sizeof(float) * (per_parameter * D::kParameters + D::records(points, wave) * D::kRecord);
  });
}

void queue_registers(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                     hipStream_t stream) {
  visit_division(n, [&](auto division) {
    using D = decltype(division);
    const int wave = static_cast<int>(gpu::device_wave_size());
    const int of_points = D::records(n.points, wave) * D::kLanes / (D::kPoints * wave);
    const int wanted = of_points > D::kTiles ? of_points : D::kTiles;
    const int waves = wanted < D::kBlock / wave ? wanted : D::kBlock / wave;
    const size_t bytes = registers_shared_bytes(n, kind);
    optimizers::visit_rule(kind, [&](auto rule) {
      const auto kernel = steps_in_registers<decltype(rule), D>;
      gpu::allow_shared_bytes(kernel, bytes);
      LAUNCH_ON(stream, kernel, 1, static_cast<unsigned>(waves * wave), bytes, n, arrays, span);
    });
  });
}

void launch_registers(Training& t, unsigned steps) {
  require(why_not_registers(t));
  launch_spans(t, steps, kStepsPerLaunch, queue_registers);
}

}  // namespace train_toy
