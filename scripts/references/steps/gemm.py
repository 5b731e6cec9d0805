"""The references of gemm."""

import numpy as np

from inputs import random, wide


def references():
    """C = alpha op(A) op(B) + beta C in the three layouts; x_t is stored as its transpose."""
    generator = np.random.default_rng(23)
    m, n, k = 37, 29, 43
    a, a_t, b, b_t, c = (random(generator, shape) for shape in ((m, k), (k, m), (k, n), (n, k), (m, n)))
    alpha, beta = np.float32(-1.3), np.float32(0.7)
    wide_a, wide_a_t, wide_b, wide_b_t, wide_c, wide_alpha, wide_beta = wide(
        a, a_t, b, b_t, c, alpha, beta)
    products = {"nn": wide_a @ wide_b, "nt": wide_a @ wide_b_t.T, "tn": wide_a_t.T @ wide_b}
    return {"a": a, "a_t": a_t, "b": b, "b_t": b_t, "c": c, "alpha": alpha, "beta": beta,
            **{name: wide_alpha * product + wide_beta * wide_c for name, product in products.items()}}
