// Forward and backward pass of points in the registers of their lanes, for the version `registers`.
#pragma once

#include "common/gpu.h"
#include "stage5_training/06_train_toy/detail/division.h"
#include "stage5_training/06_train_toy/detail/point.h"
#include "stage5_training/06_train_toy/network.h"

namespace train_toy {

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
      float of_class[D::kQuad], max = logits[i][0], sum = 0;
      GPU_UNROLL
      for (int c = 1; c < D::kQuad; ++c) max = fmaxf(max, logits[i][c]);
      GPU_UNROLL
      for (int c = 0; c < D::kQuad; ++c) {
        of_class[c] = gpu::exp2_flushed(1.44269504f * (logits[i][c] - max));  // 1 / ln 2
        sum += of_class[c];
      }
      const float scale = share * reciprocal(sum);
      GPU_UNROLL
      for (int j = 0; j < D::kOwnClasses; ++j) {
        const int c = part * D::kOwnClasses + j;
        float mine_of_class = of_class[0];
        GPU_UNROLL
        for (int k = 1; k < D::kQuad; ++k) mine_of_class = k == c ? of_class[k] : mine_of_class;
        mine[D::kGrad + c] = fmaf(mine_of_class, scale, c == label ? -share : 0.0f);
      }
      if (with_loss && part == 0) mine[D::kLoss] = cross_entropy(logits[i], D::kQuad, label);
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

}  // namespace train_toy
