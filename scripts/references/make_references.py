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


STEPS = (vector_add, axpy, dot, activations)


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
