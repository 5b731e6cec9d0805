"""The operators of stage 7 in float64, for test_differential_4567.py, as differential_layers.py has those of
stages 4 and 5.
"""

from __future__ import annotations

import math

import numpy
from approximate import TINY, Approximate, exact_product, matmul, square_root, unknown_where
from differential import ETA, LARGEST, Drawn, U, Want, extent, kinds, shape, values
from differential_images import scattered
from differential_layers import drawn_offset, exactly, gamma, gelu_tanh, slope_of, wants

Array = numpy.ndarray
Generator = numpy.random.Generator


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
    # A sum of finite values that is beyond float32 is not, where the weights are divided first.
    out = unknown_where(numpy.isinf(out.value) & finite.all(-2, keepdims=True), out)
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
