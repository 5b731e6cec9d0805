"""Stages 4 to 7 against NumPy in float64, at random shapes and values; differential.py says how.

The references are written with approximate.py's numbers, which carry the bound of each result: what float32
may be off after each operation, in any order of a sum. Where a step's header has a rule of its own for NaN
and infinities, or derives a bound of its own, the reference says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from approximate import (  # noqa: E402
    TINY, Approximate, exact_product, is_integer, matmul, multiply_add, product, relu, square_root,
    unknown_where)
from differential import (  # noqa: E402
    ETA, LARGEST, Draw, Drawn, Known, U, Want, accepted_mistakes, differences, differences_of, extent, kinds,
    report, shape, values)
from operators import Operators, Refused, program, waves  # noqa: E402
from test_differential_123 import ACCURATE, FUNCTIONS  # noqa: E402

Array = numpy.ndarray
Generator = numpy.random.Generator


@pytest.fixture(scope="module", params=waves(), ids=lambda wave: f"wave{wave}")
def operators(request: pytest.FixtureRequest) -> Iterator[Operators]:
    with Operators(program(), request.param) as running:
        yield running


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


# ---- Convolution ----------------------------------------------------------------------------------


def drawn_images(rng: Generator) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]:
    """Shapes of x and w, and strides and paddings that fit them. Half of the windows are 3 x 3."""
    while True:
        N, C, K = (0 if rng.random() < 0.01 else extent(rng, most) for most in (3, 9, 17))
        R, S = (3, 3) if rng.random() < 0.5 else (extent(rng, 6), extent(rng, 6))
        H, W = extent(rng, 34), extent(rng, 34)
        stride = [1, 1] if rng.random() < 0.4 else [int(s) for s in rng.integers(1, 5, 2)]
        pad = [0, 0] if rng.random() < 0.3 else [int(p) for p in rng.integers(0, 4, 2)]
        if H + 2 * pad[0] < R or W + 2 * pad[1] < S:
            continue
        P, Q = (H + 2 * pad[0] - R) // stride[0] + 1, (W + 2 * pad[1] - S) // stride[1] + 1
        if N * K * P * Q * C * R * S <= 400000:
            return (N, C, H, W), (K, C, R, S), {"stride_h": stride[0], "stride_w": stride[1], "pad_h": pad[0],
                                                "pad_w": pad[1]}


def columns_of(x: Array, R: int, S: int, at: dict[str, object]) -> Array:
    """The windows of padded images as columns: (N, C R S, P Q)."""
    N, C = x.shape[:2]
    padded = numpy.pad(x.astype(float), ((0, 0), (0, 0), (at["pad_h"],) * 2, (at["pad_w"],) * 2))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (R, S), (2, 3))
    windows = windows[:, :, ::at["stride_h"], ::at["stride_w"]]
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(N, C * R * S, math.prod(windows.shape[2:4]))


B_WINOGRAD = numpy.array([[4, 0, 5, 0, 1, 0], [0, 4, 4, 1, 1, 0], [0, 4, 4, 1, 1, 0], [0, 2, 1, 2, 1, 0],
                          [0, 2, 1, 2, 1, 0], [0, 4, 0, 5, 0, 1]], float)
G_WINOGRAD = numpy.array([[6, 0, 0], [4, 4, 4], [4, 4, 4], [1, 2, 4], [1, 2, 4], [0, 0, 24]]) / 24
A_WINOGRAD = numpy.array([[1, 1, 1, 1, 1, 0], [0, 1, 1, 2, 2, 0], [0, 1, 1, 4, 4, 0], [0, 1, 1, 8, 8, 1]],
                         float)


def through_tiles(y: Approximate, x: Array, w: Array) -> Approximate:
    """What Winograd's tiles make of y, a convolution by windows w (K, C, 3, 3) that move by 1 over x (N, C,
    ., .), which has all its zeros around it. The error is that of 6.1's reference.h: gamma(20 + C) |A| (sum
    over c of (|G| |g| |G|^T) * (|B| |d| |B|^T)) |A|^T more. "an infinity or a
    NaN makes NaN of a tile of 4 x 4 outputs": where a tile or its filter has such a number, nothing is asked but that
    NaN is NaN."""
    N, C, _, _ = x.shape
    rows, cols = y.value.shape[2:]
    down, across = -(-rows // 4), -(-cols // 4)
    d = numpy.zeros((N, C, 4 * down + 2, 4 * across + 2))
    d[:, :, :x.shape[2], :x.shape[3]] = numpy.abs(x)[:, :, :d.shape[2], :d.shape[3]]
    d = numpy.lib.stride_tricks.sliding_window_view(d, (6, 6), (2, 3))[:, :, ::4, ::4]
    g = numpy.abs(w.astype(float))

    def of_filters(found: Array) -> Array:
        return found[None, :, None, None]

    def most_of(tiles: Array) -> Array:  # over the channels and the places
        return tiles.max((1, 4, 5), initial=0)[:, None]

    odd = most_of(~numpy.isfinite(d)) | of_filters((~numpy.isfinite(g)).any((1, 2, 3)))
    d, g = (numpy.where(numpy.isfinite(of), of, 0) for of in (d, g))
    numbers = B_WINOGRAD @ d @ B_WINOGRAD.T  # (N, C, down, across, 6, 6)
    filters = G_WINOGRAD @ g @ G_WINOGRAD.T  # (K, C, 6, 6)
    sums = numpy.einsum("ncijuv,kcuv->nkijuv", numbers, filters)
    size = A_WINOGRAD @ sums @ A_WINOGRAD.T  # (N, K, down, across, 4, 4)
    largest_sum = (A_WINOGRAD @ sums).max((4, 5), initial=0) + size.max((4, 5), initial=0)
    odd = odd | ~(largest_sum + most_of(B_WINOGRAD @ d) + most_of(numbers) <= LARGEST / 2)
    odd = odd | of_filters(~(49 * g.max((1, 2, 3), initial=0) <= LARGEST / 2))  # before they are divided
    # Each of 36 products of C channels loses ETA times what its factors are multiplied by.
    lost = ETA * 1e4 * (1 + C) * (1 + most_of(numbers) + of_filters(filters.max((1, 2, 3), initial=0)))
    size = gamma(20 + C) * size + lost[..., None, None]

    def of_tiles(tiles: Array) -> Array:
        whole = numpy.broadcast_to(tiles, (*tiles.shape[:4], 4, 4)).swapaxes(3, 4)
        return whole.reshape(*tiles.shape[:2], 4 * down, 4 * across)[:, :, :rows, :cols]

    found = Approximate(y.value, numpy.where(numpy.isfinite(y.value), y.error + of_tiles(size), y.error))
    return unknown_where(of_tiles(odd[..., None, None]) & ~numpy.isnan(y.value), found)


def is_winograd(version: str, w: tuple[int, ...], at: dict[str, object]) -> bool:
    return version.endswith("winograd") and w[2:] == (3, 3) and at["stride_h"] == at["stride_w"] == 1


def conv2d(rng: Generator) -> Drawn:
    """"y is computed with the zeros around the image as with other numbers"."""
    of_x, of_w, at = drawn_images(rng)
    x, w, bias = (values(rng, of, kind) for of, kind in zip([of_x, of_w, of_w[:1]], kinds(rng, 3)))
    name, biased = str(rng.choice(["linear", "relu"])), rng.random() < 0.7
    K, C, R, S = of_w
    height = (of_x[2] + 2 * at["pad_h"] - R) // at["stride_h"] + 1
    sums = matmul(exactly(w.reshape(K, C * R * S)), exactly(columns_of(x, R, S, at)))
    y = sums.reshape(of_x[0], K, height, -1) if sums.value.size else Approximate(numpy.zeros(
        (of_x[0], K, height, (of_x[3] + 2 * at["pad_w"] - S) // at["stride_w"] + 1)))

    def want(version: str) -> dict[str, Want]:
        result = y
        if is_winograd(version, of_w, at) and result.value.size:
            around = ((0, 0), (0, 0), (at["pad_h"],) * 2, (at["pad_w"],) * 2)
            result = through_tiles(result, numpy.pad(x.astype(float), around), w)
        if biased:
            result = result + exactly(bias[:, None, None])
        return wants(y=activated(name, result))

    return Drawn({"x": x, "w": w, **({"bias": bias} if biased else {})}, want,
                 {"activation": name, **at, **drawn_offset(rng)})


def met(length: int, outputs: int, taps: int, stride: int, pad: int) -> tuple[Array, Array, Array]:
    """Which output met place h of an image with element r of its window, (taps, length): its number; where
    that is a whole one; and where it is one of the outputs."""
    down = numpy.arange(length)[None, :] + pad - numpy.arange(taps)[:, None]
    number, whole = down // stride, down % stride == 0
    return number, whole, whole & (number >= 0) & (number < outputs)


def conv2d_backward(rng: Generator) -> Drawn:
    """"For the gradients a version may leave out what it knows to be 0: there, whether 0 times infinity
    counts is not said": where the zeros around an image make NaN of what is finite without them, nothing is
    asked."""
    of_x, of_w, at = drawn_images(rng)
    (N, C, H, W), (K, _, R, S) = of_x, of_w
    P, Q = (H + 2 * at["pad_h"] - R) // at["stride_h"] + 1, (W + 2 * at["pad_w"] - S) // at["stride_w"] + 1
    beta = int(rng.integers(2))
    grad_y, x, w = (values(rng, of, kind) for of, kind in zip([(N, K, P, Q), of_x, of_w], kinds(rng, 3)))
    before = drawn_before(rng, beta, {"grad_w": of_w, "grad_bias": (K,)})

    def left_out(gradient: Callable[[bool], Approximate]) -> Approximate:
        """With and without the products of the zeros around."""
        without, with_zeros = gradient(True), gradient(False)
        return unknown_where(numpy.isnan(with_zeros.value) & ~numpy.isnan(without.value), without)

    # grad_w: (K, N P Q) times (N P Q, C R S)
    of_y = exactly(grad_y.transpose(1, 0, 2, 3).reshape(K, N * P * Q))
    columns = columns_of(x, R, S, at).transpose(0, 2, 1).reshape(N * P * Q, C * R * S)
    padding = columns_of(numpy.ones(of_x), R, S, at).transpose(0, 2, 1).reshape(columns.shape) == 0
    special = not numpy.isfinite(grad_y).all() or not numpy.isfinite(w).all()
    grad_w = left_out(lambda without: matmul(
        of_y, exactly(columns), padding if without and special else None))

    # grad_x: (C, K R S) times (N, K R S, H W), of which all that met no output is 0
    p, whole_p, inside_p = met(H, P, R, at["stride_h"], at["pad_h"])
    q, whole_q, inside_q = met(W, Q, S, at["stride_w"], at["pad_w"])

    def pairs(of_p: Array, of_q: Array) -> Array:
        return of_p[:, None, :, None] & of_q[None, :, None, :]  # (R, S, H, W)

    inside = pairs(inside_p, inside_q)
    down, across = numpy.clip(p, 0, P - 1)[:, None, :, None], numpy.clip(q, 0, Q - 1)[None, :, None, :]
    gathered = grad_y[:, :, down, across]
    gathered = numpy.where(inside, gathered, 0).reshape(N, K * R * S, H * W)
    never, outside = (numpy.broadcast_to(of, (K, R, S, H, W)).reshape(K * R * S, H * W) for of in (
        ~pairs(whole_p, whole_q), ~inside))
    turned = exactly(w.transpose(1, 0, 2, 3).reshape(C, K * R * S))
    grad_x = left_out(lambda without: matmul(
        turned, exactly(gathered), (outside if without else never) if special else None)).reshape(of_x) if (
            N * C * K) else Approximate(numpy.zeros(of_x))

    def want(version: str) -> dict[str, Want]:
        result = grad_x
        if is_winograd(version, of_w, at) and N * C * K:
            # The window of element h begins at output h + pad - 2, and tiles are whole.
            rows, cols = (numpy.arange(-2, -(-n // 4) * 4) + pad
                          for n, pad in ((H, at["pad_h"]), (W, at["pad_w"])))
            around = numpy.zeros((N, K, len(rows), len(cols)))
            good = [(of >= 0) & (of < n) for of, n in ((rows, P), (cols, Q))]
            around[:, :, numpy.flatnonzero(good[0])[:, None], numpy.flatnonzero(good[1])] = grad_y[
                :, :, rows[good[0]][:, None], cols[good[1]]]
            result = through_tiles(result, around, w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
        return wants(grad_x=result, grad_w=accumulated(grad_w.reshape(of_w), beta, before.get("grad_w")),
                     grad_bias=accumulated(of_y.sum(-1), beta, before.get("grad_bias")))

    return Drawn({"grad_y": grad_y, "x": x, "w": w, **before}, want,
                 {"beta": beta, **at, **drawn_offset(rng)})


# ---- Max pooling ----------------------------------------------------------------------------------


def scattered(terms: Approximate, to: Array, size: int) -> Approximate:
    """Sums of the terms (n, C) that go to the same one of `size` rows, in any order."""
    def total(of: Array) -> Array:
        sums = numpy.zeros((size, terms.value.shape[1]))
        numpy.add.at(sums, to, of)
        return sums

    finite = numpy.isfinite(terms.value)
    value, size_of = (total(numpy.where(finite, of, 0)) for of in (terms.value, numpy.abs(terms.value)))
    count = numpy.bincount(to, minlength=size)[:, None]
    up, down = total(numpy.isposinf(terms.value)) > 0, total(numpy.isneginf(terms.value)) > 0
    nan = (total(numpy.isnan(terms.value)) > 0) | (up & down)
    exact = is_integer(terms).all() & (size_of < 2 ** 24)
    error = numpy.where(exact, 0, numpy.maximum(count - 1, 0) * U * 1.001 * size_of)
    mixed = ~(size_of <= LARGEST) & ((numpy.abs(value) < size_of) | up | down)
    value = numpy.where(nan, numpy.nan, numpy.where(up, numpy.inf, numpy.where(down, -numpy.inf, value)))
    return Approximate.settled(value, error, mixed & ~nan)


def drawn_pooling(rng: Generator) -> tuple[tuple[int, ...], dict[str, object], tuple[int, int]]:
    while True:
        window = [[2, 2], [3, 3], [extent(rng, 6), extent(rng, 6)]][int(rng.integers(3))]
        stride = list(window) if rng.random() < 0.5 else [int(s) for s in rng.integers(1, 5, 2)]
        pad = [int(rng.integers(0, size)) for size in window] if rng.random() < 0.5 else [0, 0]
        H, W = extent(rng, 70), extent(rng, 70)
        planes = 0 if rng.random() < 0.01 else extent(rng, max(9000 // (H * W), 1))
        if H + 2 * pad[0] < window[0] or W + 2 * pad[1] < window[1]:
            continue
        N = next(n for n in (3, 2, 1) if planes % n == 0)
        out = tuple((size + 2 * p - r) // s + 1 for size, p, r, s in zip((H, W), pad, window, stride))
        at = {f"{name}_{side}": value for name, pair in (("window", window), ("stride", stride), ("pad", pad))
              for side, value in zip("hw", pair)}
        return (N, planes // N, H, W), at, out


def pooled(x: Array, at: dict[str, object], out: tuple[int, int]) -> tuple[Array, Array]:
    """y and argmax: of equal values the first, and the first NaN before all numbers; the padding is no
    cell."""
    around = ((0, 0), (0, 0), (at["pad_h"],) * 2, (at["pad_w"],) * 2)

    def windows(of: Array, outside: float) -> Array:
        padded = numpy.pad(of, around, constant_values=outside)
        found = numpy.lib.stride_tricks.sliding_window_view(padded, (at["window_h"], at["window_w"]), (2, 3))
        found = found[:, :, ::at["stride_h"], ::at["stride_w"]]
        return found.reshape(*x.shape[:2], *out, at["window_h"] * at["window_w"])

    # An order in which only numbers are compared: NaN above all, the padding below -infinity.
    order = windows(numpy.nan_to_num(x.astype(float), nan=1e300, posinf=1e200, neginf=-1e200), -1e300)
    argmax = order.argmax(-1)
    return numpy.take_along_axis(windows(x.astype(float), 0.0), argmax[..., None], -1)[..., 0], argmax


def maxpool(rng: Generator) -> Drawn:
    of_x, at, out = drawn_pooling(rng)
    x = values(rng, of_x, kinds(rng, 1)[0])
    y, argmax = pooled(x, at, out)
    return Drawn({"x": x}, {"y": Want(y), "argmax": Want(argmax)}, {**at, **drawn_offset(rng)})


def maxpool_backward(rng: Generator) -> Drawn:
    of_x, at, out = drawn_pooling(rng)
    of_image, of_grad = kinds(rng, 2)
    y, argmax = pooled(values(rng, of_x, of_image), at, out)
    grad_y = values(rng, argmax.shape, of_grad)
    through_relu = rng.random() < 0.5
    H, W = of_x[2:]
    row = numpy.arange(out[0])[:, None] * at["stride_h"] + argmax // at["window_w"] - at["pad_h"]
    col = numpy.arange(out[1]) * at["stride_w"] + argmax % at["window_w"] - at["pad_w"]
    plane = numpy.arange(of_x[0] * of_x[1]).reshape(of_x[0], of_x[1], 1, 1)
    arriving = exactly(grad_y)
    if through_relu:
        arriving = exact_product(arriving, slope_of("relu", y))
    grad_x = scattered(arriving.reshape(-1, 1), ((plane * H + row) * W + col).reshape(-1), math.prod(of_x))
    inputs = {"grad_y": grad_y, "argmax": argmax, **({"y": y} if through_relu else {})}
    return Drawn(inputs, wants(grad_x=grad_x.reshape(of_x)), {"H": H, "W": W, **at, **drawn_offset(rng)})


# ---- Embedding ------------------------------------------------------------------------------------


def drawn_tokens(rng: Generator) -> tuple[Array, int, int, int]:
    """Tokens (B, T), in some cases with some that are none, and V, C and T_max."""
    T, B, C = shape(rng, 3, 9000, 0)
    V = extent(rng, min(int(rng.choice([3, 70, 600, 600, 5000])), max(30000 // max(C, 1), 1)))
    tokens = rng.integers(0, V if rng.random() < 0.7 else min(V, 2), (B, T))
    if tokens.size and rng.random() < 0.2:
        places = rng.integers(0, tokens.size, 3)
        tokens.reshape(-1)[places] = rng.choice([-1, V, V + 5, -(2 ** 24), 2 ** 24], 3)
    return tokens, V, C, T + int(rng.choice([0, 0, 1, 5]))


def embedding(rng: Generator) -> Drawn:
    """One addition, exactly rounded; a row of NaN for a token that is none."""
    tokens, V, C, T_max = drawn_tokens(rng)
    of_token, of_position = kinds(rng, 2)
    table, positions = values(rng, (V, C), of_token), values(rng, (T_max, C), of_position)
    good = (tokens >= 0) & (tokens < V)
    y = table[numpy.where(good, tokens, 0)] + positions[None, :tokens.shape[1]]
    return Drawn({"tokens": tokens, "token_table": table, "position_table": positions},
                 {"y": Want(numpy.where(good[..., None], y, numpy.nan))}, drawn_offset(rng))


def embedding_backward(rng: Generator) -> Drawn:
    tokens, V, C, T_max = drawn_tokens(rng)
    B, T = tokens.shape
    grad_y = values(rng, (B, T, C), kinds(rng, 1)[0])
    good = ((tokens >= 0) & (tokens < V)).reshape(-1)
    rows = exactly(grad_y).reshape(B * T, C) if C else Approximate(numpy.zeros((B * T, 0)))
    found = {"grad_token": scattered(rows[good], tokens.reshape(-1)[good], V),
             "grad_position": scattered(rows, numpy.tile(numpy.arange(T), B), T_max)}
    return Drawn({"grad_y": grad_y, "tokens": tokens}, wants(**found),
                 {"V": V, "T_max": T_max, **drawn_offset(rng)})


# ---- Layer normalization --------------------------------------------------------------------------


def rows_and_columns(rng: Generator) -> tuple[int, int]:
    """Not many rows: a block for each takes the CPU backend long."""
    rows = extent(rng, 100)
    return rows, extent(rng, max(9000 // rows, 1))


def layernorm(rng: Generator) -> Drawn:
    """The bounds of 7.2, of plain sums and of Welford's method, whichever is larger, for sums of
    which a term goes through as many additions as there are columns. "A NaN or an infinity makes its row of y
    NaN"; "Where variance + eps is 0 in float, which takes an eps of 0, rstd is 0 and not infinity: y is
    bias". Nothing is asked of rows whose squares leave float32's range at its upper end, or get lost at its
    lower one with an eps of 0."""
    rows, cols = rows_and_columns(rng)
    of_kind = kinds(rng, 4)
    given = values(rng, (rows, cols), of_kind[0])
    gain, bias = values(rng, (cols,), of_kind[1]), values(rng, (cols,), of_kind[2])
    eps = float(numpy.float32(rng.choice([0, 1e-12, 1e-5, 1.0])))
    choice = rng.random()
    if choice < 0.15:
        given[:] = given[:, :1]  # equal elements
        eps = float(rng.choice([0, eps]))
    elif choice < 0.3:
        given += numpy.float32(rng.choice([1e3, 1e6, -1e30]))  # far from 0
    residual = values(rng, (rows, cols), of_kind[3]) if rng.random() < 0.3 else None
    row = given if residual is None else given + residual
    with_residual = {} if residual is None else {"residual": residual}
    x = row.astype(float)

    first = x[:, :1]
    d = x - first
    mean, max_d = d.mean(-1, keepdims=True), numpy.abs(d).max(-1, keepdims=True)
    mean_d, mean_dd = numpy.abs(d).mean(-1, keepdims=True), (d * d).mean(-1, keepdims=True)
    e = d - mean
    variance, mean_ed = (e * e).mean(-1, keepdims=True), numpy.abs(e * d).mean(-1, keepdims=True)
    root, a = numpy.sqrt(variance), cols + 8
    # Plain sums; then Welford's, of at most `cols` updates.
    of_mean, p = gamma(a + 3) * mean_d, U * numpy.sqrt(mean_dd) + U * root
    squares = 2 * U * (mean_ed + variance) + (p + of_mean) ** 2
    of_variance = squares + gamma(a + 3) * (variance + squares)
    of_thread = gamma(cols / 2 + 6) * max_d
    of_welford = of_thread + gamma(a + 3) * max_d
    h, between = of_thread + 3 * U * max_d, of_thread + of_welford + 2 * U * max_d
    squares = (2 * math.sqrt(2) * h + 2 * between) * root + h * h + between * between
    of_variance = numpy.maximum(of_variance, squares + gamma(cols + a + 6) * (variance + squares))
    of_variance = numpy.where(max_d == 0, 0, of_variance + cols * TINY)
    of_mean = numpy.maximum(of_mean, of_welford)

    total = Approximate.settled(variance, of_variance) + Approximate(eps)
    is_zero = (total.value == 0) & (total.error <= ETA)
    one = Approximate(numpy.ones_like(variance))
    rstd = one / square_root(total)
    rstd = Approximate(numpy.where(is_zero, 0.0, rstd.value), numpy.where(is_zero, 0.0, rstd.error))
    beyond = ~(cols * max_d * max_d <= LARGEST / 8)
    rstd = unknown_where(beyond, rstd)
    centred = Approximate.settled(e, U * numpy.abs(d) + of_mean + U * numpy.abs(e) + 2 * ETA)
    # Equal elements are 0 exactly.
    centred = Approximate(centred.value, numpy.where(max_d == 0, 0.0, centred.error))
    y = centred * rstd * exactly(gain) + exactly(bias)
    # Gain may be multiplied by rstd first.
    y = unknown_where(~(rstd.value * numpy.abs(numpy.where(numpy.isfinite(gain), gain, 0)) <= LARGEST / 2), y)
    y = Approximate(y.value, y.error + numpy.where(numpy.isfinite(y.value), ETA * numpy.abs(numpy.where(
        numpy.isfinite(e), e, 0)), 0))
    mean = first + mean
    found = Approximate.settled(mean, of_mean + U * (numpy.abs(mean) + of_mean) + 2 * ETA, beyond)
    odd = ~numpy.isfinite(x).all(-1, keepdims=True)
    y = Approximate(numpy.where(odd, numpy.nan, y.value), numpy.where(odd, 0.0, y.error))
    found, rstd = unknown_where(odd, found), unknown_where(odd, rstd)
    want = wants(y=y, mean=found[:, 0], rstd=rstd[:, 0])
    if residual is not None:
        want["sum"] = Want(row)
    return Drawn({"x": given, "gain": gain, "bias": bias, **with_residual}, want,
                 {"eps": eps, **drawn_offset(rng)})


def normalized_backward(grad_y: Approximate, n: Approximate, gain: Approximate, rstd: Approximate
                        ) -> tuple[Approximate, Approximate, Approximate]:
    """grad_x, grad_gain and grad_bias, where n = (x - mean) rstd: (rows, cols), (cols), (cols)."""
    g = grad_y * gain
    count = Approximate(float(g.value.shape[-1]))
    mean_g = g.sum(-1, keepdims=True) / count
    mean_gn = (g * n).sum(-1, keepdims=True) / count
    return rstd * (g - mean_g - n * mean_gn), (grad_y * n).sum(0), grad_y.sum(0)


def layernorm_backward(rng: Generator) -> Drawn:
    rows, cols = rows_and_columns(rng)
    of_kind = kinds(rng, 6)
    x, grad_y = values(rng, (rows, cols), of_kind[0]), values(rng, (rows, cols), of_kind[1])
    gain = values(rng, (cols,), of_kind[2])
    if rng.random() < 0.6:  # what a forward pass leaves
        row = x.astype(float)
        deviation = numpy.sqrt(row.var(-1) + 1e-5)
        mean, rstd = row.mean(-1).astype(numpy.float32), (1 / deviation).astype(numpy.float32)
    else:
        mean, rstd = values(rng, (rows,), of_kind[3]), numpy.abs(values(rng, (rows,), of_kind[4]))
    beside = {"grad_residual": values(rng, (rows, cols), of_kind[5])} if rng.random() < 0.5 else {}
    scale = exactly(rstd[:, None])
    n = (exactly(x) - exactly(mean[:, None])) * scale
    grad_x, grad_gain, grad_bias = normalized_backward(exactly(grad_y), n, exactly(gain), scale)
    if beside:
        grad_x = grad_x + exactly(beside["grad_residual"])
    return Drawn({"x": x, "grad_y": grad_y, "gain": gain, "mean": mean, "rstd": rstd, **beside},
                 wants(grad_x=grad_x, grad_gain=grad_gain, grad_bias=grad_bias), drawn_offset(rng))


# ---- Attention ------------------------------------------------------------------------------------


def attended(q: Approximate, k: Approximate, v: Approximate, scale: Approximate, visible: Array
             ) -> dict[str, Approximate]:
    """out, lse (with an axis of 1 at its end) and the probabilities, as steps 7.4 and 7.5 derive their bounds: an
    exponential inherits what its score is off, and goes through 5 U more for itself and for each tile that
    rescales it, of which there are no more than keys. A weighted mean is never further from 0 than the
    largest of its values, nor lse from the largest score than the logarithm of the keys' number."""
    Tk = visible.shape[-1]
    x = matmul(q, k.T) * scale
    blind = ~visible.any(-1, keepdims=True)
    known = (~x.is_unknown | ~visible).all(-1, keepdims=True)
    score = numpy.where(visible, x.value, -numpy.inf)
    top = numpy.where(blind, 0.0, score.max(-1, keepdims=True, initial=-numpy.inf))
    lost = ~blind & numpy.isneginf(top)  # all scores are -infinity: no rule says what that is
    below_top = numpy.where(numpy.isfinite(score) & numpy.isfinite(top), top - score, 0)
    relative = numpy.expm1(numpy.minimum(numpy.where(visible, x.error, 0) + U * (
        2 * numpy.where(numpy.isfinite(score), numpy.abs(score), 0) + 3 * below_top + 5 * (1 + Tk)), 700))
    p = numpy.where(visible, numpy.exp(score - top), 0.0)
    p = Approximate(p, numpy.where(visible & numpy.isfinite(p), p * relative + TINY, 0.0))
    sums = p.sum(-1, keepdims=True)
    safe = Approximate(numpy.where(blind, 1.0, sums.value), sums.error)
    probability = p / safe

    special = not numpy.isfinite(v.value).all() or v.is_unknown.any()
    left_out = ~numpy.broadcast_to(visible, p.value.shape)[..., None] if special else None
    out = matmul(p, v, left_out) / safe
    faint = (p.value <= p.error) & visible  # may have become 0: such a key may add nothing, NaN neither
    out = unknown_where(faint.astype(float) @ (~numpy.isfinite(v.value)).astype(float) > 0, out)
    size = numpy.abs(numpy.where(numpy.isfinite(v.value), v.value, 0)) + numpy.where(v.is_unknown, 0, v.error)
    most = (numpy.broadcast_to(visible, p.value.shape)[..., None] * size[..., None, :, :]).max(-2, initial=0)
    finite = numpy.isfinite(v.value) & ~v.is_unknown
    total = p.value.sum(-1, keepdims=True)
    mean = (p.value / numpy.where(total > 0, total, 1)) @ numpy.where(finite, v.value, 0)
    tame = known & numpy.isfinite(top) & finite.all((-1, -2), keepdims=True)
    tame = tame & (most * (Tk + 1) <= LARGEST / 4)
    out = Approximate(numpy.where(tame, mean, out.value), numpy.where(
        tame, numpy.minimum(out.error, 2.01 * most + ETA), out.error))

    logarithm = numpy.log(numpy.where(sums.value > 0, sums.value, 1))
    spread = sums.error / numpy.where(sums.value > sums.error, sums.value - sums.error, 1)
    spread = numpy.where(sums.value > sums.error, spread, numpy.inf)
    farthest = numpy.where(visible & numpy.isfinite(x.value), x.error, 0).max(-1, keepdims=True, initial=0)
    of_lse = numpy.minimum(spread, farthest + math.log(max(Tk, 1)) + U * 5 * (Tk + 1)) + U * (
        5 * numpy.abs(numpy.where(numpy.isfinite(top), top, 0)) + 6 * (1 + logarithm))
    lse = Approximate.settled(top + logarithm, numpy.where(numpy.isfinite(top), of_lse, 0))
    lse = Approximate(numpy.where(numpy.isnan(sums.value), numpy.nan, lse.value), lse.error)
    for odd in (~known & ~numpy.isnan(sums.value), lost):
        out, lse, probability = (unknown_where(numpy.broadcast_to(odd, of.value.shape), of)
                                 for of in (out, lse, probability))
    out = Approximate(numpy.where(blind, 0.0, out.value), numpy.where(blind, 0.0, out.error))
    lse = Approximate(numpy.where(blind, -numpy.inf, lse.value), numpy.where(blind, 0.0, lse.error))
    probability = Approximate(numpy.where(visible, probability.value, 0.0), numpy.where(
        visible, probability.error, 0.0))
    return {"out": out, "lse": lse, "p": probability}


