"""The references of softmax."""

import numpy as np

from inputs import AWKWARD, random, SIZE


def references():
    generator = np.random.default_rng(32)
    x = random(generator, (5, SIZE))
    # Rows with differences of thousands, far from 0, and with the awkward numbers (1e4 wins).
    x[1] *= 2000
    x[2] += 9000
    x[3, 100:100 + AWKWARD.size] = AWKWARD
    wide_x = x.astype(np.float64)
    exponentials = np.exp(wide_x - wide_x.max(axis=1, keepdims=True))
    return {"x": x, "y": exponentials / exponentials.sum(axis=1, keepdims=True)}
