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


STEPS = (vector_add, axpy, dot, activations, transpose, gemv, gemm, gemm_mixed, matrix_activations,
         softmax, losses, dense, mlp_forward, dense_backward, optimizers)


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
