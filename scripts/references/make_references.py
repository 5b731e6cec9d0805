#!/usr/bin/env python3
"""Writes the NumPy references that the tests compare with: make_references.py FOLDER

Every array becomes FOLDER/<step>_<array>.npy. Inputs are float32, from fixed seeds; results are
float64, computed in double precision from those float32 inputs. The tests read them through
common/npy.h; CTest runs this script as a fixture.
"""

import argparse
import math
import os
import sys
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("make_references.py needs NumPy: pip install -r scripts/requirements.txt")

SIZE = 1003  # no multiple of a block, a wave or a 128-bit load

# What a float kernel gets wrong first: both zeros, subnormals, where exp overflows (88.7) and
# underflows (-103.9) in float, where tanh and erf saturate, and what only a stable form survives.
AWKWARD = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, -1.2e-38, 1e-8, -1e-8, 1e-4, -1e-4]
    + [sign * value
       for value in (0.5, 1, 2, 3, 4, 5, 6, 8, 9.01, 10, 13, 16.6, 20, 40, 87, 88, 88.7, 89, 100,
                     103.9, 104, 500, 1e4)
       for sign in (1, -1)],
    dtype=np.float32)


def random(generator, size=SIZE):
    """Normal numbers as float32: asymmetric, so that no swapped index can hide."""
    return generator.normal(loc=0.25, scale=1.5, size=size).astype(np.float32)


def wide(*arrays):
    return tuple(array.astype(np.float64) for array in arrays)


