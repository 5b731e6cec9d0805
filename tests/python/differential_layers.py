"""The operators of stages 4 and 5 in float64, for test_differential_4567.py: what each must compute of drawn
inputs. Each function draws a case.

The references are written with approximate.py's numbers, which carry the bound of each result: what float32
may be off after each operation, in any order of a sum. Where a step's header has a rule of its own for NaN
and infinities, or derives a bound of its own, the reference says so.
"""

from __future__ import annotations

import numpy
from approximate import (
    TINY, Approximate, matmul, multiply_add, product, relu, square_root, unknown_where)
from differential import ETA, LARGEST, Drawn, U, Want, extent, kinds, shape, values
from test_differential_123 import ACCURATE, FUNCTIONS

Array = numpy.ndarray
Generator = numpy.random.Generator


def exactly(array: Array) -> Approximate:
    return Approximate(array)


def wants(**outputs: Approximate) -> dict[str, Want]:
    return {name: output.want for name, output in outputs.items()}


def drawn_offset(rng: Generator) -> dict[str, object]:
    return {"offset": int(rng.integers(4))}


def gamma(k: float) -> float:
    return k * U / (1 - k * U)


# ---- Activations ----------------------------------------------------------------------------------


def slope_of(name: str, x: Array) -> Approximate:
    """f'(x). Both GELUs are "not for infinite x": nothing is asked there. Beyond ACCURATE their slopes are 0
    or 1."""
    near = numpy.where(numpy.abs(x) > ACCURATE, 0, x) if name.startswith("gelu") else x
    value, error = FUNCTIONS[name](near)[1]
    far = numpy.isfinite(x) & (near != x)
    return unknown_where(numpy.isinf(x) & (near != x), Approximate.settled(
        numpy.where(far, (x > 0).astype(float), value), numpy.where(far, 2 * U + TINY, error)))


def slope_of_output(name: str, y: Array) -> Approximate:
    """f'(x) from y = f(x), as OfOutput of step 5.2 has it."""
    if name == "relu":
        return slope_of(name, y)
    slope, roundings = {"sigmoid": (y * (1 - y), 2), "tanh": ((1 - y) * (1 + y), 3),
                        "softplus": (-numpy.expm1(-y), 6)}[name]
    return Approximate.settled(slope, gamma(roundings) * abs(slope) + TINY)


def gelu_tanh(a: Approximate) -> Approximate:
    """No slope is steeper than 1.13. "Not for infinite x"; beyond ACCURATE GELU is 0 or x."""
    x = a.value
    far = numpy.isfinite(x) & (numpy.abs(x) > ACCURATE)
    value, error = FUNCTIONS["gelu_tanh"](numpy.where(numpy.isnan(x) | (numpy.abs(x) <= ACCURATE), x, 0))[0]
    found = Approximate.settled(numpy.where(far, numpy.maximum(x, 0), value), 1.13 * a.error + numpy.where(
        far, 4 * U * numpy.abs(x), error), a.is_unknown)
    return unknown_where(numpy.isinf(x), found)


def activated(name: str, a: Approximate) -> Approximate:
    return {"linear": lambda: a, "relu": lambda: relu(a), "gelu_tanh": lambda: gelu_tanh(a)}[name]()


# ---- Layers ---------------------------------------------------------------------------------------


def dense(rng: Generator) -> Drawn:
    batch, out, inside = shape(rng, 3, 30000, 0)
    name = str(rng.choice(["linear", "relu", "gelu_tanh"]))
    x, w, bias = (values(rng, extents, kind) for extents, kind in zip(
        [(batch, inside), (out, inside), (out,)], kinds(rng, 3)))
    y = activated(name, matmul(exactly(x), exactly(w).T) + exactly(bias))
    return Drawn({"x": x, "w": w, "bias": bias}, wants(y=y), {"activation": name, **drawn_offset(rng)})


def mlp_forward(rng: Generator) -> Drawn:
    batch, hidden, inside, out = shape(rng, 4, 20000, 0)
    x, w1, bias1, w2, bias2 = (values(rng, extents, kind) for extents, kind in zip(
        [(batch, inside), (hidden, inside), (hidden,), (out, hidden), (out,)], kinds(rng, 5)))
    h = relu(matmul(exactly(x), exactly(w1).T) + exactly(bias1))
    y = matmul(h, exactly(w2).T) + exactly(bias2)
    return Drawn({"x": x, "w1": w1, "bias1": bias1, "w2": w2, "bias2": bias2}, wants(y=y), drawn_offset(rng))


