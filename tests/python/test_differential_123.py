"""Stages 1 to 3 against NumPy in float64, at random shapes and values; differential.py says how.

The docstring of each function that draws cases derives the bound of its operator. U is float32's unit
roundoff, ETA what is lost below the normal range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from differential import (  # noqa: E402
    ETA, LARGEST, Draw, Drawn, U, Want, accepted_mistakes, affine, differences, extent,
    kinds, report, shape, sums, values)
from operators import Operators, program, waves  # noqa: E402

Rng = numpy.random.Generator
Array = numpy.ndarray
TINY = 2.0 ** -125  # the steps' own allowance below float's normal range, where exp keeps no digits


@pytest.fixture(scope="module", params=waves(), ids=lambda wave: f"wave{wave}")
def operators(request: pytest.FixtureRequest) -> Iterator[Operators]:
    with Operators(program(), request.param) as running:
        yield running


def offset(rng: Rng) -> int:
    return int(rng.integers(4))


def factor(rng: Rng) -> float:
    """An alpha or beta: float32, so that it arrives as it is."""
    usual = [1.0, 0.0, -1.0, 2.0, 0.5, float(rng.standard_normal()), 1e4, 1e30, 1e-30]
    odd = [math.nan, math.inf, -math.inf, -0.0, 2.0 ** -149]
    return float(numpy.float32(rng.choice(odd if rng.random() < 0.15 else usual)))


def rounded(exact: Array) -> Want:
    """One operation, computed in float64 and rounded to float32: every version's very bits, since float64 has
    more than twice float32's digits (Figueroa: When is double rounding innocuous? SIGNUM Newsletter 30,
    1995)."""
    return Want(exact.astype(numpy.float32))


# ---- Stage 1 --------------------------------------------------------------------------------------


def vector_add(rng: Rng) -> Drawn:
    """Exact: one rounding."""
    extents = shape(rng, int(rng.integers(1, 4)), 9000, 0)
    a, b = (values(rng, extents, kind) for kind in kinds(rng, 2))
    return Drawn({"a": a, "b": b}, {"c": rounded(a.astype(float) + b)}, {"offset": offset(rng)})


def vector_multiply(rng: Rng) -> Drawn:
    """Exact: one rounding."""
    extents = shape(rng, int(rng.integers(1, 4)), 9000, 0)
    a, b = (values(rng, extents, kind) for kind in kinds(rng, 2))
    return Drawn({"a": a, "b": b}, {"c": rounded(a.astype(float) * b)}, {"offset": offset(rng)})


def scale(rng: Rng) -> Drawn:
    """Exact: one rounding."""
    x = values(rng, shape(rng, 1, 9000, 0), kinds(rng, 1)[0])
    alpha = factor(rng)
    return Drawn({"x": x}, {"y": rounded(alpha * x.astype(float))},
                 {"alpha": alpha, "offset": offset(rng), "in_place": int(rng.integers(2))})


def axpy(rng: Rng) -> Drawn:
    """U of the product, unless it is fused with the sum, and U of the result. The product may overflow where
    the result does not."""
    extents = shape(rng, 1, 9000, 0)
    x, y = (values(rng, extents, kind) for kind in kinds(rng, 2))
    alpha = factor(rng)
    term = alpha * x.astype(float)
    size = numpy.where(numpy.isfinite(term), numpy.abs(term), 0)
    bound = U * ((1 + U) * size + numpy.abs(term + y)) + 2 * ETA
    return Drawn({"x": x, "y": y}, {"y": Want(term + y, numpy.where(size < LARGEST, bound, numpy.inf))},
                 {"alpha": alpha, "offset": offset(rng)})


def dot(rng: Rng) -> Drawn:
    """The bound of sums()."""
    extents = shape(rng, 1, 9000, 0)
    x, y = (values(rng, extents, kind) for kind in kinds(rng, 2))
    result = sums(x[None], y[:, None])
    return Drawn({"x": x, "y": y}, {"result": Want(result.value[0, 0], result.bound[0, 0])},
                 {"offset": offset(rng)})


# Each function with its derivative in float64, and how far float32's may be off: (value, bound) of each. The
# bounds are those of stage1_vector/04_activations/detail/formulas.h, which derives them: one U for each
# operation and rounded constant, and 4 U for expf and log1pf, 8 U for erff, 10 U for tanhf.

Bounded = tuple[Array, Array]


def sigmoid_of(x: Array) -> Array:
    return numpy.where(x >= 0, 1 / (1 + numpy.exp(-numpy.abs(x))),
                       numpy.exp(-numpy.abs(x)) / (1 + numpy.exp(-numpy.abs(x))))


def slope_of_sigmoid(x: Array) -> Array:
    e = numpy.exp(-numpy.abs(x))
    return e / (1 + e) ** 2


def relu(x: Array) -> tuple[Bounded, Bounded]:
    zero = numpy.zeros_like(x)
    slope = numpy.where(numpy.isnan(x), x, numpy.where(x > 0, 1.0, 0.0))
    return (numpy.where(x < 0, 0, x), zero), (slope, zero)


def sigmoid(x: Array) -> tuple[Bounded, Bounded]:
    value, slope = sigmoid_of(x), slope_of_sigmoid(x)
    return (value, 6 * U * value + TINY), (slope, 14 * U * slope + TINY)


def tanh(x: Array) -> tuple[Bounded, Bounded]:
    value, slope = numpy.tanh(x), 4 * slope_of_sigmoid(2 * x)
    return (value, 10 * U * numpy.abs(value) + TINY), (slope, 14 * U * slope + TINY)


def softplus(x: Array) -> tuple[Bounded, Bounded]:
    value = numpy.where(numpy.isnan(x), x, numpy.maximum(x, 0)) + numpy.log1p(numpy.exp(-numpy.abs(x)))
    return (value, 9 * U * value + TINY), sigmoid(x)[0]


def gelu_erf(x: Array) -> tuple[Bounded, Bounded]:
    below = 0.5 * numpy.array([math.erfc(-v / math.sqrt(2)) for v in x.ravel()]).reshape(x.shape)
    density = numpy.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    value, slope = x * below, below + x * density
    size = numpy.abs(x)
    return ((value, U * (5.5 * size + numpy.abs(value)) + TINY),
            (slope, 5.5 * U + U * (8 + x * x) * size * density + U * numpy.abs(slope) + TINY))


def gelu_tanh(x: Array) -> tuple[Bounded, Bounded]:
    a = 2 * math.sqrt(2 / math.pi)
    b = 0.044715 * a
    z, slope_of_z = x * (a + b * x * x), a + 3 * b * x * x
    s, slope_of_s = sigmoid_of(z), slope_of_sigmoid(z)
    value, slope = x * s, s + x * slope_of_z * slope_of_s
    size, size_of_z = numpy.abs(x), numpy.abs(z)
    other = sigmoid_of(-z)
    return ((value, U * numpy.abs(value) * (3 + other * (4 + 5 * size_of_z)) + TINY * (1 + size)),
            (slope, U * (s * (9 + other * 5 * size_of_z)
                         + size * slope_of_z * slope_of_s * (20 + 5 * size_of_z) + numpy.abs(slope))
             + TINY * (1 + size * slope_of_z)))


FUNCTIONS = {function.__name__: function for function in (relu, sigmoid, tanh, gelu_erf, gelu_tanh, softplus)}
ACCURATE = 1e4  # formulas.h promises GELU's digits up to here


def outputs_of(name: str, x: Array, grad_y: Array | None) -> dict[str, Want]:
    """y = f(x) and grad_x = grad_y f'(x). The second is off by grad_y times the error of f', by U, and by
    ETA. What an infinity gives depends on whether f' has become 0: nothing is asked where it may have. GELU
    beyond ACCURATE is judged by what cannot go wrong, which is NaN alone."""
    with numpy.errstate(all="ignore"):
        (value, bound), (slope, slope_bound) = FUNCTIONS[name](x.astype(float))
        if name.startswith("gelu"):
            bound = numpy.where(numpy.abs(x) > ACCURATE, numpy.inf, bound)
            value = numpy.where(numpy.isinf(x), 0, value)
            slope_bound = numpy.where(numpy.abs(x) > ACCURATE, numpy.inf, slope_bound)
            slope = numpy.where(numpy.abs(x) > ACCURATE, 0, slope)
        wanted = {"y": Want(value, bound)}
        if grad_y is None:
            return wanted
        grad = grad_y.astype(float)
        size = numpy.abs(grad)
        of_grad = numpy.where(size == 0, 0, size * slope_bound) + U * numpy.abs(grad * slope) + 2 * ETA
        unknown = (numpy.isinf(grad) & (numpy.abs(slope) <= slope_bound) & (slope_bound > 0)
                   | numpy.isposinf(slope_bound))
        # 0 times what may have become infinite or NaN, beyond ACCURATE.
        value = numpy.where(unknown & ~numpy.isnan(grad) & ~numpy.isnan(slope), 0, grad * slope)
        wanted["grad_x"] = Want(value, numpy.where(unknown, numpy.inf, of_grad))
    return wanted


def activation(name: str) -> Draw:
    def draw(rng: Rng) -> Drawn:
        extents = shape(rng, 1, 3000, 0)
        x, grad_y = (values(rng, extents, kind) for kind in kinds(rng, 2))
        if rng.random() < 0.5:  # where the functions bend and overflow, and not where they are constant
            x = (x * numpy.float32(rng.choice([3, 10, 40]))).astype(numpy.float32)
        return Drawn({"x": x, "grad_y": grad_y}, outputs_of(name, x, grad_y),
                     {"offset": offset(rng), "in_place": int(rng.integers(2))})
    return draw


# ---- Stage 2 --------------------------------------------------------------------------------------


def transpose(rng: Rng) -> Drawn:
    """Exact: nothing is computed."""
    a = values(rng, shape(rng, 2, 9000, 0), kinds(rng, 1)[0])
    return Drawn({"a": a}, {"out": Want(a.T)}, {"offset": offset(rng)})


def gemv(rng: Rng) -> Drawn:
    """The bounds of sums() and affine()."""
    rows, cols = shape(rng, 2, 9000, 0)
    transposed, alpha, beta = int(rng.integers(2)), factor(rng), factor(rng)
    if rng.random() < 0.3:  # all versions
        alpha, beta = 1.0, 0.0
    n = cols if transposed else rows
    of = kinds(rng, 3)
    a = values(rng, (rows, cols), of[0])
    x, y = values(rng, (rows + cols - n,), of[1]), values(rng, (n,), of[2])
    result = sums(a.T if transposed else a, x[:, None])
    inputs = {"a": a, "x": x, **({"y": y} if beta != 0 else {})}
    return Drawn(inputs, {"y": flat(affine(result, alpha, beta, y[:, None]))},
                 {"transposed": transposed, "alpha": alpha, "beta": beta, "offset": offset(rng),
                  "gap": int(rng.choice([0, 0, 1, 4]))})


def flat(want: Want) -> Want:
    return Want(want.value[:, 0], numpy.broadcast_to(want.bound, want.value.shape)[:, 0])


def gemm(rng: Rng) -> Drawn:
    """The bounds of sums() and affine()."""
    M, N, K = shape(rng, 3, 60000, 0)
    plain = rng.random() < 0.4  # all versions
    layout = (0, 0) if plain else [(0, 0), (0, 1), (1, 0)][rng.integers(3)]
    alpha, beta = (1.0, 0.0) if plain else (factor(rng), factor(rng))
    batch = () if plain or rng.random() < 0.6 else (int(rng.integers(1, 4)),)
    of = kinds(rng, 3)
    a = values(rng, (*batch, *((K, M) if layout[0] else (M, K))), of[0])
    shared = rng.random() < 0.3
    b = values(rng, (*(() if shared else batch), *((N, K) if layout[1] else (K, N))), of[1])
    c = values(rng, (*batch, M, N), of[2])
    result = sums(a.swapaxes(-1, -2) if layout[0] else a, b.swapaxes(-1, -2) if layout[1] else b)
    inputs = {"a": a, "b": b, **({"c": c} if beta != 0 else {})}
    return Drawn(inputs, {"c": affine(result, alpha, beta, c)},
                 {"transpose_a": layout[0], "transpose_b": layout[1], "alpha": alpha, "beta": beta,
                  "offset": offset(rng), "gap": 0 if plain else int(rng.choice([0, 0, 1, 4]))})


def nearest(x: Array, kind: str) -> Array:
    """The float16, bfloat16 or tf32 nearest to each float32, ties to even, as a float32. A NaN stays one."""
    if kind == "fp16":
        return x.astype(numpy.float16).astype(numpy.float32)
    lost = numpy.uint64(16 if kind == "bf16" else 13)  # bits of the fraction
    bits = x.view(numpy.uint32).astype(numpy.uint64)
    half = (numpy.uint64(1) << (lost - numpy.uint64(1))) - numpy.uint64(1)
    kept = (bits + half + ((bits >> lost) & numpy.uint64(1))) >> lost << lost
    return numpy.where(numpy.isnan(x), x, kept.astype(numpy.uint32).view(numpy.float32))


def type_of_number(rng: Rng) -> str:
    return str(rng.choice(["fp16", "bf16", "tf32"]))


def round_(rng: Rng) -> Drawn:
    """Exact."""
    x = values(rng, shape(rng, 1, 9000, 0), kinds(rng, 1)[0])
    if rng.random() < 0.5:  # float16's range
        x = (x * numpy.float32(2.0 ** rng.integers(-30, 17))).astype(numpy.float32)
    kind = type_of_number(rng)
    return Drawn({"x": x}, {"y": Want(nearest(x, kind))}, {"type": kind, "offset": offset(rng)})


def gemm_mixed(rng: Rng) -> Drawn:
    """The products of the rounded numbers are exact. A matrix unit cuts off what it adds: at most 3/2 K cuts
    of 2 U times the sum of magnitudes (stage2_matrix/04_gemm_mixed/reference.h), which is three times the
    bound of sums()."""
    M, N, K = shape(rng, 3, 30000, 0)
    of, kind = kinds(rng, 2), type_of_number(rng)
    a, b = values(rng, (M, K), of[0]), values(rng, (K, N), of[1])
    result = sums(nearest(a, kind), nearest(b, kind), 3)
    return Drawn({"a": a, "b": b}, {"c": Want(result.value, result.bound)},
                 {"type": kind, "offset": offset(rng)})


# ---- Stage 3 --------------------------------------------------------------------------------------


def matrix_activation(name: str) -> Draw:
    def draw(rng: Rng) -> Drawn:
        """x + bias is rounded once, exactly; from there on it is stage 1's function."""
        rows, cols = shape(rng, 2, 3000, 0)
        of = kinds(rng, 3)
        x, bias, grad_y = values(rng, (rows, cols), of[0]), values(rng, (cols,), of[1]), values(
            rng, (rows, cols), of[2])
        biased = (x.astype(float) + bias).astype(numpy.float32)
        return Drawn({"x": x, "bias": bias, "grad_y": grad_y}, outputs_of(name, biased, grad_y),
                     {"offset": offset(rng), "in_place": int(rng.integers(2))})
    return draw


