"""The references of gemv."""

import numpy as np

from inputs import random, wide


def references():
    generator = np.random.default_rng(22)
    rows, cols = 67, 131
    a, x, x_transposed = random(generator, (rows, cols)), random(generator, cols), random(generator, rows)
    y, y_transposed = random(generator, rows), random(generator, cols)
    alpha, beta = np.float32(-1.3), np.float32(0.7)
    wide_a, wide_x, wide_y = wide(a, x, y)
    return {"a": a, "x": x, "y": y, "x_transposed": x_transposed, "y_transposed": y_transposed,
            "alpha": alpha, "beta": beta,
            "result": np.float64(alpha) * (wide_a @ wide_x) + np.float64(beta) * wide_y,
            "result_transposed": np.float64(alpha) * (wide_a.T @ x_transposed.astype(np.float64))
            + np.float64(beta) * y_transposed.astype(np.float64)}
