"""The references of transformer_block."""

import math

import numpy as np

from inputs import random
from steps.activations import gelu_tanh
from steps.layernorm import layer_norm, layer_norm_backward

BLOCK_TENSORS = ("norm1.weight", "norm1.bias", "qkv.weight", "qkv.bias", "proj.weight", "proj.bias",
                 "norm2.weight", "norm2.bias", "fc.weight", "fc.bias", "out.weight", "out.bias")


def block_shapes(channels):
    return dict(zip(BLOCK_TENSORS, (
        (channels,), (channels,), (3 * channels, channels), (3 * channels,), (channels, channels),
        (channels,), (channels,), (channels,), (4 * channels, channels), (4 * channels,),
        (channels, 4 * channels), (channels,))))


def block(x, p, heads):
    """Pre-norm attention and feed-forward network of x (B, T, C): y, and what backward needs."""
    batch, length, channels = x.shape
    size = channels // heads
    norm1, kept1 = layer_norm(x, p["norm1.weight"], p["norm1.bias"])
    qkv = norm1 @ p["qkv.weight"].T + p["qkv.bias"]
    q, k, v = qkv.reshape(batch, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
    scores = np.where(np.tril(np.ones((length, length), bool)),
                      q @ k.swapaxes(2, 3) / math.sqrt(size), -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    attended = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    h = x + attended @ p["proj.weight"].T + p["proj.bias"]
    norm2, kept2 = layer_norm(h, p["norm2.weight"], p["norm2.bias"])
    hidden, slope = gelu_tanh(norm2 @ p["fc.weight"].T + p["fc.bias"])
    y = h + hidden @ p["out.weight"].T + p["out.bias"]
    return y, (kept1, norm1, q, k, v, weights, attended, kept2, norm2, hidden, slope)


def block_backward(grad_y, p, heads, kept):
    """The gradients of x, and of the parameters by their names."""
    kept1, norm1, q, k, v, weights, attended, kept2, norm2, hidden, slope = kept
    batch, length, channels = grad_y.shape
    size, grads = channels // heads, {}

    def linear(name, grad_out, x):
        grads[f"{name}.weight"] = np.einsum("bto,bti->oi", grad_out, x)
        grads[f"{name}.bias"] = grad_out.sum(axis=(0, 1))
        return grad_out @ p[f"{name}.weight"]

    grad_norm2 = linear("fc", linear("out", grad_y, hidden) * slope, norm2)
    grad_h, grads["norm2.weight"], grads["norm2.bias"] = layer_norm_backward(
        grad_norm2, p["norm2.weight"], kept2)
    grad_h = grad_h + grad_y
    grad_heads = linear("proj", grad_h, attended)
    grad_heads = grad_heads.reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    grad_weights = grad_heads @ v.swapaxes(2, 3)
    inner = (grad_weights * weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - inner) / math.sqrt(size)
    grad_qkv = np.stack([grad_scores @ k, grad_scores.swapaxes(2, 3) @ q,
                         weights.swapaxes(2, 3) @ grad_heads])
    grad_qkv = grad_qkv.transpose(1, 3, 0, 2, 4).reshape(batch, length, 3 * channels)
    grad_x, grads["norm1.weight"], grads["norm1.bias"] = layer_norm_backward(
        linear("qkv", grad_qkv, norm1), p["norm1.weight"], kept1)
    return grad_x + grad_h, grads


def references():
    """Forward and backward of a block of awkward sizes."""
    generator = np.random.default_rng(74)
    batch, length, channels, heads = 2, 9, 12, 3
    x = random(generator, (batch, length, channels))
    grad_y = random(generator, x.shape)
    parameters = {}
    for name, shape in block_shapes(channels).items():
        scale = 1 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.3
        centre = 1 if name in ("norm1.weight", "norm2.weight") else 0
        parameters[name] = generator.normal(centre, scale, shape).astype(np.float32)
    exact = {name: array.astype(np.float64) for name, array in parameters.items()}
    y, kept = block(x.astype(np.float64), exact, heads)
    grad_x, grads = block_backward(grad_y.astype(np.float64), exact, heads, kept)
    return {"shape": np.array([batch, length, channels, heads], np.float64), "x": x,
            "grad_y": grad_y, "y": y, "grad_x": grad_x, **parameters,
            **{f"grad_{name}": grads[name] for name in BLOCK_TENSORS}}