def attended_backward(grad_out: Approximate, found: dict[str, Approximate], q: Approximate, k: Approximate,
                      v: Approximate, scale: Approximate, visible: Array) -> dict[str, Approximate]:
    """A pair of a query and a key that it does not see adds nothing. A pair whose weight may have become 0 may
    add nothing, NaN neither."""
    p, lse = found["p"], found["lse"]
    special = not all(numpy.isfinite(of.value).all() and not of.is_unknown.any()
                      for of in (grad_out, q, k, v, p, found["out"]))
    seen = numpy.broadcast_to(visible, p.value.shape)

    def times(a: Approximate, b: Approximate, pairs: Array) -> Approximate:
        return matmul(a, b, ~pairs[..., None] if special else None)

    # P comes from lse once more: off by what lse is off, and by the rounding of both and of the difference.
    size = numpy.abs(numpy.where(numpy.isfinite(lse.value), lse.value, 0))
    difference = -numpy.log(numpy.maximum(numpy.where(numpy.isfinite(p.value), p.value, 1), TINY))
    off = numpy.expm1(numpy.minimum(lse.error + U * (3 * size + 3 * difference + 5), 700))
    error = p.error + (p.value + p.error) * off + TINY
    p = Approximate.settled(p.value, numpy.where(seen, error, 0), p.is_unknown)
    delta = (exact_product(grad_out, found["out"])).rounded().sum(-1, keepdims=True)
    faint = (p.value <= p.error) & seen
    change = matmul(grad_out, v.T) - delta
    slope = unknown_where(faint & ~numpy.isfinite(change.value), p * change)
    slope = Approximate(numpy.where(seen, slope.value, 0.0), numpy.where(seen, slope.error, 0.0))
    p = Approximate(numpy.where(seen, p.value, 0.0), numpy.where(seen, p.error, 0.0))
    back, faint_back = seen.swapaxes(-1, -2), faint.swapaxes(-1, -2)

    def product_of(a: Approximate, b: Approximate, pairs: Array, faint: Array) -> Approximate:
        odd = faint.astype(float) @ (~numpy.isfinite(b.value)).astype(float) > 0
        return unknown_where(odd, times(a, b, pairs))

    # The scale may come first, in the middle or last.
    return {"grad_q": (product_of(slope, k, seen, faint) * scale).rounded(2),
            "grad_k": (product_of(slope.T, q, back, faint_back) * scale).rounded(2),
            "grad_v": product_of(p.T, grad_out, back, faint_back).rounded(2)}