def philox(counter, key):
    """Philox4x32-10 of four arrays of 32-bit words (held in uint64), as common/random.h has it."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        p0, p1 = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF,
                   p0 >> 32 ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def philox_words(quads, seed, stream, purpose):
    """The four words of each quad of sequence `stream`: an array (quads, 4) of uint64."""
    quads = np.asarray(quads, dtype=np.uint64)
    counter = [quads & np.uint64(0xFFFFFFFF), quads >> np.uint64(32),
               np.full_like(quads, stream), np.full_like(quads, purpose)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    return np.stack(philox(counter, key), axis=-1)


def uniform(seed, stream, n):
    """random_numbers::uniform(seed, stream, i) for i < n: float32 in [-1, 1)."""
    words = philox_words(np.arange((n + 3) // 4), seed, stream, 0).reshape(-1)[:n]
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def permute(i, n, seed, stream):
    """random_numbers::permute for each element of i: a bijection of [0, n)."""
    half = 1
    while half < 31 and 1 << 2 * half < n:
        half += 1
    keys = philox_words(np.arange(2), seed, stream, 1).reshape(-1)

    def mix(x):
        x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return x ^ x >> 16

    i = np.array(i, dtype=np.uint64)
    outside = np.ones(i.shape, dtype=bool)
    while outside.any():
        left, right = i[outside] >> half, i[outside] & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ mix(right ^ key) >> 32 - half
        i[outside] = left << half | right
        outside = i >= n
    return i


def vector_add():
    generator = np.random.default_rng(11)
    a, b = random(generator), random(generator)
    wide_a, wide_b = wide(a, b)
    return {"a": a, "b": b, "sum": wide_a + wide_b, "product": wide_a * wide_b}


def axpy():
    generator = np.random.default_rng(12)
    x, y, alpha = random(generator), random(generator), np.float32(-1.7)
    wide_x, wide_y, wide_alpha = wide(x, y, alpha)
    return {"x": x, "y": y, "alpha": alpha,
            "result": wide_alpha * wide_x + wide_y, "scaled": wide_alpha * wide_x}


def dot():
    generator = np.random.default_rng(13)
    x, y = random(generator), random(generator)
    # The product of two floats is exact in double, and fsum rounds only once.
    return {"x": x, "y": y, "result": np.float64(math.fsum(np.multiply(*wide(x, y))))}


erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    """1 / (1 + exp(-x)) without overflow and, for x < 0, without cancellation."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def gelu_tanh(x):
    """x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x sigmoid(2u), and its
    derivative (Hendrycks and Gimpel: Gaussian error linear units. arXiv:1606.08415)."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return x * sigmoid(2 * u), sigmoid(2 * u) + 2 * x * slope * sigmoid(2 * u) * sigmoid(-2 * u)


def gelu_erf(x):
    """x Phi(x), Phi the normal distribution function as erfc, which keeps its digits for x < 0,
    and its derivative."""
    phi = erfc(-x / math.sqrt(2)) / 2
    return x * phi, phi + x * np.exp(-x**2 / 2) / math.sqrt(2 * math.pi)


# name -> x -> (value, derivative)
ACTIVATIONS = {
    "relu": lambda x: (np.maximum(x, 0), np.where(x > 0, 1.0, 0.0)),
    "sigmoid": lambda x: (sigmoid(x), sigmoid(x) * sigmoid(-x)),
    "tanh": lambda x: (np.tanh(x), 4 * sigmoid(2 * x) * sigmoid(-2 * x)),
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "softplus": lambda x: (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), sigmoid(x)),
}


def activations():
    generator = np.random.default_rng(14)
    random_x = 3 * random(generator, SIZE - AWKWARD.size)
    x, grad_y = np.concatenate([AWKWARD, random_x]), random(generator)
    arrays = {"x": x, "grad_y": grad_y}
    wide_x, wide_grad_y = wide(x, grad_y)
    for name, function in ACTIVATIONS.items():
        value, derivative = function(wide_x)
        arrays[name] = value
        arrays[name + "_grad"] = derivative * wide_grad_y
    return arrays


def matrix_activations():
    generator = np.random.default_rng(31)
    rows, cols = 67, 31
    x, grad_y = random(generator, (rows, cols)), random(generator, (rows, cols))
    bias = random(generator, cols)
    arrays = {"x": x, "bias": bias, "grad_y": grad_y}
    # One addition rounds alike everywhere: the sum is float32, what follows is double.
    sums, wide_grad_y = wide(x + bias, grad_y)
    for name, function in ACTIVATIONS.items():
        value, derivative = function(sums)
        arrays[name] = value
        arrays[name + "_grad"] = derivative * wide_grad_y
    return arrays


def transpose():
    generator = np.random.default_rng(21)
    a = random(generator, (100, 68))
    return {"a": a, "result": np.ascontiguousarray(a.astype(np.float64).T)}


def gemv():
    generator = np.random.default_rng(22)
    rows, cols = 67, 131
    a, x, x_transposed = random(generator, (rows, cols)), random(generator, cols), random(generator, rows)
    y, y_transposed = random(generator, rows), random(generator, cols)
    alpha, beta = np.float32(-1.3), np.float32(0.7)
    wide_a, wide_x, wide_y = wide(a, x, y)
    return {"a": a, "x": x, "y": y, "x_transposed": x_transposed, "y_transposed": y_transposed,
            "alpha": alpha, "beta": beta,
            "result": np.float64(alpha) * (wide_a @ wide_x) + np.float64(beta) * wide_y,
            "result_transposed": np.float64(alpha) * (wide_a.T @ x_transposed.astype(np.float64))
            + np.float64(beta) * y_transposed.astype(np.float64)}


def round_fraction(array, bits):
    """float32 with `bits` of its 23 fraction bits left, rounded to nearest, ties to even."""
    dropped = 23 - bits
    words = array.view(np.uint32).astype(np.uint64)
    words += (1 << (dropped - 1)) - 1 + (words >> dropped & 1)
    return (words >> dropped << dropped).astype(np.uint32).view(np.float32)


def gemm():
    """C = alpha op(A) op(B) + beta C in the three layouts; x_t is stored as its transpose."""
    generator = np.random.default_rng(23)
    m, n, k = 37, 29, 43
    a, a_t, b, b_t, c = (random(generator, shape) for shape in ((m, k), (k, m), (k, n), (n, k), (m, n)))
    alpha, beta = np.float32(-1.3), np.float32(0.7)
    wide_a, wide_a_t, wide_b, wide_b_t, wide_c, wide_alpha, wide_beta = wide(
        a, a_t, b, b_t, c, alpha, beta)
    products = {"nn": wide_a @ wide_b, "nt": wide_a @ wide_b_t.T, "tn": wide_a_t.T @ wide_b}
    return {"a": a, "a_t": a_t, "b": b, "b_t": b_t, "c": c, "alpha": alpha, "beta": beta,
            **{name: wide_alpha * product + wide_beta * wide_c for name, product in products.items()}}


def gemm_mixed():
    generator = np.random.default_rng(24)
    a, b = random(generator, (37, 53)), random(generator, (53, 29))
    arrays = {"a": a, "b": b}
    for name, rounded in (("fp16", lambda x: x.astype(np.float16).astype(np.float32)),
                          ("bf16", lambda x: round_fraction(x, 7)),
                          ("tf32", lambda x: round_fraction(x, 10))):
        arrays["a_" + name] = rounded(a)
        arrays["product_" + name] = np.matmul(*wide(rounded(a), rounded(b)))
    return arrays


def softmax():
    generator = np.random.default_rng(32)
    x = random(generator, (5, SIZE))
    # Rows with differences of thousands, far from 0, and with the awkward numbers (1e4 wins).
    x[1] *= 2000
    x[2] += 9000
    x[3, 100:100 + AWKWARD.size] = AWKWARD
    wide_x = x.astype(np.float64)
    exponentials = np.exp(wide_x - wide_x.max(axis=1, keepdims=True))
    return {"x": x, "y": exponentials / exponentials.sum(axis=1, keepdims=True)}


def losses():
    generator = np.random.default_rng(33)
    p, t = random(generator), random(generator)
    difference = np.subtract(*wide(p, t))
    rows, classes, ignored = 37, 131, -100
    logits = 3 * random(generator, (rows, classes))
    labels = generator.integers(0, classes, size=rows)
    labels[::5] = ignored
    counted = labels != ignored
    shifted, = wide(logits)
    shifted -= shifted.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = np.arange(classes) == labels[:, None]
    row_losses = np.where(counted, -(log_p * one_hot).sum(axis=1), 0.0)
    return {"mse_p": p, "mse_t": t, "mse_loss": np.mean(difference**2),
            "mse_grad": 2 * difference / difference.size,
            "logits": logits, "labels": labels.astype(np.float64), "row_losses": row_losses,
            "loss": row_losses.sum() / counted.sum(),
            "grad": np.where(counted[:, None], np.exp(log_p) - one_hot, 0.0) / counted.sum()}


def dense():
    generator = np.random.default_rng(41)
    batch, inputs, outputs = 37, 67, 29
    x, w = random(generator, (batch, inputs)), random(generator, (outputs, inputs))
    bias = random(generator, outputs)
    wide_x, wide_w, wide_bias = wide(x, w, bias)
    sums = wide_x @ wide_w.T + wide_bias
    arrays = {"x": x, "w": w, "bias": bias, "linear": sums}
    for name in ("relu", "gelu_tanh"):
        arrays[name] = ACTIVATIONS[name](sums)[0]
    return arrays


def mlp_forward():
    generator = np.random.default_rng(42)
    batch, inputs, hidden, outputs = 37, 67, 29, 11
    x = random(generator, (batch, inputs))
    w1, bias1 = random(generator, (hidden, inputs)), random(generator, hidden)
    w2, bias2 = random(generator, (outputs, hidden)), random(generator, outputs)
    wide_x, wide_w1, wide_bias1, wide_w2, wide_bias2 = wide(x, w1, bias1, w2, bias2)
    arrays = {"x": x, "w1": w1, "bias1": bias1, "w2": w2, "bias2": bias2}
    for name in ("relu", "sigmoid"):
        h = ACTIVATIONS[name](wide_x @ wide_w1.T + wide_bias1)[0]
        arrays[name] = h @ wide_w2.T + wide_bias2
    return arrays


def optimizers():
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


def dense_backward():
    generator = np.random.default_rng(51)
    batch, inputs, outputs = 37, 67, 29
    x, w = random(generator, (batch, inputs)), random(generator, (outputs, inputs))
    grad_y = random(generator, (batch, outputs))
    wide_x, wide_w, wide_grad_y = wide(x, w, grad_y)
    return {"x": x, "w": w, "grad_y": grad_y, "grad_w": wide_grad_y.T @ wide_x,
            "grad_bias": wide_grad_y.sum(axis=0), "grad_x": wide_grad_y @ wide_w}


def activation_backward():
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


def gradient_check():
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


def cross_entropy(logits, labels):
    """The mean loss over the rows, and its gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = np.arange(logits.shape[1]) == labels[:, None]
    return -(log_p * one_hot).sum() / len(labels), (np.exp(log_p) - one_hot) / len(labels)


