"""The references of transpose."""

import numpy as np

from inputs import random


def references():
    generator = np.random.default_rng(21)
    a = random(generator, (100, 68))
    return {"a": a, "result": np.ascontiguousarray(a.astype(np.float64).T)}
