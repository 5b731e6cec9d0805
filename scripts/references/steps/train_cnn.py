"""The references of train_cnn."""

import math

import numpy as np

from inputs import permute, uniform, wide
from steps.losses import cross_entropy


def convolve(x, w, bias):
    """3x3 with padding 1, x (N, C, H, W), w (K, C, 3, 3); and the windows of x: (N, C, H, W, 3, 3)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, w) + bias[:, None, None], windows


def pool(x):
    """The largest of each 2x2, and where it is: 1 at the first of the largest, else 0."""
    n, c, h, w = x.shape
    tiles = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    tiles = tiles.reshape(n, c, h // 2, w // 2, 4)
    return tiles.max(axis=-1), np.arange(4) == tiles.argmax(axis=-1)[..., None]


def unpool(grad, chosen):
    n, c, h, w, _ = chosen.shape
    tiles = np.where(chosen, grad[..., None], 0.0).reshape(n, c, h, w, 2, 2)
    return tiles.transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)


def cnn_gradients(tensors, x, labels):
    """The loss of step 6.4's network, and the gradients of its parameters."""
    w1, b1, w2, b2, w3, b3, w4, b4 = tensors
    sums1, windows1 = convolve(x, w1, b1)
    pooled1, chosen1 = pool(np.maximum(sums1, 0.0))
    sums2, windows2 = convolve(pooled1, w2, b2)
    pooled2, chosen2 = pool(np.maximum(sums2, 0.0))
    features = pooled2.reshape(len(x), -1)
    sums3 = features @ w3.T + b3
    h = np.maximum(sums3, 0.0)
    loss, grad4 = cross_entropy(h @ w4.T + b4, labels)
    grad3 = (grad4 @ w4) * (sums3 > 0)
    grad2 = unpool((grad3 @ w3).reshape(pooled2.shape), chosen2) * (sums2 > 0)
    # A pixel was at place (r, s) of the window that is r up and s to the left, and so on: the same
    # convolution with the filters turned around, from output channels to input channels.
    turned = w2[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    grad1 = unpool(convolve(grad2, turned, np.zeros(len(b1)))[0], chosen1) * (sums1 > 0)
    return loss, [np.einsum("nkhw,nchwrs->kcrs", grad1, windows1), grad1.sum(axis=(0, 2, 3)),
                  np.einsum("nkhw,nchwrs->kcrs", grad2, windows2), grad2.sum(axis=(0, 2, 3)),
                  grad3.T @ features, grad3.sum(axis=0), grad4.T @ h, grad4.sum(axis=0)]


def references():
    """The network of step 6.4 with 8 hidden units and Adam: the losses of 20 steps, five epochs of
    four batches; of the first step the gradients, and the parameters behind it."""
    generator = np.random.default_rng(63)
    seed, images, batch, hidden, classes = 2**33 + 6, 26, 6, 8, 10
    pixels = generator.integers(0, 256, size=(images, 28, 28), dtype=np.uint8)
    pixels[generator.random(size=pixels.shape) < 0.7] = 0  # most of a digit's image is paper
    labels = generator.integers(0, classes, size=images, dtype=np.uint8)
    shapes = (8, 1, 3, 3), (16, 8, 3, 3), (hidden, 784), (classes, hidden)
    bounds = (math.sqrt(6 / 9), math.sqrt(6 / 72), math.sqrt(6 / 784),
              math.sqrt(6 / (hidden + classes)))
    tensors = []
    for i, (shape, bound) in enumerate(zip(shapes, bounds)):
        w = uniform(seed, 2 * i, math.prod(shape)) * np.float32(bound)
        tensors += wide(w.reshape(shape), np.zeros(shape[0], np.float32))
    names = [f"{layer}.{name}" for layer in (0, 3, 7, 9) for name in ("weight", "bias")]
    moments = [[np.zeros_like(tensor), np.zeros_like(tensor)] for tensor in tensors]
    rate, beta1, beta2, epsilon = (float(np.float32(value)) for value in (1e-3, 0.9, 0.999, 1e-8))
    arrays = {"pixels": pixels, "labels": labels}
    losses, steps_per_epoch = [], images // batch
    for step in range(20):
        place = np.arange(batch) + step % steps_per_epoch * batch
        rows = permute(place, images, seed, step // steps_per_epoch).astype(np.int64)
        loss, grads = cnn_gradients(tensors, pixels[rows, None] / 255.0, labels[rows])
        losses.append(loss)
        for tensor, (m, v), grad in zip(tensors, moments, grads):
            m += (1 - beta1) * (grad - m)
            v += (1 - beta2) * (grad**2 - v)
            m_hat, v_hat = m / (1 - beta1**(step + 1)), v / (1 - beta2**(step + 1))
            tensor -= rate * m_hat / (np.sqrt(v_hat) + epsilon)
        if step == 0:
            arrays |= {f"grad_{name}": grad for name, grad in zip(names, grads)}
            arrays |= {f"first_{name}": tensor.copy() for name, tensor in zip(names, tensors)}
    return arrays | {"losses": np.array(losses)}