def sequential():
    """Linear(5, 7), ReLU, Linear(7, 3): the numbers it begins with, one step, twenty steps."""
    generator = np.random.default_rng(55)
    seed, batch, inputs, hidden, outputs = 2**40 + 7, 37, 5, 7, 3
    x, labels = random(generator, (batch, inputs)), generator.integers(0, outputs, size=batch)
    grad_y = random(generator, (batch, outputs))
    # Parameter k draws from sequence k. Its bound is a float, and the product is rounded once.
    he, xavier = np.float32(math.sqrt(6 / inputs)), np.float32(math.sqrt(6 / (hidden + outputs)))
    w1 = (uniform(seed, 0, hidden * inputs) * he).reshape(hidden, inputs)
    w2 = (uniform(seed, 2, outputs * hidden) * xavier).reshape(outputs, hidden)
    biases = np.zeros(hidden, np.float32), np.zeros(outputs, np.float32)
    wide_x, = wide(x)

    def forward(parameters):
        w1, bias1, w2, bias2 = parameters
        h = np.maximum(wide_x @ w1.T + bias1, 0)
        return h, h @ w2.T + bias2

    def backward(parameters, h, grad_y):
        grad_h = np.where(h > 0, grad_y @ parameters[2], 0)
        return [grad_h.T @ wide_x, grad_h.sum(axis=0), grad_y.T @ h, grad_y.sum(axis=0)]

    begin = wide(w1, biases[0], w2, biases[1])
    h, y = forward(begin)
    arrays = {"x": x, "labels": labels.astype(np.float64), "grad_y": grad_y, "y": y,
              "w1": w1, "w2": w2}
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    arrays |= {f"grad_{name}": grad
               for name, grad in zip(names, backward(begin, h, grad_y.astype(np.float64)))}

    for name in ("sgd", "adam"):
        rate, beta1, beta2, epsilon = (
            np.float64(np.float32(value)) for value in (0.1 if name == "sgd" else 0.01, 0.9, 0.999, 1e-8))
        parameters, losses = [p.copy() for p in begin], []
        means, squares = ([np.zeros_like(p) for p in begin] for _ in range(2))
        for t in range(1, 21):
            h, y = forward(parameters)
            loss, grad = cross_entropy(y, labels)
            losses.append(loss)
            for p, m, v, g in zip(parameters, means, squares, backward(parameters, h, grad)):
                if name == "sgd":
                    p -= rate * g
                    continue
                m += (1 - beta1) * (g - m)
                v += (1 - beta2) * (g**2 - v)
                p -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
        arrays |= {f"{name}_loss": np.array(losses)}
        arrays |= {f"{name}_{array}": p for array, p in zip(names, parameters)}
    return arrays


