"""The references of activations."""

import math

import numpy as np

from inputs import AWKWARD, random, SIZE, wide

erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    """1 / (1 + exp(-x)) without overflow and, for x < 0, without cancellation."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def gelu_tanh(x):
    """x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x sigmoid(2u), and its
    derivative (Hendrycks and Gimpel: Gaussian error linear units. arXiv:1606.08415)."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return x * sigmoid(2 * u), sigmoid(2 * u) + 2 * x * slope * sigmoid(2 * u) * sigmoid(-2 * u)


def gelu_erf(x):
    """x Phi(x), Phi the normal distribution function as erfc, which keeps its digits for x < 0,
    and its derivative."""
    phi = erfc(-x / math.sqrt(2)) / 2
    return x * phi, phi + x * np.exp(-x**2 / 2) / math.sqrt(2 * math.pi)


# name -> x -> (value, derivative)
ACTIVATIONS = {
    "relu": lambda x: (np.maximum(x, 0), np.where(x > 0, 1.0, 0.0)),
    "sigmoid": lambda x: (sigmoid(x), sigmoid(x) * sigmoid(-x)),
    "tanh": lambda x: (np.tanh(x), 4 * sigmoid(2 * x) * sigmoid(-2 * x)),
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "softplus": lambda x: (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), sigmoid(x)),
}


def references():
    generator = np.random.default_rng(14)
    random_x = 3 * random(generator, SIZE - AWKWARD.size)
    x, grad_y = np.concatenate([AWKWARD, random_x]), random(generator)
    arrays = {"x": x, "grad_y": grad_y}
    wide_x, wide_grad_y = wide(x, grad_y)
    for name, function in ACTIVATIONS.items():
        value, derivative = function(wide_x)
        arrays[name] = value
        arrays[name + "_grad"] = derivative * wide_grad_y
    return arrays
