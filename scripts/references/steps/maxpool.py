"""The references of maxpool."""

import numpy as np

from inputs import wide

# H, W, R, S, stride_h, stride_w, pad_h, pad_w of windows that overlap, touch one another, leave cells
# out, and do so differently along rows and columns.
POOLS = ((9, 11, 3, 3, 2, 2, 1, 1), (8, 12, 2, 2, 2, 2, 0, 0), (7, 10, 2, 2, 2, 2, 0, 0),
         (7, 7, 5, 2, 1, 3, 4, 1), (10, 9, 1, 2, 3, 2, 0, 0))


def references():
    """Small integers, so that most windows have several largest values and sums are exact."""
    generator = np.random.default_rng(62)
    arrays = {"shapes": np.array(POOLS, dtype=np.int32)}
    for k, (h, w, r, s, stride_h, stride_w, pad_h, pad_w) in enumerate(POOLS):
        x = generator.integers(-3, 3, size=(2, 3, h, w)).astype(np.float32)
        padded = np.pad(wide(x)[0], ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)),
                        constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (r, s), axis=(2, 3))
        windows = windows[:, :, ::stride_h, ::stride_w].reshape(*windows.shape[:2],
                                                                (h + 2 * pad_h - r) // stride_h + 1,
                                                                (w + 2 * pad_w - s) // stride_w + 1,
                                                                r * s)
        argmax = windows.argmax(axis=-1)  # the first of several
        grad_y = generator.integers(-9, 10, size=argmax.shape).astype(np.float32)
        grad_padded = np.zeros_like(padded)
        n, c, p, q = np.indices(argmax.shape)
        np.add.at(grad_padded, (n, c, p * stride_h + argmax // s, q * stride_w + argmax % s), grad_y)
        arrays |= {f"{k}_x": x, f"{k}_y": windows.max(axis=-1), f"{k}_argmax": argmax.astype(np.int32),
                   f"{k}_grad_y": grad_y,
                   f"{k}_grad_x": grad_padded[:, :, pad_h:pad_h + h, pad_w:pad_w + w]}
    return arrays
