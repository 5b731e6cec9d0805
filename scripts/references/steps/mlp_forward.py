"""The references of mlp_forward."""

import numpy as np

from inputs import random, wide
from steps.activations import ACTIVATIONS


def references():
    generator = np.random.default_rng(42)
    batch, inputs, hidden, outputs = 37, 67, 29, 11
    x = random(generator, (batch, inputs))
    w1, bias1 = random(generator, (hidden, inputs)), random(generator, hidden)
    w2, bias2 = random(generator, (outputs, hidden)), random(generator, outputs)
    wide_x, wide_w1, wide_bias1, wide_w2, wide_bias2 = wide(x, w1, bias1, w2, bias2)
    arrays = {"x": x, "w1": w1, "bias1": bias1, "w2": w2, "bias2": bias2}
    for name in ("relu", "sigmoid"):
        h = ACTIVATIONS[name](wide_x @ wide_w1.T + wide_bias1)[0]
        arrays[name] = h @ wide_w2.T + wide_bias2
    return arrays