def sees(Tq: int, Tk: int, causal: bool) -> Array:
    return numpy.arange(Tk) <= numpy.arange(Tq)[:, None] + Tk - Tq if causal else numpy.ones((Tq, Tk), bool)


ONLY_FORWARD = ("fused", "split_keys")  # have no way back


def attention(rng: Generator) -> Drawn:
    D = extent(rng, int(rng.choice([8, 40, 256])))
    B, H = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    Tq, Tk = shape(rng, 2, max(min(200000 // (B * H * D), 1500), 1), 0)
    causal, scale = bool(rng.integers(2)), float(numpy.float32(rng.choice([1 / math.sqrt(D), 0.1, 3])))
    of_kind = kinds(rng, 4)
    if rng.random() < 0.5:  # scores that are not all one key's, and nothing that is not finite
        of_kind = [str(kind) for kind in rng.choice(["normal", "ties", "zeros", "small"], 4)]
    q, grad_out = values(rng, (B, H, Tq, D), of_kind[0]), values(rng, (B, H, Tq, D), of_kind[1])
    k, v = values(rng, (B, H, Tk, D), of_kind[2]), values(rng, (B, H, Tk, D), of_kind[3])
    visible, factor = sees(Tq, Tk, causal), Approximate(scale)
    numbers = [exactly(of) for of in (q, k, v)]
    found = attended(*numbers, factor, visible)
    inputs, outputs = {"q": q, "k": k, "v": v}, {"out": found["out"], "lse": found["lse"][..., 0]}
    if rng.random() < 0.6:
        inputs["grad_out"] = grad_out
        outputs.update(attended_backward(exactly(grad_out), found, *numbers, factor, visible))

    def want(version: str) -> dict[str, Want]:
        return wants(**{name: of for name, of in outputs.items()
                        if version not in ONLY_FORWARD or not name.startswith("grad_")})

    return Drawn(inputs, want, {"causal": int(causal), "scale": scale, **drawn_offset(rng)})


# ---- Transformer block ----------------------------------------------------------------------------


def normalized(x: Approximate) -> tuple[Approximate, Approximate]:
    """(x - mean) rstd, and rstd (rows, 1), with the eps of 1e-5 and by way of x - x[:, 0], as step 7.2."""
    count = Approximate(float(x.value.shape[-1]))
    d = x - Approximate(*numpy.broadcast_arrays(x.value[:, :1], x.error[:, :1]))
    centred = d - d.sum(-1, keepdims=True) / count
    variance = (centred * centred).sum(-1, keepdims=True) / count
    rstd = Approximate(1.0) / square_root(variance + Approximate(float(numpy.float32(1e-5))))
    return centred * rstd, rstd


def parameter_shapes(C: int) -> dict[str, tuple[int, ...]]:
    return {"norm1.weight": (C,), "norm1.bias": (C,), "qkv.weight": (3 * C, C), "qkv.bias": (3 * C,),
            "proj.weight": (C, C), "proj.bias": (C,), "norm2.weight": (C,), "norm2.bias": (C,),
            "fc.weight": (4 * C, C), "fc.bias": (4 * C,), "out.weight": (C, 4 * C), "out.bias": (C,)}


def transformer_block(rng: Generator) -> Drawn:
    """All of it with carried errors. GELU's slope moves by at most 0.8 of what its argument is off (5.5's
    kSharpest). Weights are of the scale that keeps numbers at their order."""
    heads, D, B = int(rng.integers(1, 4)), extent(rng, 8), int(rng.integers(1, 3))
    C = heads * D
    T = extent(rng, max(min(600 // (B * C), 70 if rng.random() < 0.1 else 14), 1))
    rows = B * T
    x, grad_y = (values(rng, (rows, C), kind) for kind in kinds(rng, 2))
    if rng.random() < 0.5:
        x = values(rng, (rows, C))
    of_weights = str(rng.choice(["normal", "normal", "ties", "zeros", "small"]))
    given = {name: values(rng, of, of_weights) * numpy.float32(1 / math.sqrt(of[-1]) if len(of) == 2 else 0.5)
             for name, of in parameter_shapes(C).items()}
    p = {name: exactly(of) for name, of in given.items()}

    def linear(of: Approximate, layer: str) -> Approximate:
        return matmul(of, p[f"{layer}.weight"].T) + p[f"{layer}.bias"]

    def heads_of(of: Approximate) -> Approximate:  # (rows, C) to (B, heads, T, D)
        return of.reshape(B, T, heads, D).transpose(0, 2, 1, 3)

    def rows_of(of: Approximate) -> Approximate:
        return of.transpose(0, 2, 1, 3).reshape(rows, C)

    scale, visible = Approximate(1 / math.sqrt(D)).rounded(2 * 5), sees(T, T, True)
    hat1, rstd1 = normalized(exactly(x))
    norm1 = hat1 * p["norm1.weight"] + p["norm1.bias"]
    qkv = linear(norm1, "qkv")
    q, k, v = (heads_of(qkv[:, i * C:(i + 1) * C]) for i in range(3))
    found = attended(q, k, v, scale, visible)
    mixed = rows_of(found["out"])
    h = exactly(x) + linear(mixed, "proj")
    hat2, rstd2 = normalized(h)
    norm2 = hat2 * p["norm2.weight"] + p["norm2.bias"]
    sums = linear(norm2, "fc")
    hidden = gelu_tanh(sums)
    outputs = {"y": h + linear(hidden, "out")}

    def linear_backward(grad: Approximate, of: Approximate, layer: str) -> Approximate:
        outputs.update({f"{layer}.weight": matmul(grad.T, of), f"{layer}.bias": grad.sum(0)})
        return matmul(grad, p[f"{layer}.weight"])

    def norm_backward(grad: Approximate, hat: Approximate, rstd: Approximate, layer: str) -> Approximate:
        grad_x, outputs[f"{layer}.weight"], outputs[f"{layer}.bias"] = normalized_backward(
            grad, hat, p[f"{layer}.weight"], rstd)
        return grad_x

    grad = exactly(grad_y)
    slope = slope_of("gelu_tanh", sums.value)
    slope = unknown_where(sums.is_unknown, Approximate.settled(
        slope.value, slope.error + 0.8 * numpy.where(sums.is_unknown, 0, sums.error), slope.is_unknown))
    grad_sums = linear_backward(grad, hidden, "out") * slope
    grad_h = grad + norm_backward(linear_backward(grad_sums, norm2, "fc"), hat2, rstd2, "norm2")
    grad_mixed = linear_backward(grad_h, mixed, "proj")
    back = attended_backward(heads_of(grad_mixed), found, q, k, v, scale, visible)
    grad_qkv = [rows_of(back[name]) for name in ("grad_q", "grad_k", "grad_v")]
    grad_qkv = Approximate(numpy.concatenate([of.value for of in grad_qkv], -1),
                           numpy.concatenate([of.error for of in grad_qkv], -1))
    outputs["grad_x"] = grad_h + norm_backward(linear_backward(grad_qkv, norm1, "qkv"), hat1, rstd1, "norm1")
    for name in ("y", "grad_x"):
        outputs[name] = outputs[name].reshape(B, T, C)
    return Drawn({"x": x.reshape(B, T, C), "grad_y": grad_y.reshape(B, T, C), **given}, wants(**outputs),
                 {"heads": heads, **drawn_offset(rng)})


# ---- The tests ------------------------------------------------------------------------------------


ONES, ROW, CELL = numpy.ones((3, 3)), numpy.ones(3), numpy.ones((1, 1, 1, 1))
NAN_LAST = numpy.where(numpy.arange(4)[:, None] < 3, 1.0, numpy.nan) * numpy.ones((1, 1, 4, 4))

CASES: dict[str, Draw] = {
    of.__name__: of for of in (
        dense, mlp_forward, dense_backward, activation_backward, softmax_backward, cross_entropy_backward,
        optimizer, conv2d, conv2d_backward, maxpool, maxpool_backward, embedding, embedding_backward,
        layernorm, layernorm_backward, attention, transformer_block)}


def nan_behind() -> Drawn:
    """Two tokens, of which the second is NaN; the first sees only itself."""
    x = numpy.ones((1, 2, 2)) * numpy.array([1.0, 2.0])
    given = {name: numpy.zeros(of) for name, of in parameter_shapes(2).items()}
    y = x.copy()
    y[:, 1] = x[:, 1] = numpy.nan
    return Drawn({"x": x, "grad_y": numpy.zeros(x.shape), **given}, {"y": Want(y)}, {"heads": 1})


KNOWN: list[Known] = []


@pytest.mark.parametrize("name", CASES)
def test_operator(operators: Operators, name: str) -> None:
    wrong = differences(operators, name, CASES[name], 20, KNOWN)
    assert not wrong, report(wrong)


@pytest.mark.parametrize("name, case", [
    pytest.param("attention", Drawn(
        {"q": numpy.ones((1, 1, 4, 4)), "k": numpy.ones((1, 1, 4, 4)), "v": NAN_LAST},
        {"out": Want(numpy.where(NAN_LAST == 1, 1.0, numpy.nan), 1e-5)}, {"causal": 1, "scale": 1.0}),
        id="attention: a query does not see a NaN behind it"),
    pytest.param("attention", Drawn(
        {"q": numpy.full((1, 1, 3, 1), 1.1e10), "k": numpy.full((1, 1, 2, 1), 1.3e10),
         "v": numpy.ones((1, 1, 2, 1))},
        {"out": Want(numpy.ones((1, 1, 3, 1)), 1e-5)}, {"causal": 0, "scale": 1.0}),
        id="attention: scores of 1e20"),
    pytest.param("attention", Drawn(
        {"q": CELL, "k": numpy.array([0, -numpy.inf]).reshape(1, 1, 2, 1), "v": numpy.ones((1, 1, 2, 1)),
         "grad_out": CELL},
        lambda version: {} if version in ONLY_FORWARD else {
            "grad_k": Want(numpy.zeros((1, 1, 2, 1)), 1e-5),
            "grad_v": Want(numpy.array([1.0, 0.0]).reshape(1, 1, 2, 1), 1e-5)}, {"causal": 0, "scale": 1.0}),
        id="attention: an infinite key, and queries behind the last"),
    pytest.param("transformer_block", nan_behind(), id="transformer_block: a token behind is NaN"),
    pytest.param("activation_backward", Drawn(
        {"x": numpy.full((1, 1), 1e20), "y": numpy.full((1, 1), 1e20), "grad_y": numpy.ones((1, 1))},
        {"grad_x": Want(numpy.ones((1, 1)), 2 * U)}, {"activation": "gelu_tanh"}),
        id="gelu_tanh: a slope where the cube overflows"),
])
def test_what_was_once_wrong(operators: Operators, name: str, case: Drawn) -> None:
    assert not differences_of(operators, name, case)


@pytest.mark.parametrize("known", [
    pytest.param(one, marks=pytest.mark.xfail(strict=True, reason=one.reason), id=one.operator)
    for one in KNOWN])
def test_known(operators: Operators, known: Known) -> None:
    assert not differences_of(operators, known.operator, known.example)


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_refused(name: str) -> None:
    with Operators(program(), waves()[0]) as operators:
        accepted = accepted_mistakes(operators, name, CASES[name], 25)
    assert not accepted, report(accepted)




@pytest.mark.parametrize("name, inputs, attributes, why", [
    ("dense", {"x": ONES, "w": ONES, "bias": ONES}, {}, "bias has the shape [3, 3], not [3]"),
    ("dense", {"x": ONES, "w": ONES, "bias": ROW}, {"activation": "tanh"},
     "there is no activation tanh here"),
    ("dense_backward", {"grad_y": ONES, "x": ONES, "w": ONES}, {"beta": 1}, "there is no input grad_w"),
    ("cross_entropy_backward", {"logits": ONES, "p": ONES, "labels": 3 * ROW}, {},
     "a label is none of the classes"),
    ("optimizer", {"w": ROW, "grad_w": ONES, "m": ROW, "v": ROW}, {"tensors": "1 1"},
     "the tensors' sizes do not add up to n"),
    ("optimizer", {"w": ROW, "grad_w": ONES, "m": ROW, "v": ROW}, {"epsilon": 0}, "epsilon must be above 0"),
    ("conv2d", {"x": CELL, "w": numpy.ones((1, 1, 2, 1))}, {},
     "conv2d: a filter of 2x1 does not fit an image of 1x1 with padding 0x0"),
    ("maxpool_backward", {"grad_y": CELL, "argmax": CELL}, {"H": 2, "W": 1, "window_w": 1, "pad_h": 1},
     "grad_y has the shape [1, 1, 1, 1], not [1, 1, 2, 1]"),
    ("maxpool_backward", {"grad_y": CELL, "argmax": 0 * CELL}, {"H": 1, "W": 1, "pad_h": 1, "pad_w": 1},
     "an argmax lies outside the image"),
    ("embedding", {"tokens": ONES, "token_table": ONES, "position_table": ONES[:1]}, {},
     "the position table has too few rows"),
    ("layernorm", {"x": ONES, "gain": ROW, "bias": ROW}, {"eps": -1}, "eps is negative or NaN"),
    ("attention", {"q": numpy.ones((1, 1, 1, 257)), "k": CELL, "v": CELL}, {},
     "k has the shape [1, 1, 1, 1], not [1, 1, 1, 257]"),
    ("attention", {"q": CELL, "k": CELL, "v": CELL}, {"scale": 0}, "the scale must be above 0 and finite")])
def test_what_no_contract_allows_is_refused(operators: Operators, name: str, inputs: dict, attributes: dict,
                                            why: str) -> None:
    with pytest.raises(Refused) as refused:
        operators.run(name, inputs, **attributes)
    assert str(refused.value) == why
