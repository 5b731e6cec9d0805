"""The references of train_toy."""

import math

import numpy as np

from inputs import uniform
from steps.losses import cross_entropy


def references():
    """The data sets, made as data.cpp makes them, and the losses of the first 20 steps."""
    seed, steps = 7, 20
    angles = 2 * math.pi

    def points(x, labels):
        return (np.round(np.stack(x, axis=1) * 4096) / 4096).astype(np.float32), labels

    i = np.arange(256)
    numbers = (1 - uniform(seed, 100, 512).astype(np.float64)) / 2
    radius, angle = 0.4 * np.sqrt(-2 * np.log(numbers[::2])), angles * numbers[1::2]
    side = np.where(i % 2 == 1, 1.0, -1.0)
    blobs = points([side + radius * np.cos(angle), side / 2 + radius * np.sin(angle)], i % 2)

    i = np.arange(192)
    along = (i // 3 + 0.5) / 64
    angle = angles * (i % 3 / 3 + 0.75 * along) + 0.2 * uniform(seed, 101, 192).astype(np.float64)
    radius = 0.1 + 0.9 * along
    spiral = points([radius * np.cos(angle), radius * np.sin(angle)], i % 3)

    xor = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32), np.array([0, 1, 1, 0])

    arrays = {}
    for name, (x, labels), widths in (("xor", xor, (2, 8, 2)), ("blobs", blobs, (2, 8, 2)),
                                      ("spiral", spiral, (2, 16, 16, 3))):
        arrays |= {f"{name}_x": x, f"{name}_labels": labels.astype(np.float64)}
        for optimizer, rate in (("momentum", np.float64(np.float32(0.2))),
                                ("adam", np.float64(np.float32(0.01)))):
            parameters = []
            for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
                bound = np.float32(math.sqrt(6 / (inputs + outputs)))
                w = uniform(seed, 2 * layer, inputs * outputs) * bound
                parameters += [w.astype(np.float64).reshape(outputs, inputs), np.zeros(outputs)]
            means, squares = ([np.zeros_like(p) for p in parameters] for _ in range(2))
            losses = []
            for t in range(1, steps + 1):
                values = [x.astype(np.float64)]
                for k in range(0, len(parameters), 2):
                    sums = values[-1] @ parameters[k].T + parameters[k + 1]
                    values.append(np.tanh(sums) if k + 2 < len(parameters) else sums)
                loss, grad = cross_entropy(values[-1], labels)
                losses.append(loss)
                gradients = [None] * len(parameters)
                for k in reversed(range(0, len(parameters), 2)):
                    before = values[k // 2]
                    gradients[k], gradients[k + 1] = grad.T @ before, grad.sum(axis=0)
                    grad = grad @ parameters[k] * (1 - before**2)
                for p, m, v, g in zip(parameters, means, squares, gradients):
                    if optimizer == "momentum":
                        m[:] = np.float64(np.float32(0.9)) * m + g
                        p -= rate * m
                        continue
                    beta1, beta2 = np.float64(np.float32(0.9)), np.float64(np.float32(0.999))
                    m += (1 - beta1) * (g - m)
                    v += (1 - beta2) * (g**2 - v)
                    p -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
            arrays[f"{name}_{optimizer}_losses"] = np.array(losses)
    return arrays
