"""The references of optimizers."""

import numpy as np

from inputs import random


def references():
    """100 steps of each optimizer with given gradients; the learning rate is halved after 50."""
    generator = np.random.default_rng(54)
    steps, n = 100, 61
    # From parameter to parameter the gradients differ by up to a factor of a million.
    scale = 10.0 ** generator.uniform(-5, 1, n)
    w, grads = random(generator, n), (scale * random(generator, (steps, n))).astype(np.float32)
    rate, momentum, beta1, beta2, epsilon, weight_decay = (
        np.float64(np.float32(x)) for x in (0.01, 0.9, 0.9, 0.999, 1e-8, 0.1))
    arrays = {"w": w, "grads": grads}
    for name in ("sgd", "momentum", "adam", "adamw"):
        p, m, v = w.astype(np.float64), np.zeros(n), np.zeros(n)
        for t, g in enumerate(grads.astype(np.float64), 1):
            lr = rate if t <= 50 else rate / 2
            if name == "sgd":
                p -= lr * g
            elif name == "momentum":
                m = momentum * m + g
                p -= lr * m
            else:
                if name == "adamw":
                    p -= lr * weight_decay * p
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g**2
                p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
            if t in (3, steps):
                arrays |= {f"{name}{t}_w": p.copy(), f"{name}{t}_m": m, f"{name}{t}_v": v}
    return arrays