def train_toy():
    """The data sets, made as train_toy.h makes them, and the losses of the first 20 steps."""
    seed, steps = 7, 20
    angles = 2 * math.pi

    def points(x, labels):
        return (np.round(np.stack(x, axis=1) * 4096) / 4096).astype(np.float32), labels

    i = np.arange(256)
    numbers = (1 - uniform(seed, 100, 512).astype(np.float64)) / 2
    radius, angle = 0.4 * np.sqrt(-2 * np.log(numbers[::2])), angles * numbers[1::2]
    side = np.where(i % 2 == 1, 1.0, -1.0)
    blobs = points([side + radius * np.cos(angle), side / 2 + radius * np.sin(angle)], i % 2)

    i = np.arange(192)
    along = (i // 3 + 0.5) / 64
    angle = angles * (i % 3 / 3 + 0.75 * along) + 0.2 * uniform(seed, 101, 192).astype(np.float64)
    radius = 0.1 + 0.9 * along
    spiral = points([radius * np.cos(angle), radius * np.sin(angle)], i % 3)

    xor = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32), np.array([0, 1, 1, 0])

    arrays = {}
    for name, (x, labels), widths in (("xor", xor, (2, 8, 2)), ("blobs", blobs, (2, 8, 2)),
                                      ("spiral", spiral, (2, 16, 16, 3))):
        arrays |= {f"{name}_x": x, f"{name}_labels": labels.astype(np.float64)}
        for optimizer, rate in (("momentum", np.float64(np.float32(0.2))),
                                ("adam", np.float64(np.float32(0.01)))):
            parameters = []
            for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
                bound = np.float32(math.sqrt(6 / (inputs + outputs)))
                w = uniform(seed, 2 * layer, inputs * outputs) * bound
                parameters += [w.astype(np.float64).reshape(outputs, inputs), np.zeros(outputs)]
            means, squares = ([np.zeros_like(p) for p in parameters] for _ in range(2))
            losses = []
            for t in range(1, steps + 1):
                values = [x.astype(np.float64)]
                for k in range(0, len(parameters), 2):
                    sums = values[-1] @ parameters[k].T + parameters[k + 1]
                    values.append(np.tanh(sums) if k + 2 < len(parameters) else sums)
                loss, grad = cross_entropy(values[-1], labels)
                losses.append(loss)
                gradients = [None] * len(parameters)
                for k in reversed(range(0, len(parameters), 2)):
                    before = values[k // 2]
                    gradients[k], gradients[k + 1] = grad.T @ before, grad.sum(axis=0)
                    grad = grad @ parameters[k] * (1 - before**2)
                for p, m, v, g in zip(parameters, means, squares, gradients):
                    if optimizer == "momentum":
                        m[:] = np.float64(np.float32(0.9)) * m + g
                        p -= rate * m
                        continue
                    beta1, beta2 = np.float64(np.float32(0.9)), np.float64(np.float32(0.999))
                    m += (1 - beta1) * (g - m)
                    v += (1 - beta2) * (g**2 - v)
                    p -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
            arrays[f"{name}_{optimizer}_losses"] = np.array(losses)
    return arrays


def sales_network(x, target, w1, b1, w2, b2):
    """The loss of Linear(24, 32), ReLU, Linear(32, 1) and its gradients, in the order of the
    arguments."""
    sums = x @ w1.T + b1
    hidden = np.maximum(sums, 0)
    error = hidden @ w2 + b2 - target
    grad_y = 2 * error / len(x)
    grad_sums = np.where(sums > 0, grad_y[:, None] * w2, 0)
    return np.mean(error**2), (grad_sums.T @ x, grad_sums.sum(axis=0), hidden.T @ grad_y,
                               grad_y.sum())


def train_sales():
    """Sales as features, and the losses of 20 steps of training with SGD and with Adam."""
    generator = np.random.default_rng(57)
    sales, categories = 977, 17  # the last category has no column
    first, last = np.datetime64("0001-01-01"), np.datetime64("9999-12-31")
    days = generator.integers((first - np.datetime64("1970-01-01")).astype(int),
                              (last - np.datetime64("1970-01-01")).astype(int), sales)
    days[::2] = generator.integers(18000, 21000, len(days[::2]))
    days[:8] = [(np.datetime64(date) - np.datetime64("1970-01-01")).astype(int) for date in
                ("0001-01-01", "1900-02-28", "1900-03-01", "2000-02-29", "2024-02-29", "2024-12-31",
                 "2023-12-31", "2024-01-01")]
    category = generator.integers(0, categories, sales)
    quantity = generator.integers(1, 25, sales).astype(np.float32)
    price = np.exp(generator.normal(3, 1, sales)).astype(np.float32)
    mean, scale = np.float32([4, 3, 90, 75]), np.float32([0.25, 1, 0.01, 0.0125])

    dates = days.astype("datetime64[D]")
    years = dates.astype("datetime64[Y]")
    length = ((years + 1).astype("datetime64[D]") - years.astype("datetime64[D]")).astype(int)
    angle = 2 * np.pi * (dates - years.astype("datetime64[D]")).astype(int) / length
    measures = np.stack([wide(quantity)[0], np.log1p(wide(price)[0]),
                         wide(quantity)[0] * wide(price)[0]], axis=1)
    features = np.column_stack([
        category[:, None] == np.arange(16), np.sin(angle), np.cos(angle), np.sin(2 * angle),
        np.cos(2 * angle), ~np.is_busday(dates), (measures - wide(mean)[0][:3]) * wide(scale)[0][:3]])

    rows, inputs, hidden, batch, seed, steps = 301, 24, 32, 64, 7, 20
    x, target = random(generator, (rows, inputs)), random(generator, rows)
    start = [random(generator, (hidden, inputs)) / 4, random(generator, hidden) / 4,
             random(generator, hidden) / 4, random(generator, 1) / 4]
    arrays = {"days": days, "category": category, "quantity": quantity, "price": price,
              "mean": mean, "scale": scale, "features": features, "x": x, "target": target,
              "w1": start[0], "b1": start[1], "w2": start[2], "b2": start[3]}
    wide_x, wide_target = wide(x, target)
    for name, rate in (("sgd", 0.01), ("adam", 0.005)):
        weights = list(wide(*start))
        states = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
        curve = []
        for step in range(steps):
            epoch, place = divmod(step, rows // batch)
            chosen = permute(np.arange(place * batch, (place + 1) * batch), rows, seed, epoch)
            loss, gradients = sales_network(wide_x[chosen], wide_target[chosen], *weights)
            curve.append(loss)
            for k, gradient in enumerate(gradients):
                if name == "sgd":
                    weights[k] = weights[k] - rate * gradient
                    continue
                m = 0.9 * states[k][0] + 0.1 * gradient
                v = 0.999 * states[k][1] + 0.001 * gradient**2
                states[k] = m, v
                m, v = m / (1 - 0.9**(step + 1)), v / (1 - 0.999**(step + 1))
                weights[k] = weights[k] - rate * m / (np.sqrt(v) + 1e-8)
        arrays[f"{name}_losses"] = np.array(curve)
    return arrays


def train_mnist():
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


def conv2d():
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


def embedding():
    """Rows of two tables, added, and gradients sent back; the tables have rows that nobody names."""
    generator = np.random.default_rng(71)
    batch, length, cols, vocabulary, longest = 3, 37, 12, 23, 40
    tokens = (generator.random((batch, length))**3 * (vocabulary - 2)).astype(np.int64)
    token_table = random(generator, (vocabulary, cols))
    position_table = random(generator, (longest, cols))
    grad_y = random(generator, (batch, length, cols))
    wide_token, wide_position, wide_grad = wide(token_table, position_table, grad_y)
    grad_token, grad_position = np.zeros_like(wide_token), np.zeros_like(wide_position)
    np.add.at(grad_token, tokens, wide_grad)
    grad_position[:length] = wide_grad.sum(axis=0)
    return {"tokens": tokens, "token_table": token_table, "position_table": position_table,
            "grad_y": grad_y, "y": wide_token[tokens] + wide_position[:length],
            "grad_token": grad_token, "grad_position": grad_position}


def layernorm():
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
# H, W, R, S, stride_h, stride_w, pad_h, pad_w of windows that overlap, touch one another, leave cells
# out, and do so differently along rows and columns.
POOLS = ((9, 11, 3, 3, 2, 2, 1, 1), (8, 12, 2, 2, 2, 2, 0, 0), (7, 10, 2, 2, 2, 2, 0, 0),
         (7, 7, 5, 2, 1, 3, 4, 1), (10, 9, 1, 2, 3, 2, 0, 0))


def maxpool():
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
    """The loss of step 6.3's network, and the gradients of its parameters."""
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


def train_cnn():
    """The network of step 6.3 with 8 hidden units and Adam: the losses of 20 steps, five epochs of
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


def attention():
    """One causal and one full problem, (B, H, T, D), with more keys than queries, and gradients."""
    generator = np.random.default_rng(73)
    batch, heads, queries, keys, width = 2, 2, 21, 26, 12
    q, grad_out = (random(generator, (batch, heads, queries, width)) for _ in range(2))
    k, v = (random(generator, (batch, heads, keys, width)) for _ in range(2))
    scale = np.float64(np.float32(1 / math.sqrt(width)))
    wide_q, wide_k, wide_v, wide_grad = wide(q, k, v, grad_out)
    arrays = {"q": q, "k": k, "v": v, "grad_out": grad_out}
    for name in ("causal", "full"):
        scores = scale * wide_q @ wide_k.swapaxes(-1, -2)
        if name == "causal":
            i, j = np.ogrid[:queries, :keys]
            scores = np.where(j <= i + keys - queries, scores, -np.inf)
        largest = scores.max(axis=-1, keepdims=True)
        exponentials = np.exp(scores - largest)
        total = exponentials.sum(axis=-1, keepdims=True)
        p = exponentials / total
        out = p @ wide_v
        grad_p = wide_grad @ wide_v.swapaxes(-1, -2)
        grad_scores = p * (grad_p - (p * grad_p).sum(axis=-1, keepdims=True))
        arrays |= {f"{name}_out": out, f"{name}_lse": (largest + np.log(total))[..., 0],
                   f"{name}_grad_q": scale * grad_scores @ wide_k,
                   f"{name}_grad_k": scale * grad_scores.swapaxes(-1, -2) @ wide_q,
                   f"{name}_grad_v": p.swapaxes(-1, -2) @ wide_grad}
    return arrays


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


def transformer_block():
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


def bell(seed, stream, n):
    """random_numbers::bell(seed, stream, i) for i < n: float32, nearly normal."""
    words = philox_words(np.arange(n), seed, stream, 2) >> np.uint64(10)
    return np.float32(math.sqrt(3) / 2) * (words.sum(axis=1).astype(np.float32)
                                           * np.float32(2.0**-21) - np.float32(4))


def train_shakespeare():
    """Two blocks of two heads with AdamW on a text of eleven characters: the losses of 20 steps."""
    generator = np.random.default_rng(75)
    seed, layers, heads, channels, context, batch, steps = 2**33 + 5, 2, 2, 8, 6, 3, 20
    text = np.frombuffer(b"abcdefghij\n", np.uint8)[np.cumsum(generator.integers(1, 4, 300)) % 11]
    tokens = np.unique(text, return_inverse=True)[1]
    train, vocabulary = tokens[:len(text) // 10 * 9], 11
    shapes = {"token.weight": (vocabulary, channels), "position.weight": (context, channels)}
    for layer in range(layers):
        shapes |= {f"{layer}.{name}": shape for name, shape in block_shapes(channels).items()}
    shapes |= {"norm.weight": (channels,), "norm.bias": (channels,),
               "head.weight": (vocabulary, channels)}
    p = {}
    for stream, (name, shape) in enumerate(shapes.items()):
        p[name] = np.full(shape, 1.0 if "norm" in name and name.endswith("weight") else 0.0)
        if len(shape) == 2:
            ends_box = name.endswith((".proj.weight", ".out.weight"))
            deviation = np.float32(0.02 / math.sqrt(2 * layers) if ends_box else 0.02)
            p[name] = (deviation * bell(seed, stream, shape[0] * shape[1])).reshape(shape).astype(
                np.float64)
    moments = {name: (np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}
    highest, beta1, beta2, epsilon, decay = (
        float(np.float32(value)) for value in (3e-3, 0.9, 0.999, 1e-8, 1e-2))
    blocks = [{name: f"{layer}.{name}" for name in BLOCK_TENSORS} for layer in range(layers)]
    losses = []
    for step in range(steps):
        words = philox_words(np.arange((step + 1) * batch // 4 + 1), seed, 0x7E87, 0).reshape(-1)
        begin = words[step * batch:(step + 1) * batch] % np.uint64(len(train) - context)
        place = begin.astype(np.int64)[:, None] + np.arange(context)
        x, kept = p["token.weight"][train[place]] + p["position.weight"], []
        for names in blocks:
            x, of_block = block(x, {name: p[full] for name, full in names.items()}, heads)
            kept.append(of_block)
        norm, of_norm = layer_norm(x, p["norm.weight"], p["norm.bias"])
        logits = (norm @ p["head.weight"].T).reshape(-1, vocabulary)
        loss, grad = cross_entropy(logits, train[place + 1].reshape(-1))
        losses.append(loss)
        grads = {"head.weight": grad.T @ norm.reshape(-1, channels)}
        grad, grads["norm.weight"], grads["norm.bias"] = layer_norm_backward(
            (grad @ p["head.weight"]).reshape(norm.shape), p["norm.weight"], of_norm)
        for names, of_block in reversed(list(zip(blocks, kept))):
            grad, of_tensors = block_backward(grad, {name: p[full] for name, full in names.items()},
                                              heads, of_block)
            grads |= {names[name]: of_tensor for name, of_tensor in of_tensors.items()}
        grads["position.weight"] = grad.sum(axis=0)
        grads["token.weight"] = np.zeros(shapes["token.weight"])
        np.add.at(grads["token.weight"], train[place], grad)
        warm = steps // 10
        done = (step - warm) / (steps - warm)
        rate = float(np.float32(highest * (step + 1) / warm if step < warm else
                                highest * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)))
        for name, (m, v) in moments.items():
            m += (1 - beta1) * (grads[name] - m)
            v += (1 - beta2) * (grads[name]**2 - v)
            m_hat, v_hat = m / (1 - beta1**(step + 1)), v / (1 - beta2**(step + 1))
            p[name] -= rate * decay * p[name] + rate * m_hat / (np.sqrt(v_hat) + epsilon)
    return {"text": text.astype(np.float64), "losses": np.array(losses)}


def random_numbers():
    """The generator of common/random.h, as it is above."""
    return {"uniform": uniform(2**40 + 7, 3, SIZE), "bell": bell(2**40 + 7, 3, SIZE),
            "permutation": permute(np.arange(SIZE), SIZE, 2**40 + 7, 5).astype(np.int64)}


STEPS = (random_numbers, vector_add, axpy, dot, activations, transpose, gemv, gemm, gemm_mixed,
         matrix_activations, softmax, losses, dense, mlp_forward, dense_backward,
         activation_backward, gradient_check, optimizers, sequential, train_toy, train_sales,
         train_mnist, conv2d, maxpool, train_cnn, embedding, layernorm, attention,
         transformer_block, train_shakespeare)


def save(path, array):
    """Under a temporary name first, so that a reader never finds half an array."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            np.save(file, array)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write; made if it is not there")
    folder = parser.parse_args().folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for step in STEPS:
            for name, array in step().items():
                if not np.all(np.isfinite(array)):
                    sys.exit(f"make_references.py: {step.__name__}_{name} is not finite")
                save(folder / f"{step.__name__}_{name}.npy", array)
    except OSError as error:
        sys.exit(f"make_references.py: {error}")


if __name__ == "__main__":
    main()
