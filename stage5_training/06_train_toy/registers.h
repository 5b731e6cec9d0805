// The version `registers`: a point belongs to a few lanes, which keep it in registers from its
// inputs to its gradients. Included by train_toy.h, behind what the kernels of a whole step share.
#pragma once

namespace train_toy {

// How the block is divided. Hidden layers are padded with zeros to kWidth units, inputs and classes
// to a quad. All of this is constant, so loops over it unroll and arrays are registers.
template <int kHiddenLayers, int kPaddedWidth, int kUnitsPerLane, int kPointsPerLane>
struct Division {
  static constexpr int kQuad = 4, kTile = kQuad * kQuad;
  static constexpr int kHidden = kHiddenLayers, kWidth = kPaddedWidth;
  static constexpr int kOwn = kUnitsPerLane;          // units of each layer that a lane computes
  static constexpr int kPoints = kPointsPerLane;      // points that it computes them for
  static constexpr int kLanes = kWidth / kOwn;        // of a point
  static constexpr int kOwnClasses = kQuad / kLanes;  // classes whose gradient a lane computes
  static constexpr int kBlock = kOwn * kPoints <= kQuad ? 1024 : 512;  // threads, at most

  // A point's record in shared memory. Its length is an odd number of quads: 16-byte accesses of
  // neighbouring points then meet different banks.
  static constexpr int kX = 0, kGrad = kQuad, kLabel = 2 * kQuad, kLoss = kLabel + 1;
  __host__ __device__ static constexpr int h(int l) { return 3 * kQuad + l * kWidth; }
  __host__ __device__ static constexpr int d(int l) { return h(kHidden + l); }
  static constexpr int kRecord = 3 * kQuad + 2 * kHidden * kWidth;

  // The parameters in shared memory: rows of the weights of a unit, layer by layer, then biases.
  // A quad between the rows of two lanes moves them to different banks.
  __host__ __device__ static constexpr int depth(int l) { return l == 0 ? kQuad : kWidth; }
  __host__ __device__ static constexpr int begin(int l) {
    return l == 0 ? 0 : (kQuad + (l - 1) * kWidth) * kWidth + l * kLanes * kQuad;
  }
  __host__ __device__ static constexpr int row(int l, int unit) {
    return begin(l) + unit * depth(l) + (l < kHidden ? unit / kOwn * kQuad : 0);
  }
  __host__ __device__ static constexpr int bias(int l) {
    return begin(kHidden) + kQuad * kWidth + l * kWidth;
  }
  static constexpr int kParameters =
      (kHidden == 0 ? 0 : begin(kHidden)) + kQuad * kWidth + kHidden * kWidth + kQuad;

  // Tiles of 4 x 4 weights, and one of all biases per layer.
  static constexpr int kQuads = kWidth / kQuad;
  static constexpr int kTiles = kHidden + 1 + 2 * kQuads + (kHidden - 1) * kQuads * kQuads;

  // Points padded to what the waves take at once.
  template <class Int>
  __host__ __device__ static constexpr Int records(Int points, Int wave) {
    const Int step = wave * (kPoints > kLanes ? kPoints / kLanes : 1);
    return (points + step - 1) / step * step;
  }
};

// What a class that is not there has for a bias: its probability is 0, and so is its gradient.
inline constexpr float kNoLogit = -1e30f;

template <int kCount>
__device__ inline void read(float (&to)[kCount], const float* from) {
  GPU_UNROLL
  for (int k = 0; k < kCount; k += 4) {
    const float4 quad = *reinterpret_cast<const float4*>(from + k);
    to[k] = quad.x, to[k + 1] = quad.y, to[k + 2] = quad.z, to[k + 3] = quad.w;
  }
}

template <int kCount>
__device__ inline void write(float* to, const float (&from)[kCount]) {
  GPU_UNROLL
  for (int k = 0; k < kCount; k += 4)
    *reinterpret_cast<float4*>(to + k) =
        make_float4(from[k], from[k + 1], from[k + 2], from[k + 3]);
}

// sums[i][j] = tanh(bias[j] + sum over k of inputs[i][k] rows[j * kDepth + k])
template <int kPoints, int kDepth, int kOwn>
__device__ inline void hidden_units(float (&outputs)[kPoints][kOwn],
                                    const float (&inputs)[kPoints][kDepth], const float* rows,
                                    const float* bias) {
  float biases[kOwn];
  read(biases, bias);
  GPU_UNROLL
  for (int j = 0; j < kOwn; ++j) {
    GPU_UNROLL
    for (int i = 0; i < kPoints; ++i) outputs[i][j] = biases[j];
  }
  GPU_UNROLL
  for (int k = 0; k < kDepth; k += 4) {
    GPU_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      float w[4];
      read(w, rows + j * kDepth + k);
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) outputs[i][j] = fmaf(inputs[i][k + e], w[e], outputs[i][j]);
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < kPoints; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kOwn; ++j) outputs[i][j] = tangent(outputs[i][j]);
  }
}

