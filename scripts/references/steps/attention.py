"""The references of attention."""

import math

import numpy as np

from inputs import random, wide


def references():
    """One causal and one full problem, (B, H, T, D), with more keys than queries, and gradients."""
    generator = np.random.default_rng(73)
    batch, heads, queries, keys, width = 2, 2, 21, 26, 12
    q, grad_out = (random(generator, (batch, heads, queries, width)) for _ in range(2))
    k, v = (random(generator, (batch, heads, keys, width)) for _ in range(2))
    scale = np.float64(np.float32(1 / math.sqrt(width)))
    wide_q, wide_k, wide_v, wide_grad = wide(q, k, v, grad_out)
    arrays = {"q": q, "k": k, "v": v, "grad_out": grad_out}
    for name in ("causal", "full"):
        scores = scale * wide_q @ wide_k.swapaxes(-1, -2)
        if name == "causal":
            i, j = np.ogrid[:queries, :keys]
            scores = np.where(j <= i + keys - queries, scores, -np.inf)
        largest = scores.max(axis=-1, keepdims=True)
        exponentials = np.exp(scores - largest)
        total = exponentials.sum(axis=-1, keepdims=True)
        p = exponentials / total
        out = p @ wide_v
        grad_p = wide_grad @ wide_v.swapaxes(-1, -2)
        grad_scores = p * (grad_p - (p * grad_p).sum(axis=-1, keepdims=True))
        arrays |= {f"{name}_out": out, f"{name}_lse": (largest + np.log(total))[..., 0],
                   f"{name}_grad_q": scale * grad_scores @ wide_k,
                   f"{name}_grad_k": scale * grad_scores.swapaxes(-1, -2) @ wide_q,
                   f"{name}_grad_v": p.swapaxes(-1, -2) @ wide_grad}
    return arrays
