"""The references of layernorm."""

import numpy as np

from inputs import random, wide


def references():
    """Rows of a matrix and of a sum of two, and the gradients for the mean and rstd in float32."""
    generator = np.random.default_rng(72)
    rows, cols, eps = 11, 131, np.float64(np.float32(1e-5))
    x, residual, grad_y = (random(generator, (rows, cols)) for _ in range(3))
    gain, bias = random(generator, cols), random(generator, cols)
    x[1] += 9000  # far from 0
    x[2], residual[2] = 0.1, 0  # equal elements
    x[3] *= 1e-4
    arrays = {"x": x, "residual": residual, "grad_y": grad_y, "gain": gain, "bias": bias}
    for name, matrix in (("x", x), ("sum", x + residual)):
        wide_x, = wide(matrix)
        mean = wide_x.mean(axis=1, keepdims=True)
        rstd = 1 / np.sqrt(((wide_x - mean)**2).mean(axis=1, keepdims=True) + eps)
        arrays |= {f"y_of_{name}": (wide_x - mean) * rstd * gain + bias,
                   f"mean_of_{name}_wide": mean[:, 0], f"rstd_of_{name}_wide": rstd[:, 0]}
        if name == "x":
            kept_mean, kept_rstd = mean.astype(np.float32), rstd.astype(np.float32)
    wide_x, wide_grad_y, wide_residual = wide(x, grad_y, residual)
    n = (wide_x - kept_mean) * kept_rstd.astype(np.float64)
    g = wide_grad_y * gain
    grad_x = kept_rstd * (g - g.mean(axis=1, keepdims=True)
                          - n * (g * n).mean(axis=1, keepdims=True))
    return arrays | {"mean_of_x": kept_mean[:, 0], "rstd_of_x": kept_rstd[:, 0],
                     "grad_x": grad_x + wide_residual, "grad_gain": (wide_grad_y * n).sum(axis=0),
                     "grad_bias": wide_grad_y.sum(axis=0)}


def layer_norm(x, gain, bias):
    """The rows normalized, with gain and bias; and what the backward pass needs."""
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + float(np.float32(1e-5)))
    return centred * rstd * gain + bias, (centred * rstd, rstd)


def layer_norm_backward(grad_y, gain, kept):
    """The gradients of x, gain and bias."""
    hat, rstd = kept
    grad_hat = grad_y * gain
    grad_x = rstd * (grad_hat - grad_hat.mean(axis=-1, keepdims=True)
                     - hat * (grad_hat * hat).mean(axis=-1, keepdims=True))
    return grad_x, (grad_y * hat).sum(axis=(0, 1)), grad_y.sum(axis=(0, 1))