// The loss of a point with four logits.
__device__ inline float cross_entropy(const float (&logits)[4], int label) {
  float max = logits[0], of_label = logits[0], sum = 0;
  GPU_UNROLL
  for (int c = 1; c < 4; ++c) {
    max = fmaxf(max, logits[c]);
    if (c == label) of_label = logits[c];
  }
  GPU_UNROLL
  for (int c = 0; c < 4; ++c) sum += softmax::exponential(logits[c] - max);
  return logf(sum) + (max - of_label);
}

// Fills the records of all points: activations forward, gradients of the sums backward. What lanes
// of a point need of one another they read from its record; other waves have no part in it.
template <class D>
__device__ inline void visit_points(const Network& n, int records, float* record_of_0,
                                    const float* weights, bool with_loss) {
  constexpr int kPoints = D::kPoints, kOwn = D::kOwn, kHidden = D::kHidden, kWidth = D::kWidth;
  const int lane = gpu::lane_id(), part = lane % D::kLanes, own = part * kOwn;
  const int apart = gpu::wave_size() / D::kLanes;  // a lane's points
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  for (int first = gpu::wave_id() * apart * kPoints; first < records;
       first += waves * apart * kPoints) {
    const int point = first + lane / D::kLanes;
    float* const record = record_of_0 + point * D::kRecord;
    const int next = apart * D::kRecord;  // floats from a lane's record to its next one
    float x[kPoints][D::kQuad], h[kHidden][kPoints][kOwn], full[kPoints][kWidth];
    GPU_UNROLL
    for (int i = 0; i < kPoints; ++i) read(x[i], record + i * next + D::kX);
    hidden_units(h[0], x, weights + D::row(0, own), weights + D::bias(0) + own);
    GPU_UNROLL
    for (int i = 0; i < kPoints; ++i) write(record + i * next + D::h(0) + own, h[0][i]);
    GPU_UNROLL
    for (int l = 1; l < kHidden; ++l) {
      gpu::wave_sync();  // the layer's inputs are complete, for the points of this wave
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) read(full[i], record + i * next + D::h(l - 1));
      hidden_units(h[l], full, weights + D::row(l, own), weights + D::bias(l) + own);
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) write(record + i * next + D::h(l) + own, h[l][i]);
    }

    // The last layer: each lane has a share in all four logits.
    float logits[kPoints][D::kQuad] = {}, biases[D::kQuad];
    GPU_UNROLL
    for (int c = 0; c < D::kQuad; ++c) {
      float w[kOwn];
      read(w, weights + D::row(kHidden, c) + own);
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) {
        GPU_UNROLL
        for (int k = 0; k < kOwn; ++k)
          logits[i][c] = fmaf(h[kHidden - 1][i][k], w[k], logits[i][c]);
      }
    }
    read(biases, weights + D::bias(kHidden));
    GPU_UNROLL
    for (int i = 0; i < kPoints; ++i) {
      float* const mine = record + i * next;
      GPU_UNROLL
      for (int c = 0; c < D::kQuad; ++c) {
        GPU_UNROLL
        for (int distance = 1; distance < D::kLanes; distance *= 2)
          logits[i][c] += gpu::wave_shfl_xor(logits[i][c], distance);
        logits[i][c] += biases[c];
      }
      const int label = static_cast<int>(mine[D::kLabel]);
      const float share = point + i * apart < n.points ? 1.0f / static_cast<float>(n.points) : 0;
      GPU_UNROLL
      for (int j = 0; j < D::kOwnClasses; ++j) {
        const int c = part * D::kOwnClasses + j;
        float logit = logits[i][0], sum = 0;
        GPU_UNROLL
        for (int k = 1; k < D::kQuad; ++k) logit = k == c ? logits[i][k] : logit;
        GPU_UNROLL
        for (int k = 0; k < D::kQuad; ++k) sum += softmax::exponential(logits[i][k] - logit);
        mine[D::kGrad + c] = fmaf(share, reciprocal(sum), c == label ? -share : 0.0f);
      }
      if (with_loss && part == 0) mine[D::kLoss] = cross_entropy(logits[i], label);
    }
    gpu::wave_sync();  // the gradients of the logits are complete, for the points of this wave

    float grads[kPoints][kOwn] = {};
    GPU_UNROLL
    for (int i = 0; i < kPoints; ++i) read(x[i], record + i * next + D::kGrad);
    GPU_UNROLL
    for (int c = 0; c < D::kQuad; ++c) {
      float w[kOwn];
      read(w, weights + D::row(kHidden, c) + own);
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) {
        GPU_UNROLL
        for (int k = 0; k < kOwn; ++k) grads[i][k] = fmaf(x[i][c], w[k], grads[i][k]);
      }
    }
    GPU_UNROLL
    for (int l = kHidden - 1; l >= 0; --l) {
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) {
        GPU_UNROLL
        for (int k = 0; k < kOwn; ++k) grads[i][k] *= fmaf(-h[l][i][k], h[l][i][k], 1.0f);
        write(record + i * next + D::d(l) + own, grads[i]);
      }
      if (l == 0) break;
      gpu::wave_sync();  // the gradients of the layer's sums are complete, for these points
      GPU_UNROLL
      for (int i = 0; i < kPoints; ++i) {
        read(full[i], record + i * next + D::d(l));
        GPU_UNROLL
        for (int k = 0; k < kOwn; ++k) grads[i][k] = 0;
      }
      GPU_UNROLL
      for (int o = 0; o < kWidth; ++o) {
        float w[kOwn];
        read(w, weights + D::row(l, o) + own);
        GPU_UNROLL
        for (int i = 0; i < kPoints; ++i) {
          GPU_UNROLL
          for (int k = 0; k < kOwn; ++k) grads[i][k] = fmaf(full[i][o], w[k], grads[i][k]);
        }
      }
    }
  }
}

