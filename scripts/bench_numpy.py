#!/usr/bin/env python3
"""Does the course's work in NumPy: the peer of the CPU backend.

scripts/bench_numpy.py --like build/cpu/results/gemm.json
                            for each table of a program's results the same work, at the same shape;
                            `scripts/course bench` calls it so

Each work is the expression that one would write first, in float32, on random inputs, timed on the host's
clock after a warm-up: the median and the 10th and 90th percentile. An error is the largest difference to
the same in double precision. NumPy's matrix products use its BLAS on all processors, the rest of it one.

Exit codes: 0 all is well, 1 something failed, 2 the request must change, 3 no NumPy.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

from course_lib import peers, problems
from course_lib.arguments import Parser
from course_lib.errors import MISSING, USAGE, CourseError
from course_lib.peers import CannotDo, make_row

try:
    import numpy as np
except ImportError as error:
    print(f"bench_numpy: no NumPy here ({error}): pip install numpy", file=sys.stderr)
    sys.exit(MISSING)

PEER = "NumPy"
QUICK_REPEAT = 3

Array = np.ndarray
Function = Callable[..., object]
Case = tuple[Function, list[Array]]  # the expression, and what it is of

GELU = math.sqrt(2 / math.pi), 0.044715


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(GELU[0] * (x + GELU[1] * x**3)))


def gelu_tanh_slope(x: Array) -> Array:
    t = np.tanh(GELU[0] * (x + GELU[1] * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU[0] * (1 + 3 * GELU[1] * x * x)


# A function and its slope at x. NumPy has no erf.
ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: x > 0),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "gelu_tanh": (gelu_tanh, gelu_tanh_slope),
    "softplus": (lambda x: np.logaddexp(x, x.dtype.type(0)), sigmoid)}


def activation_of(name: str) -> tuple[Function, Function]:
    if name not in ACTIVATIONS:
        raise CannotDo("NumPy has no erf")
    return ACTIVATIONS[name]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dense(x: Array, w: Array, bias: Array) -> Array:
    return x @ w.T + bias


def normalize(x: Array) -> tuple[Array, Array]:
    """Rows of mean 0 and variance 1, and what they were multiplied by."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + x.dtype.type(1e-5))
    return centred * scale, scale


