"""The references of activation_backward."""

import numpy as np

from inputs import random, wide
from steps.activations import ACTIVATIONS


def references():
    generator = np.random.default_rng(52)
    rows, cols = 67, 36
    x, grad_y = random(generator, (rows, cols)), random(generator, (rows, cols))
    labels = generator.integers(0, cols, size=rows)
    wide_x, wide_grad_y = wide(x, grad_y)
    arrays = {"x": x, "grad_y": grad_y, "labels": labels.astype(np.float64)}
    for name, function in ACTIVATIONS.items():
        grad_x = function(wide_x)[1] * wide_grad_y
        arrays |= {f"{name}_grad_x": grad_x, f"{name}_grad_bias": grad_x.sum(axis=0)}
    # The Jacobian of each row, as it is written, and the loss's gradient by p through it.
    exponentials = np.exp(wide_x - wide_x.max(axis=1, keepdims=True))
    p = (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(np.float32)
    wide_p, = wide(p)
    jacobian = wide_p[:, :, None] * (np.eye(cols) - wide_p[:, None, :])
    grad_p = np.where(np.arange(cols) == labels[:, None], -1 / (rows * wide_p), 0.0)
    return arrays | {"p": p, "softmax": np.einsum("rjk,rk->rj", jacobian, wide_grad_y),
                     "cross_entropy": np.einsum("rjk,rk->rj", jacobian, grad_p)}