// The sum over the wave of each of 16 values, of which a lane gets number tile_index(lane): in each
// exchange it gives away half of what it has left, and adds the half that it gets.
__device__ inline float sum_tile(float (&values)[16]) {
  const int lane = gpu::lane_id();
  GPU_UNROLL
  for (int half = 8, distance = 1; half > 0; half /= 2, distance *= 2) {
    const bool upper = (lane & distance) != 0;
    GPU_UNROLL
    for (int j = 0; j < half; ++j) {
      const float given = upper ? values[j] : values[j + half];
      const float kept = upper ? values[j + half] : values[j];
      values[j] = kept + gpu::wave_shfl_xor(given, distance);
    }
  }
  for (int distance = 16; distance < gpu::wave_size(); distance *= 2)
    values[0] += gpu::wave_shfl_xor(values[0], distance);
  return values[0];
}
__device__ inline int tile_index(int lane) {
  return (lane & 1) << 3 | (lane & 2) << 1 | (lane & 4) >> 1 | (lane & 8) >> 3;
}

// Gradient and update of all parameters, a tile of them per wave. A lane adds up the points lane,
// lane + wave, ... of 16 gradients; then lanes exchange their sums.
template <class Rule, class D>
__device__ inline void update_tiles(const Network& n, int records, const float* record_of_0,
                                    float* weights, const Schedule& schedule) {
  constexpr int kQuads = D::kQuads, kInner = kQuads * kQuads;
  const int lane = gpu::lane_id(), wave = gpu::wave_size();
  const int waves = static_cast<int>(blockDim.x) / wave, index = tile_index(lane % D::kTile);
  for (int tile = gpu::wave_id(); tile < D::kTiles; tile += waves) {
    const bool biases = tile <= D::kHidden;
    int l = tile, first_unit = 0, first_input = 0;
    if (!biases) {
      const int number = tile - (D::kHidden + 1);
      const int inner = number - 2 * kQuads;
      l = number < kQuads ? 0 : number < 2 * kQuads ? D::kHidden : 1 + inner / kInner;
      if (l == 0)
        first_unit = number * D::kQuad;
      else if (l == D::kHidden)
        first_input = (number - kQuads) * D::kQuad;
      else
        first_unit = inner % kInner / kQuads * D::kQuad, first_input = inner % kQuads * D::kQuad;
    }
    const int unit = biases ? index : first_unit + index / D::kQuad;
    const int input = biases ? 0 : first_input + index % D::kQuad;
    const bool mine = lane < D::kTile && unit < n.layer[l].out && input < n.layer[l].in;
    float* const parameter = weights + (biases ? D::bias(l) + unit : D::row(l, unit) + input);
    float w = 0, m = 0, v = 0;
    if (mine) {
      w = parameter[0];
      if constexpr (Rule::kStates >= 1) m = parameter[D::kParameters];
      if constexpr (Rule::kStates >= 2) v = parameter[2 * D::kParameters];
    }

    const float* grads = record_of_0 + lane * D::kRecord + (l == D::kHidden ? D::kGrad : D::d(l));
    float sums[D::kTile] = {};
    if (biases) {
      const int units = l == D::kHidden ? D::kQuad : D::kWidth;
      for (int r = lane; r < records; r += wave, grads += wave * D::kRecord) {
        GPU_UNROLL
        for (int k = 0; k < D::kWidth; k += D::kQuad) {
          if (k >= units) continue;
          float g[D::kQuad];
          read(g, grads + k);
          GPU_UNROLL
          for (int e = 0; e < D::kQuad; ++e) sums[k + e] += g[e];
        }
      }
    } else {
      const float* inputs =
          record_of_0 + lane * D::kRecord + (l == 0 ? D::kX : D::h(l - 1)) + first_input;
      grads += first_unit;
      GPU_UNROLL
      for (int r = lane; r < records; r += wave) {
        float g[D::kQuad], x[D::kQuad];
        read(g, grads), read(x, inputs);
        GPU_UNROLL
        for (int j = 0; j < D::kTile; ++j)
          sums[j] = fmaf(g[j / D::kQuad], x[j % D::kQuad], sums[j]);
        grads += wave * D::kRecord, inputs += wave * D::kRecord;
      }
    }
    const float grad = sum_tile(sums);
    if (!mine) continue;
    Rule{}(w, grad, m, v, schedule);
    parameter[0] = w;
    if constexpr (Rule::kStates >= 1) parameter[D::kParameters] = m;
    if constexpr (Rule::kStates >= 2) parameter[2 * D::kParameters] = v;
  }
}

