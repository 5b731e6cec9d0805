"""The references of vector_add."""

import numpy as np

from inputs import random, wide


def references():
    generator = np.random.default_rng(11)
    a, b = random(generator), random(generator)
    wide_a, wide_b = wide(a, b)
    return {"a": a, "b": b, "sum": wide_a + wide_b, "product": wide_a * wide_b}
