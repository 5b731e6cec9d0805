"""The references of sequential."""

import math

import numpy as np

from inputs import random, uniform, wide
from steps.losses import cross_entropy


def references():
    """Linear(5, 7), ReLU, Linear(7, 3): the numbers it begins with, one step, twenty steps."""
    generator = np.random.default_rng(55)
    seed, batch, inputs, hidden, outputs = 2**40 + 7, 37, 5, 7, 3
    x, labels = random(generator, (batch, inputs)), generator.integers(0, outputs, size=batch)
    grad_y = random(generator, (batch, outputs))
    # Parameter k draws from sequence k. Its bound is a float, and the product is rounded once.
    he, xavier = np.float32(math.sqrt(6 / inputs)), np.float32(math.sqrt(6 / (hidden + outputs)))
    w1 = (uniform(seed, 0, hidden * inputs) * he).reshape(hidden, inputs)
    w2 = (uniform(seed, 2, outputs * hidden) * xavier).reshape(outputs, hidden)
    biases = np.zeros(hidden, np.float32), np.zeros(outputs, np.float32)
    wide_x, = wide(x)

    def forward(parameters):
        w1, bias1, w2, bias2 = parameters
        h = np.maximum(wide_x @ w1.T + bias1, 0)
        return h, h @ w2.T + bias2

    def backward(parameters, h, grad_y):
        grad_h = np.where(h > 0, grad_y @ parameters[2], 0)
        return [grad_h.T @ wide_x, grad_h.sum(axis=0), grad_y.T @ h, grad_y.sum(axis=0)]

    begin = wide(w1, biases[0], w2, biases[1])
    h, y = forward(begin)
    arrays = {"x": x, "labels": labels.astype(np.float64), "grad_y": grad_y, "y": y,
              "w1": w1, "w2": w2}
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    arrays |= {f"grad_{name}": grad
               for name, grad in zip(names, backward(begin, h, grad_y.astype(np.float64)))}

    for name in ("sgd", "adam"):
        rate, beta1, beta2, epsilon = (
            np.float64(np.float32(value)) for value in (0.1 if name == "sgd" else 0.01, 0.9, 0.999, 1e-8))
        parameters, losses = [p.copy() for p in begin], []
        means, squares = ([np.zeros_like(p) for p in begin] for _ in range(2))
        for t in range(1, 21):
            h, y = forward(parameters)
            loss, grad = cross_entropy(y, labels)
            losses.append(loss)
            for p, m, v, g in zip(parameters, means, squares, backward(parameters, h, grad)):
                if name == "sgd":
                    p -= rate * g
                    continue
                m += (1 - beta1) * (g - m)
                v += (1 - beta2) * (g**2 - v)
                p -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
        arrays |= {f"{name}_loss": np.array(losses)}
        arrays |= {f"{name}_{array}": p for array, p in zip(names, parameters)}
    return arrays
