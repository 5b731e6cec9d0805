"""The references of dot."""

import math

import numpy as np

from inputs import random, wide


def references():
    generator = np.random.default_rng(13)
    x, y = random(generator), random(generator)
    # The product of two floats is exact in double, and fsum rounds only once.
    return {"x": x, "y": y, "result": np.float64(math.fsum(np.multiply(*wide(x, y))))}