// Calls visit(i, parameter) for each number i of the arena and its place in shared memory, each by
// one thread.
template <class D, class Visit>
__device__ inline void for_each_parameter(const Network& n, float* weights, Visit visit) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int l = 0; l < n.layers; ++l) {
    const Layer& layer = n.layer[l];
    for (int i = thread; i < layer.out * layer.in; i += threads)
      visit(layer.w + i, weights + D::row(l, i / layer.in) + i % layer.in);
    for (int i = thread; i < layer.out; i += threads)
      visit(layer.bias + i, weights + D::bias(l) + i);
  }
}

// w, m, v after span.count steps    x (points, inputs), at most 4 inputs, 4 classes, and one or two
// hidden layers of D::kWidth units.
// Fixes : persistent reads every factor of a product from shared memory, and waits for the block
//         after every layer, forward and backward.
// Idea  : layers are independent from point to point. The lanes of a point compute it forward and
//         backward, a weight is read once for kPoints products; only the gradients need all points.
// Thread: of kPoints points the units own, own + 1, ...; then of a tile of 4 x 4 weights the
//         gradients of the points lane, lane + wave, ...
// Costs : one multiprocessor works; 2 barriers per step, no global memory but the schedule.
template <class Rule, class D>
static __global__ void GPU_LAUNCH_BOUNDS(D::kBlock, 1)
    steps_in_registers(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, weights);
  float* const record_of_0 = weights + (1 + Rule::kStates) * D::kParameters;
  const int records = D::records(n.points, gpu::wave_size());
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int floats = (1 + Rule::kStates) * D::kParameters + records * D::kRecord;
  for (int i = thread; i < floats; i += threads) weights[i] = 0;
  __syncthreads();  // all is zero, the padding too
  for_each_parameter<D>(n, weights, [&](int i, float* parameter) {
    parameter[0] = arrays.w[i];
    if constexpr (Rule::kStates >= 1) parameter[D::kParameters] = arrays.m[i];
    if constexpr (Rule::kStates >= 2) parameter[2 * D::kParameters] = arrays.v[i];
  });
  for (int c = n.layer[D::kHidden].out + thread; c < D::kQuad; c += threads)
    weights[D::bias(D::kHidden) + c] = kNoLogit;
  for (int point = thread; point < n.points; point += threads) {
    float* const record = record_of_0 + point * D::kRecord;
    const int inputs = n.layer[0].in;
    for (int k = 0; k < inputs; ++k) record[D::kX + k] = arrays.x[point * inputs + k];
    record[D::kLabel] = static_cast<float>(arrays.labels[point]);
  }
  __syncthreads();  // data and parameters are complete

  for_each_step(span, arrays, [&](const Schedule& schedule, float* loss) {
    visit_points<D>(n, records, record_of_0, weights, loss != nullptr);
    __syncthreads();  // the records of all points are complete
    update_tiles<Rule, D>(n, records, record_of_0, weights, schedule);
    if (loss != nullptr && gpu::wave_id() == 0) {
      float sum = 0;
      for (int i = gpu::lane_id(); i < n.points; i += gpu::wave_size())
        sum += record_of_0[i * D::kRecord + D::kLoss];
      sum = dot::wave_sum(sum);
      if (threadIdx.x == 0) *loss = sum / static_cast<float>(n.points);
    }
    __syncthreads();  // the parameters are those of the next step
  });
  for_each_parameter<D>(n, weights, [&](int i, float* parameter) {
    arrays.w[i] = parameter[0];
    if constexpr (Rule::kStates >= 1) arrays.m[i] = parameter[D::kParameters];
    if constexpr (Rule::kStates >= 2) arrays.v[i] = parameter[2 * D::kParameters];
  });
}

