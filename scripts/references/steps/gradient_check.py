"""The references of gradient_check."""

import numpy as np

from inputs import random, wide


def references():
    """Loss and gradients of a network w2 tanh(w1 x + b1) + b2 with cross-entropy."""
    generator = np.random.default_rng(53)
    batch, inputs, hidden, outputs = 7, 5, 6, 4
    x, w1, b1 = (random(generator, size) for size in ((batch, inputs), (hidden, inputs), hidden))
    w2, b2 = random(generator, (outputs, hidden)), random(generator, outputs)
    labels = generator.integers(0, outputs, size=batch)
    wide_x, wide_w1, wide_b1, wide_w2, wide_b2 = wide(x, w1, b1, w2, b2)
    h = np.tanh(wide_x @ wide_w1.T + wide_b1)
    logits = h @ wide_w2.T + wide_b2
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    one_hot = np.arange(outputs) == labels[:, None]
    grad_logits = (p - one_hot) / batch
    grad_sums = grad_logits @ wide_w2 * (1 - h**2)
    return {"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2, "labels": labels.astype(np.float64),
            "loss": -np.log(p[one_hot]).mean(),
            "grad_x": grad_sums @ wide_w1, "grad_w1": grad_sums.T @ wide_x,
            "grad_b1": grad_sums.sum(axis=0), "grad_w2": grad_logits.T @ h,
            "grad_b2": grad_logits.sum(axis=0)}
