"""The references of axpy."""

import numpy as np

from inputs import random, wide


def references():
    generator = np.random.default_rng(12)
    x, y, alpha = random(generator), random(generator), np.float32(-1.7)
    wide_x, wide_y, wide_alpha = wide(x, y, alpha)
    return {"x": x, "y": y, "alpha": alpha,
            "result": wide_alpha * wide_x + wide_y, "scaled": wide_alpha * wide_x}