def drawn_before(rng: Generator, beta: float, extents: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """What the gradients begin with: nothing where beta is 0, which does not read it."""
    if not beta:
        return {}
    of_kind = kinds(rng, len(extents))
    return {name: values(rng, of, kind) for (name, of), kind in zip(extents.items(), of_kind)}


def accumulated(gradient: Approximate, beta: float, before: Array | None) -> Approximate:
    if before is None:
        return gradient
    return gradient + exactly(before) * exactly(numpy.float32(beta))


def dense_backward(rng: Generator) -> Drawn:
    if rng.random() < 0.2:  # long enough for slices of the batch
        batch, out, inside = extent(rng, 1100, 500), extent(rng, 7), extent(rng, 7)
    else:
        batch, out, inside = shape(rng, 3, 30000, 0)
    beta = float(rng.choice([0, 1, -0.75]))
    grad_y, x, w = (values(rng, extents, kind) for extents, kind in zip(
        [(batch, out), (batch, inside), (out, inside)], kinds(rng, 3)))
    before = drawn_before(rng, beta, {"grad_w": w.shape, "grad_bias": (out,), "grad_x": x.shape})
    found = {"grad_w": matmul(exactly(grad_y).T, exactly(x)), "grad_bias": exactly(grad_y).sum(0),
             "grad_x": matmul(exactly(grad_y), exactly(w))}
    found = {name: accumulated(gradient, beta, before.get(name)) for name, gradient in found.items()}
    return Drawn({"grad_y": grad_y, "x": x, "w": w, **before}, wants(**found),
                 {"beta": beta, **drawn_offset(rng)})


def activation_backward(rng: Generator) -> Drawn:
    """From x, or from y as a forward pass has rounded it."""
    rows, cols = shape(rng, 2, 9000, 0)
    name = str(rng.choice(["relu", "sigmoid", "tanh", "gelu_erf", "gelu_tanh", "softplus"]))
    beta = float(rng.choice([0, 1, -0.75]))
    grad_y, x = (values(rng, (rows, cols), kind) for kind in kinds(rng, 2))
    y = numpy.nan_to_num(FUNCTIONS[name](x.astype(float))[0][0], nan=numpy.nan).astype(numpy.float32)
    before = drawn_before(rng, beta, {"grad_bias": (cols,)})

    def want(version: str) -> dict[str, Want]:
        kept = y if version == "from_output" else x
        slope = (slope_of_output if version == "from_output" else slope_of)(name, kept.astype(float))
        grad_x = product(exactly(grad_y), slope)
        return wants(grad_x=grad_x, grad_bias=accumulated(grad_x.sum(0), beta, before.get("grad_bias")))

    return Drawn({"grad_y": grad_y, "x": x, "y": y, **before}, want,
                 {"activation": name, "beta": beta, **drawn_offset(rng)})


def softmax_backward(rng: Generator) -> Drawn:
    """p (g - sum of p g), or the sum of p[j] (1[j=k] - p[k]) g[k]: K terms of which each rounds three times
    more. With an infinity in a row the two differ, p[j] infinity against infinity - infinity, and the header
    has no rule; NaN anywhere in a row is NaN in all of it."""
    rows, cols = shape(rng, 2, 9000, 0)
    of_p, of_grad = kinds(rng, 2)
    p, grad_p = values(rng, (rows, cols), of_p), values(rng, (rows, cols), of_grad)
    if cols and rng.random() < 0.5:  # rows that are softmax's
        e = numpy.exp(p.astype(float) - p.astype(float).max(-1, keepdims=True))
        p = (e / e.sum(-1, keepdims=True)).astype(numpy.float32)
    size_p, size_g = numpy.abs(p.astype(float)), numpy.abs(grad_p.astype(float))
    absolute = (size_p * size_g).sum(-1, keepdims=True)
    value = p * (grad_p - (p.astype(float) * grad_p).sum(-1, keepdims=True))
    terms = size_p * (size_g + absolute)
    lost = cols * ETA * (1 + size_p + size_g.sum(-1, keepdims=True))  # by products below the normal range
    most = numpy.maximum(terms, size_g + absolute)
    if cols:  # the Jacobian's slopes, too
        most = numpy.maximum(most, size_p * (1 + size_p.max(-1, keepdims=True)))
    nan = (numpy.isnan(p) | numpy.isnan(grad_p)).any(-1, keepdims=True)
    grad_x = Approximate.settled(numpy.where(nan, numpy.nan, numpy.where(numpy.isfinite(value), value, 0)),
                                 (cols + 4) * U * 1.001 * terms + lost, ~(most <= LARGEST / 2) & ~nan)
    return Drawn({"p": p, "grad_p": grad_p}, wants(grad_x=grad_x), drawn_offset(rng))


def cross_entropy_backward(rng: Generator) -> Drawn:
    """(softmax(x)[c] - 1[c = label]) / rows, by versions that know x or p. "infinite where p has
    underflowed": of loss_composed nothing is asked in rows where -1 / (p rows) is beyond float32."""
    rows, classes = shape(rng, 2, 9000)
    kind = str(rng.choice(["normal", "ties", "zeros", "denormal", "large", "huge", "small", "mixed"]))
    logits = values(rng, (rows, classes), kind)
    x = logits.astype(float)
    top = x.max(-1, keepdims=True)
    e = numpy.exp(x - top)
    p = (e / e.sum(-1, keepdims=True)).astype(numpy.float32)
    labels = rng.integers(0, classes, rows)
    hot = (numpy.arange(classes) == labels[:, None]).astype(float)
    chosen = numpy.take_along_axis(p, labels[:, None], -1).astype(float)

    def want(version: str) -> dict[str, Want]:
        if version == "loss_from_logits":  # step 3.3's bound: of the exponents, the sum and the quotient
            relative = U * (3 * (top - x) + classes + 16)
            share = e / e.sum(-1, keepdims=True)
            off = share * numpy.expm1(numpy.where(share > 0, relative, 0))
            probability = Approximate(share, off + share * off.sum(-1, keepdims=True) + TINY)
        else:
            probability = exactly(p)
        off = (probability.error + (classes + 10) * U * 1.001 * (probability.value + hot)) / rows + TINY
        grad = Approximate((probability.value - hot) / rows, off)
        if version == "loss_composed":
            grad = unknown_where(numpy.broadcast_to(chosen * rows < 1e-37, grad.value.shape), grad)
        return wants(grad=grad)

    return Drawn({"logits": logits, "p": p, "labels": labels}, want)


# ---- Optimizers -----------------------------------------------------------------------------------


def optimizer(rng: Generator) -> Drawn:
    """The rules as the header of 5.4 writes them, with the fused multiply-adds that it has."""
    n = extent(rng, 9000) if rng.random() < 0.98 else 0
    steps, done = int(rng.integers(1, 5)), int(rng.choice([0, 0, 1, 9, 1000]))
    kind = str(rng.choice(["sgd", "momentum", "adam", "adamw"]))
    of_w, of_grad, of_m, of_v = kinds(rng, 4)
    w, m, v = values(rng, (n,), of_w), values(rng, (n,), of_m), numpy.abs(values(rng, (n,), of_v))
    grad_w = values(rng, (steps, n), of_grad)
    if done == 0 or rng.random() < 0.3:
        m, v = numpy.zeros_like(m), numpy.zeros_like(v)
    hyper = {name: float(rng.choice(of)) for name, of in {
        "learning_rate": [0, 1e-4, 1e-3, 0.1, 3], "momentum": [0, 0.5, 0.9], "beta1": [0, 0.5, 0.9],
        "beta2": [0, 0.9, 0.999], "epsilon": [1e-8, 1e-6, 0.1], "weight_decay": [0, 0.01, 0.5]}.items()}
    sizes = numpy.diff([0, *sorted(rng.integers(0, n + 1, int(rng.integers(0, 6)))), n])

    number = {key: Approximate(float(numpy.float32(value))) for key, value in hyper.items()}
    one, rate = Approximate(1.0), number["learning_rate"]
    new_w, new_m, new_v = exactly(w), exactly(m), exactly(v)
    for step in range(steps):
        g, t = exactly(grad_w[step]), done + step + 1
        if kind == "sgd":
            new_w = multiply_add(-rate, g, new_w)
        elif kind == "momentum":
            new_m = multiply_add(number["momentum"], new_m, g)
            new_w = multiply_add(-rate, new_m, new_w)
        else:
            beta1, beta2 = number["beta1"], number["beta2"]
            if kind == "adamw":
                new_w = new_w * Approximate(1 - rate.value * number["weight_decay"].value).rounded()
            step_size = Approximate(rate.value / (1 - beta1.value ** t)).rounded()
            root_scale = Approximate(1 / numpy.sqrt(1 - beta2.value ** t)).rounded()
            new_m = multiply_add(beta1, new_m, (one - beta1) * g)
            new_v = multiply_add(beta2, new_v, (one - beta2) * g * g)
            divisor = multiply_add(square_root(new_v), root_scale, number["epsilon"])
            new_w = multiply_add(-step_size, new_m / divisor, new_w)
    found = wants(w=new_w, m=new_m, v=new_v)
    kept = {"sgd": "w", "momentum": "wm"}.get(kind, "wmv")
    return Drawn({"w": w, "grad_w": grad_w, "m": m, "v": v}, {output: found[output] for output in kept},
                 {"optimizer": kind, "done": done, "tensors": " ".join(map(str, sizes)), **hyper,
                  **drawn_offset(rng)})
