"""The references of train_mnist."""

import math

import numpy as np

from inputs import permute, uniform, wide
from steps.losses import cross_entropy


def references():
    """784-8-10 with ReLU and Adam: the losses of 20 steps, five epochs of four batches."""
    generator = np.random.default_rng(58)
    seed, images, batch, pixels, hidden, classes = 2**33 + 5, 90, 20, 784, 8, 10
    x = generator.integers(0, 256, size=(images, pixels), dtype=np.uint8)
    x[generator.random(size=x.shape) < 0.7] = 0  # most of a digit's image is paper
    labels = generator.integers(0, classes, size=images, dtype=np.uint8)
    he, xavier = np.float32(math.sqrt(6 / pixels)), np.float32(math.sqrt(6 / (hidden + classes)))
    tensors = list(wide((uniform(seed, 0, hidden * pixels) * he).reshape(hidden, pixels),
                        np.zeros(hidden, np.float32),
                        (uniform(seed, 2, classes * hidden) * xavier).reshape(classes, hidden),
                        np.zeros(classes, np.float32)))
    moments = [[np.zeros_like(tensor), np.zeros_like(tensor)] for tensor in tensors]
    rate, beta1, beta2, epsilon = (float(np.float32(value)) for value in (1e-3, 0.9, 0.999, 1e-8))
    losses, steps_per_epoch = [], images // batch
    for step in range(20):
        place = np.arange(batch) + step % steps_per_epoch * batch
        rows = permute(place, images, seed, step // steps_per_epoch).astype(np.int64)
        w1, b1, w2, b2 = tensors
        batch_x = x[rows] / 255.0
        sums = batch_x @ w1.T + b1
        h = np.maximum(sums, 0.0)
        loss, grad_logits = cross_entropy(h @ w2.T + b2, labels[rows])
        losses.append(loss)
        grad_sums = (grad_logits @ w2) * (sums > 0)
        grads = [grad_sums.T @ batch_x, grad_sums.sum(axis=0), grad_logits.T @ h,
                 grad_logits.sum(axis=0)]
        for tensor, (m, v), grad in zip(tensors, moments, grads):
            m += (1 - beta1) * (grad - m)
            v += (1 - beta2) * (grad**2 - v)
            m_hat, v_hat = m / (1 - beta1**(step + 1)), v / (1 - beta2**(step + 1))
            tensor -= rate * m_hat / (np.sqrt(v_hat) + epsilon)
    return {"pixels": x, "labels": labels, "losses": np.array(losses)}
