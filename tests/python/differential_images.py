"""The operators of stage 6 in float64, for test_differential_4567.py, as differential_layers.py has those of
stages 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
from approximate import Approximate, exact_product, is_integer, matmul, unknown_where
from differential import ETA, LARGEST, Drawn, U, Want, extent, kinds, values
from differential_layers import (
    accumulated, activated, drawn_before, drawn_offset, exactly, gamma, slope_of, wants)

Array = numpy.ndarray
Generator = numpy.random.Generator


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
