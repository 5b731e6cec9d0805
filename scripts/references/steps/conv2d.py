"""The references of conv2d."""

import numpy as np

from inputs import random, wide


def references():
    """A window of no square with strides and paddings of its own, and the usual one of 3 x 3."""
    generator = np.random.default_rng(61)
    arrays = {}
    for name, x_shape, w_shape, stride, pad in (
            ("any", (3, 5, 11, 9), (7, 5, 4, 2), (3, 2), (2, 1)),
            ("three", (5, 3, 8, 7), (9, 3, 3, 3), (1, 1), (1, 1))):
        x, w = random(generator, x_shape), random(generator, w_shape)
        bias = random(generator, w_shape[0])
        wide_x, wide_w, wide_bias = wide(x, w, bias)
        padded = np.pad(wide_x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
        rows, cols = ((padded.shape[2 + i] - w_shape[2 + i]) // stride[i] + 1 for i in (0, 1))

        def window(r, s):
            """What element [r, s] of the filters meets of the padded x, at every output."""
            return (slice(None), slice(None), slice(r, r + stride[0] * rows, stride[0]),
                    slice(s, s + stride[1] * cols, stride[1]))

        taps = [(r, s) for r in range(w_shape[2]) for s in range(w_shape[3])]
        sums = wide_bias[:, None, None] + sum(
            np.einsum("kc,nchw->nkhw", wide_w[:, :, r, s], padded[window(r, s)]) for r, s in taps)
        grad_y = random(generator, sums.shape)
        wide_grad_y, = wide(grad_y)
        grad_w, grad_padded = np.zeros(w_shape), np.zeros(padded.shape)
        for r, s in taps:
            grad_w[:, :, r, s] = np.einsum("nkhw,nchw->kc", wide_grad_y, padded[window(r, s)])
            grad_padded[window(r, s)] += np.einsum("kc,nkhw->nchw", wide_w[:, :, r, s], wide_grad_y)
        grad_x = grad_padded[:, :, pad[0]:pad[0] + x_shape[2], pad[1]:pad[1] + x_shape[3]]
        arrays |= {f"{name}_{key}": array for key, array in {
            "x": x, "w": w, "bias": bias, "grad_y": grad_y, "linear": sums,
            "relu": np.maximum(sums, 0.0), "grad_w": grad_w, "grad_x": np.ascontiguousarray(grad_x),
            "grad_bias": wide_grad_y.sum(axis=(0, 2, 3))}.items()}
    return arrays
