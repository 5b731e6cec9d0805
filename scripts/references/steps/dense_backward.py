"""The references of dense_backward."""

import numpy as np

from inputs import random, wide


def references():
    generator = np.random.default_rng(51)
    batch, inputs, outputs = 37, 67, 29
    x, w = random(generator, (batch, inputs)), random(generator, (outputs, inputs))
    grad_y = random(generator, (batch, outputs))
    wide_x, wide_w, wide_grad_y = wide(x, w, grad_y)
    return {"x": x, "w": w, "grad_y": grad_y, "grad_w": wide_grad_y.T @ wide_x,
            "grad_bias": wide_grad_y.sum(axis=0), "grad_x": wide_grad_y @ wide_w}