inline constexpr size_t kRegisterInputs = 4, kRegisterHidden = 16;

// Calls visit(D{}) with the division for a trainer's network, which why_not_registers accepts.
template <int kUnitsPerLane, int kPointsPerLane, class Visit>
auto visit_division(const Trainer& t, Visit visit) {
  const bool narrow = *std::max_element(t.widths().begin() + 1, t.widths().end() - 1) <= 8;
  constexpr int kNarrow = kUnitsPerLane < 8 ? kUnitsPerLane : 8;
  if (t.widths().size() == 3)
    return narrow ? visit(Division<1, 8, kNarrow, kPointsPerLane>{})
                  : visit(Division<1, 16, kUnitsPerLane, kPointsPerLane>{});
  return narrow ? visit(Division<2, 8, kNarrow, kPointsPerLane>{})
                : visit(Division<2, 16, kUnitsPerLane, kPointsPerLane>{});
}

template <class D>
size_t register_shared_bytes(const Trainer& t) {
  const size_t records = D::records(t.points(), size_t{gpu::device_wave_size()});
  return ((1 + static_cast<size_t>(optimizers::states(t.settings().kind))) * D::kParameters +
          records * D::kRecord) *
         sizeof(float);
}

// Why `registers` can't do this training; empty where it can.
template <int kUnitsPerLane, int kPointsPerLane>
std::string why_not_registers(const Trainer& t) {
  const std::vector<size_t>& widths = t.widths();
  if (widths.size() < 3 || widths.size() > 4) return "not one or two hidden layers";
  if (widths.front() > kRegisterInputs)
    return "more than " + std::to_string(kRegisterInputs) + " inputs";
  if (*std::max_element(widths.begin() + 1, widths.end() - 1) > kRegisterHidden)
    return "more than " + std::to_string(kRegisterHidden) + " units in a hidden layer";
  if (widths.back() > static_cast<size_t>(kUnits))
    return "more than " + std::to_string(kUnits) + " classes";
  const size_t bytes = visit_division<kUnitsPerLane, kPointsPerLane>(
      t, [&](auto division) { return register_shared_bytes<decltype(division)>(t); });
  return bytes > gpu::max_shared_bytes() ? "more points than fit into shared memory" : "";
}

template <int kUnitsPerLane, int kPointsPerLane>
void launch_registers(Trainer& t, unsigned steps) {
  require(why_not_registers<kUnitsPerLane, kPointsPerLane>(t));
  const Network n = t.network();
  visit_division<kUnitsPerLane, kPointsPerLane>(t, [&](auto division) {
    using D = decltype(division);
    const int wave = static_cast<int>(gpu::device_wave_size());
    const int of_points = D::records(n.points, wave) * D::kLanes / (D::kPoints * wave);
    const int waves = std::min(std::max(of_points, D::kTiles), D::kBlock / wave);
    const size_t bytes = register_shared_bytes<D>(t);
    launch_spans(t, steps, kStepsPerLaunch, [&](auto rule, const Arrays& arrays, const Span& span) {
      const auto kernel = steps_in_registers<decltype(rule), D>;
      gpu::allow_shared_bytes(kernel, bytes);
      LAUNCH_ON(t.stream, kernel, 1, static_cast<unsigned>(waves * wave), bytes, n, arrays, span);
    });
  });
}

}  // namespace train_toy
