"""The references of dense."""

import numpy as np

from inputs import random, wide
from steps.activations import ACTIVATIONS


def references():
    generator = np.random.default_rng(41)
    batch, inputs, outputs = 37, 67, 29
    x, w = random(generator, (batch, inputs)), random(generator, (outputs, inputs))
    bias = random(generator, outputs)
    wide_x, wide_w, wide_bias = wide(x, w, bias)
    sums = wide_x @ wide_w.T + wide_bias
    arrays = {"x": x, "w": w, "bias": bias, "linear": sums}
    for name in ("relu", "gelu_tanh"):
        arrays[name] = ACTIVATIONS[name](sums)[0]
    return arrays