def softmax_of(x: Array) -> tuple[Array, Array]:
    """By rows, in float64, and the bound of stage3_ml_ops/02_softmax/reference.h with the most roundings of any
    version: a term exp(x - max), d below the maximum, is off by 3 U d and by 5 U for each exponential that it
    is a product of; the sum by their mean, weighted by y, and U for each addition; U for the reciprocal and
    the product."""
    exact = x.astype(float)
    cols = x.shape[1]
    exponentials, additions = 4 + math.ceil(cols / 8192), cols + 3
    largest = numpy.max(exact, axis=1, keepdims=True, initial=-numpy.inf)
    e = numpy.exp(exact - largest)
    y = e / e.sum(axis=1, keepdims=True)
    distance = numpy.where(numpy.isfinite(exact), largest - exact, 0)
    of_sum = 3 * (y * distance).sum(axis=1, keepdims=True) + 5 * exponentials + additions
    share = U * (3 * numpy.where(y > 0, distance, 0) + 5 * exponentials + of_sum + 2)
    bound = share / (1 - share) * y + TINY
    return y, numpy.where(numpy.isneginf(exact), 0, bound)  # a masked element is 0, and not nearly


def rows_and_columns(rng: Rng) -> tuple[int, int]:
    """Few rows: a block for each takes the CPU backend long."""
    rows = 0 if rng.random() < 0.02 else extent(rng, 24)
    return rows, extent(rng, 9000 // max(rows, 1))


def softmax(rng: Rng) -> Drawn:
    """softmax_of()'s bound. A NaN or +infinity makes its row NaN, and so does a row of -infinity."""
    x = values(rng, rows_and_columns(rng) if rng.random() < 0.97 else (3, 0), kinds(rng, 1)[0])
    if rng.random() < 0.2:  # masks
        x = numpy.where(rng.random(x.shape) < rng.random(), -numpy.inf, x).astype(numpy.float32)
    at = offset(rng)
    return Drawn({"x": x}, {"y": Want(*softmax_of(x))},
                 {"offset": at, "offset_y": at if rng.random() < 0.7 else offset(rng),
                  "in_place": int(rng.integers(2))})


def squared_error(rng: Rng) -> Drawn:
    """Of the loss each term is a square, at least 0, so that its relative error is at most that of a term: 3
    U of the rounded difference and its square, n U of the sum, 2 U of the count and the quotient. The
    gradient: 4 U for the difference, the count, its quotient and the product. A mean over nothing is NaN."""
    extents = shape(rng, int(rng.integers(1, 3)), 9000, 0)
    p, t = (values(rng, extents, kind) for kind in kinds(rng, 2))
    n = p.size
    difference = p.astype(float) - t
    total = (difference ** 2).sum()
    share = (n + 5) * U
    loss = total / n if n else math.nan
    bound = share / (1 - share) * loss + 4 * ETA
    if total > LARGEST * (1 + share):  # adding what is positive never comes back from infinity
        loss = math.inf if not math.isnan(loss) else loss
    elif total > LARGEST * (1 - share):
        bound = math.inf
    gradient = 2 * difference / max(n, 1)
    of_gradient = 4 * U / (1 - 4 * U) * numpy.abs(gradient) + 2 * ETA
    overflows = numpy.isfinite(difference) & (numpy.abs(difference) >= LARGEST)
    return Drawn({"p": p, "t": t}, lambda version: {"loss": Want(numpy.asarray(loss), bound), **(
        {} if version == "loss_alone" else
        {"grad": Want(gradient, numpy.where(overflows, numpy.inf, of_gradient))})}, {"offset": offset(rng)})


def cross_entropy_of(x: Array, labels: Array, ignore: int | None,
                     from_probabilities: bool) -> dict[str, Want]:
    """Of a row that counts the loss is log(sum of exp) + (max - x[label]): the sum's relative error is the
    largest probability's, 4 U for the logarithm, U each for the difference and the sum. Where it comes from a
    probability p, it is -log(p), which moves by -log(1 - e) where p is off by a share e, and is infinite
    where p is 0. The mean adds U for each addition, the count and the quotient; the gradient (p - 1[label]) /
    count has 4 U besides p's error. Rows that are ignored count nowhere: loss and gradient are 0 whatever the
    logits are."""
    rows, classes = x.shape
    counts = numpy.array([ignore is None or label != ignore for label in labels], bool)
    p, of_p = softmax_of(x)
    every = numpy.arange(rows)
    at = numpy.where(counts, labels, 0)
    exact = x.astype(float)
    if rows == 0:
        return {"loss": Want(numpy.asarray(math.nan)), "row_losses": Want(numpy.zeros(0)), "grad": Want(p)}
    largest = exact.max(axis=1)
    logarithm = numpy.log(numpy.exp(exact - largest[:, None]).sum(axis=1))
    losses = logarithm + (largest - exact[every, at])
    chosen = at if from_probabilities else numpy.argmax(p, axis=1)
    share = of_p[every, chosen] / p[every, chosen]
    bound = numpy.where(share < 1, -numpy.log1p(-share), numpy.inf) + 6 * U * losses + TINY
    # A probability that float32 does not have may be 0, and a loss beyond its range may overflow.
    bound = numpy.where((share < 1) & (losses < LARGEST * (1 - U)), bound, numpy.inf)
    bound = numpy.where(numpy.isfinite(losses), bound, 0)
    losses, bound = numpy.where(counts, losses, 0), numpy.where(counts, bound, 0)

    count = counts.sum()
    mean = losses.sum() / count if count else math.nan
    off = (rows + 2) * U
    total = (numpy.where(numpy.isfinite(losses), losses, 0) + bound).sum()
    of_mean = (bound.sum() + off / (1 - off) * total) / max(count, 1) + TINY
    if not total < LARGEST * (1 - off):
        of_mean = math.inf

    grad = (p - (numpy.arange(classes) == at[:, None])) / max(count, 1)
    of_grad = of_p / max(count, 1) + 4 * U / (1 - 4 * U) * numpy.abs(grad) + numpy.where(grad == 0, 0, TINY)
    return {"loss": Want(numpy.asarray(mean), of_mean), "row_losses": Want(losses, bound),
            "grad": Want(numpy.where(counts[:, None], grad, 0), numpy.where(counts[:, None], of_grad, 0))}


def cross_entropy(rng: Rng) -> Drawn:
    """cross_entropy_of()'s bounds."""
    rows, classes = rows_and_columns(rng)
    x = values(rng, (rows, classes), kinds(rng, 1)[0])
    if rng.random() < 0.2:  # masks
        x = numpy.where(rng.random(x.shape) < rng.random(), -numpy.inf, x).astype(numpy.float32)
    labels = rng.integers(0, classes, rows)
    ignore = None
    if rng.random() < 0.5:
        ignore = int(rng.choice([-100, -1, 0, classes - 1, classes]))
        labels = numpy.where(rng.random(rows) < rng.choice([0.1, 0.5, 1]), ignore, labels)

    def want(version: str) -> dict[str, Want]:
        wanted = cross_entropy_of(x, labels, ignore, version.endswith("probabilities"))
        return {output: wanted[output] for output in wanted
                if output != "grad" or not version.startswith("loss_of")}

    return Drawn({"logits": x, "labels": labels}, want,
                 {"ignore_index": ignore, "offset": offset(rng), "in_place": int(rng.integers(2))})


CASES: dict[str, Draw] = {
    "vector_add": vector_add, "vector_multiply": vector_multiply, "scale": scale, "axpy": axpy, "dot": dot,
    **{name: activation(name) for name in FUNCTIONS},
    "transpose": transpose, "gemv": gemv, "gemm": gemm, "gemm_mixed": gemm_mixed, "round": round_,
    **{f"matrix_{name}": matrix_activation(name) for name in FUNCTIONS},
    "softmax": softmax, "squared_error": squared_error, "cross_entropy": cross_entropy}

@pytest.mark.parametrize("name", CASES)
def test_operator(operators: Operators, name: str) -> None:
    wrong = differences(operators, name, CASES[name], 50)
    assert not wrong, report(wrong)


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_refused(name: str) -> None:
    with Operators(program(), waves()[0]) as operators:
        accepted = accepted_mistakes(operators, name, CASES[name], 30)
    assert not accepted, report(accepted)
