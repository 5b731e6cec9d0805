"""The references of matrix_activations."""

import numpy as np

from inputs import random, wide
from steps.activations import ACTIVATIONS


def references():
    generator = np.random.default_rng(31)
    rows, cols = 67, 31
    x, grad_y = random(generator, (rows, cols)), random(generator, (rows, cols))
    bias = random(generator, cols)
    arrays = {"x": x, "bias": bias, "grad_y": grad_y}
    # One addition rounds alike everywhere: the sum is float32, what follows is double.
    sums, wide_grad_y = wide(x + bias, grad_y)
    for name, function in ACTIVATIONS.items():
        value, derivative = function(sums)
        arrays[name] = value
        arrays[name + "_grad"] = derivative * wide_grad_y
    return arrays