def windows(x: Array, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int],
            fill: float) -> Array:
    """(N, C, H, W) → (N, C, rows, columns, R, S): a view of the padded image."""
    edges = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    padded = np.pad(x, edges, constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(padded, size, (2, 3))
    return seen[:, :, :: stride[0], :: stride[1]]


class Cases:
    """Makes the case of a problem: a method for each kind, whose arguments are the problem's values."""

    def __init__(self, seed: int):
        self.generator = np.random.default_rng(seed)

    def make(self, problem: problems.Problem) -> Case:
        method = getattr(self, problem.kind, None)
        if method is None:
            raise CannotDo("no obvious NumPy expression")
        return method(**problem.values)

    def random(self, *shape: int, low: float = -1, high: float = 1) -> Array:
        return self.generator.uniform(low, high, shape).astype(np.float32)

    def weights(self, outputs: int, inputs: int) -> Array:
        return self.random(outputs, inputs) / np.float32(math.sqrt(inputs))

    def labels(self, rows: int, classes: int) -> Array:
        return self.generator.integers(classes, size=rows)

    # Stage 1

    def elementwise(self, operation: str, n: int) -> Case:
        return np.add if operation == "+" else np.multiply, [self.random(n), self.random(n)]

    def scale(self, n: int) -> Case:
        return lambda x: x.dtype.type(-0.9990234375) * x, [self.random(n)]

    def axpy(self, n: int) -> Case:
        return lambda x, y: x.dtype.type(-0.9990234375) * x + y, [self.random(n), self.random(n)]

    def dot(self, n: int) -> Case:
        return np.dot, [self.random(n), self.random(n)]

    def activation(self, activation: str, way: str, n: int) -> Case:
        f, slope = activation_of(activation)
        x = self.random(n, low=-8, high=8)
        return (f, [x]) if way == "forward" else (lambda x, g: g * slope(x), [x, self.random(n)])

    # Stage 2

    def transpose(self, rows: int, cols: int) -> Case:
        return lambda a: np.ascontiguousarray(a.T), [self.random(rows, cols)]

    def gemv(self, transposed: str, rows: int, cols: int) -> Case:
        a = self.random(rows, cols)
        if transposed:
            return lambda a, x: a.T @ x, [a, self.random(rows)]
        return lambda a, x: a @ x, [a, self.random(cols)]

    def gemm(self, layout: str, M: int, N: int, K: int) -> Case:
        a = self.random(K, M) if layout == "TN" else self.random(M, K)
        b = self.random(N, K) if layout == "NT" else self.random(K, N)
        return {"NN": lambda a, b: a @ b, "NT": lambda a, b: a @ b.T,
                "TN": lambda a, b: a.T @ b}[layout], [a, b]

    def gemm_mixed(self, precision: str, M: int, N: int, K: int, layout: str = "NN") -> Case:
        if precision != "fp16":
            raise CannotDo(f"NumPy has no {precision}")
        function, matrices = self.gemm(layout, M, N, K)
        return function, [matrix.astype(np.float16) for matrix in matrices]

    # Stage 3

    def biased_activation(self, activation: str, backward: str, rows: int, cols: int) -> Case:
        f, slope = activation_of(activation)
        inputs = [self.random(rows, cols, low=-4, high=4), self.random(cols, low=-4, high=4)]
        if not backward:
            return lambda x, bias: f(x + bias), inputs
        return lambda x, bias, g: g * slope(x + bias), [*inputs, self.random(rows, cols)]

    def softmax(self, rows: int, cols: int) -> Case:
        return softmax, [self.random(rows, cols, low=-8, high=8)]

    def squared_error(self, n: int) -> Case:
        def loss(p, t):
            difference = p - t
            return (difference**2).mean(), difference * p.dtype.type(2 / n)
        return loss, [self.random(n), self.random(n)]

    def cross_entropy(self, rows: int, cols: int) -> Case:
        labels, every = self.labels(rows, cols), np.arange(rows)

        def loss(x):
            p = softmax(x)
            value = -np.log(p[every, labels]).mean()
            p[every, labels] -= 1
            return value, p / x.dtype.type(rows)
        return loss, [self.random(rows, cols, low=-8, high=8)]

    # Stage 4

    def dense(self, batch: int, inputs: int, outputs: int) -> Case:
        return lambda x, w, bias: np.maximum(dense(x, w, bias), 0), [
            self.random(batch, inputs), self.weights(outputs, inputs), self.random(outputs)]

    def mlp_forward(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        return lambda x, w1, b1, w2, b2: dense(np.maximum(dense(x, w1, b1), 0), w2, b2), [
            self.random(batch, inputs), self.weights(hidden, inputs), self.random(hidden),
            self.weights(outputs, hidden), self.random(outputs)]

    # Stage 5

    def dense_backward(self, batch: int, inputs: int, outputs: int) -> Case:
        return lambda x, w, g: (g.T @ x, g.sum(0), g @ w), [
            self.random(batch, inputs), self.weights(outputs, inputs), self.random(batch, outputs)]

    def biased_backward(self, activation: str, rows: int, cols: int) -> Case:
        _, slope = activation_of(activation)

        def backward(x, g):
            grad_x = g * slope(x)
            return grad_x, grad_x.sum(0)
        return backward, [self.random(rows, cols, low=-4, high=4), self.random(rows, cols)]

    def softmax_backward(self, rows: int, cols: int) -> Case:
        return lambda p, g: p * (g - (g * p).sum(1, keepdims=True)), [
            softmax(self.random(rows, cols, low=-4, high=4)), self.random(rows, cols)]

    def cross_entropy_backward(self, rows: int, cols: int) -> Case:
        labels, every = self.labels(rows, cols), np.arange(rows)

        def backward(p):
            grad = p / p.dtype.type(rows)
            grad[every, labels] -= p.dtype.type(1 / rows)
            return grad
        return backward, [softmax(self.random(rows, cols))]

    def optimizer(self, rule: str, n: int, tensors: int) -> Case:
        """All tensors in one array, and new arrays instead of the old."""
        rate, momentum, beta1, beta2, eps, decay = (
            np.float32(value) for value in (1e-3, 0.9, 0.9, 0.999, 1e-8, 0.01))
        steps = 9

        def step(w, g, m, v):
            if rule == "sgd":
                return w - rate * g
            if rule == "momentum":
                m = momentum * m + g
                return w - rate * m, m
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            update = (m / (1 - beta1**steps)) / (np.sqrt(v / (1 - beta2**steps)) + eps)
            return w - rate * (update + decay * w if rule == "adamw" else update), m, v
        m = self.random(n)
        return step, [self.random(n), self.random(n), m, m * m]

    def sequential(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        def step(x, w1, b1, w2, b2, w3, b3, g):
            h1 = np.maximum(dense(x, w1, b1), 0)
            h2 = np.maximum(dense(h1, w2, b2), 0)
            y = dense(h2, w3, b3)
            g2 = (g @ w3) * (h2 > 0)
            g1 = (g2 @ w2) * (h1 > 0)
            return y, g1.T @ x, g1.sum(0), g2.T @ h1, g2.sum(0), g.T @ h2, g.sum(0)
        arrays = [self.random(batch, inputs)]
        for n, m in ((inputs, hidden), (hidden, hidden), (hidden, outputs)):
            arrays += [self.weights(m, n), self.random(m)]
        return step, [*arrays, self.random(batch, outputs)]

    # Stage 6

    def conv2d(self, what: str, N: int, C: int, H: int, W: int, K: int, R: int, S: int,
               stride_h: int, stride_w: int, pad_h: int, pad_w: int) -> Case:
        stride, padding = (stride_h, stride_w), (pad_h, pad_w)
        x, w = self.random(N, C, H, W), self.weights(K, C * R * S).reshape(K, C, R, S)

        def seen(x):
            return windows(x, (R, S), stride, padding, 0)

        def sums(x, w):
            return np.tensordot(seen(x), w, ((1, 4, 5), (1, 2, 3)))
        if what.startswith("relu"):
            return lambda x, w, bias: np.maximum(sums(x, w) + bias, 0).transpose(0, 3, 1, 2), [
                x, w, self.random(K)]
        if what == "X * W":
            return lambda x, w: sums(x, w).transpose(0, 3, 1, 2), [x, w]
        shape = N, K, (H + 2 * pad_h - R) // stride_h + 1, (W + 2 * pad_w - S) // stride_w + 1

        def of_w(x, g):
            return np.tensordot(g, seen(x), ((0, 2, 3), (0, 2, 3)))

        def of_x(w, g):
            turned = windows(g, (R, S), (1, 1), (R - 1 - pad_h, S - 1 - pad_w), 0)
            return np.tensordot(turned, w[:, :, ::-1, ::-1], ((1, 4, 5), (0, 2, 3))).transpose(0, 3, 1, 2)
        if what == "grad_W":
            return of_w, [x, self.random(*shape)]
        if stride != (1, 1) or pad_h >= R or pad_w >= S:
            raise CannotDo("no obvious NumPy expression")
        if what == "grad_X":
            return of_x, [w, self.random(*shape)]
        return lambda x, w, g: (of_w(x, g), g.sum((0, 2, 3)), of_x(w, g)), [x, w, self.random(*shape)]

    def maxpool(self, R: int, S: int, stride: int, padding: int, way: str, N: int, C: int, H: int,
                W: int) -> Case:
        if way == "backward":
            raise CannotDo("no obvious NumPy expression")
        return lambda x: windows(x, (R, S), (stride,) * 2, (padding,) * 2, -np.inf).max((4, 5)), [
            self.random(N, C, H, W)]

    # Stage 7

    def embedding(self, backward: str, B: int, T: int, C: int, V: int) -> Case:
        # As in a text a few tokens are frequent and most are rare.
        tokens = np.minimum((self.generator.random((B, T)) ** 3 * V).astype(np.int64), V - 1)
        if not backward:
            return lambda table, positions: table[tokens] + positions, [self.random(V, C),
                                                                        self.random(T, C)]

        def grads(g):
            grad = np.zeros((V, C), g.dtype)
            np.add.at(grad, tokens, g)
            return grad, g.sum(0)
        return grads, [self.random(B, T, C)]

    def layernorm(self, what: str, rows: int, cols: int) -> Case:
        x, gain, bias = self.random(rows, cols, low=-2.5, high=5.5), self.random(cols), self.random(cols)
        if what == "of a sum":
            def norm_of_sum(x, residual, gain, bias):
                total = x + residual
                return total, normalize(total)[0] * gain + bias
            return norm_of_sum, [x, self.random(rows, cols), gain, bias]
        if what == "backward":
            def backward(x, gain, g):
                normal, scale = normalize(x)
                h = g * gain
                mean = h.mean(1, keepdims=True) + normal * (h * normal).mean(1, keepdims=True)
                return scale * (h - mean), (g * normal).sum(0), g.sum(0)
            return backward, [x, gain, self.random(rows, cols)]
        return lambda x, gain, bias: normalize(x)[0] * gain + bias, [x, gain, bias]

    def attention(self, way: str, B: int, H: int, T: int, D: int, queries: int | str, mask: str,
                  precision: str) -> Case:
        if precision != "float32":
            raise CannotDo(f"NumPy has no {precision}")
        count = queries or T
        hidden = np.triu(np.full((count, T), mask == "causal"), T - count + 1)
        q, k, v, g = (self.random(B, H, rows, D) for rows in (count, T, T, count))

        def probabilities(q, k):
            scores = q @ k.swapaxes(2, 3) * q.dtype.type(1 / math.sqrt(D))
            return softmax(np.where(hidden, q.dtype.type(-np.inf), scores))
        if way == "forward":
            return lambda q, k, v: probabilities(q, k) @ v, [q, k, v]

        def backward(q, k, v, g):
            p = probabilities(q, k)
            grad_p = g @ v.swapaxes(2, 3)
            grad_s = p * (grad_p - (grad_p * p).sum(3, keepdims=True)) * q.dtype.type(1 / math.sqrt(D))
            return grad_s @ k, grad_s.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g
        return backward, [q, k, v, g]


# ---- Measuring ---------------------------------------------------------------------------------


def flat(value: object) -> list[Array]:
    return [a for part in value for a in flat(part)] if isinstance(value, tuple) else [np.asarray(value)]


def error_of(function: Function, inputs: list[Array]) -> tuple[float | None, int]:
    """The largest difference to the same in double precision, and of how many numbers. None where one of
    them is no number."""
    want = function(*(array.astype(np.float64) for array in inputs))
    pairs = list(zip(flat(function(*inputs)), flat(want)))
    worst = max((float(np.abs(a - b).max()) for a, b in pairs if a.size), default=0.0)
    return worst if math.isfinite(worst) else None, sum(a.size for a, _ in pairs)


class Bench:
    def __init__(self, quick: bool = False):
        self.quick = quick

    def like(self, report: dict) -> list[dict]:
        cases = Cases(report["seed"])

        def measure(problem: problems.Problem) -> list[dict]:
            function, inputs = cases.make(problem)
            error, compared = error_of(function, inputs)
            times = peers.time_call(peers.time_host(lambda: function(*inputs)),
                                    QUICK_REPEAT if self.quick else 0, 0 if self.quick else 20)
            return [make_row(PEER, times, "", error, compared)]
        return peers.measure_report(report, PEER, measure)


def body(arguments: list[str]) -> None:
    title, _, details = (__doc__ or "").partition("\n")
    parser = Parser(prog="bench_numpy", description=title, epilog=details,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    options = parser.parse_args(arguments)
    peers.check_options(options)
    if not options.like and not options.serve:
        raise CourseError("--like REPORT.json: whose work is to be done?", USAGE)
    peers.run(peers.Peer(PEER, {"numpy": np.__version__}, Bench(options.quick).like), options)


def main(arguments: list[str]) -> int:
    return peers.main("bench_numpy", lambda: body(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
