"""ONNX's optimizers, and its operators on images and texts: calls of the course's stages 5 to 7."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from approximate import TINY, Approximate, matmul, multiply_add, square_root
from differential import U, Want
from differential_images import columns_of, is_winograd, through_tiles
from differential_text import attended, sees
from numpy import ndarray
from onnx_cases import Case
from onnx_results import (
    Output, Reason, Run, double, floats, gamma, joined, named, output, refuse, stacked)


# ---- Stage 5: optimizers --------------------------------------------------------------------------

SETTLED = 10 ** 6  # a step so late that a mean of gradients needs no correction any more


def optimizer(case: Case, run: Run) -> list[Output]:
    """A step for every tensor X: Momentum (with G and V) and Adam (G, V and H) of ai.onnx.preview.training.

    ONNX adds norm_coefficient X to the gradient, which axpy does here. With T = 0 it corrects nothing, as a
    step that comes late enough does not. It adds epsilon to the root before it corrects that.
    """
    adam = case.operator.endswith("Adam")
    given = {"alpha": 0.9, "beta": 0.999 if adam else 1.0, "epsilon": 1e-6, "norm_coefficient": 0.0,
             **case.attributes}
    alpha, beta = given["alpha"], given["beta"]
    rate, t = float(case.inputs[0]), int(case.inputs[1])
    refuse(given.get("mode") == "nesterov", Reason.NESTEROV)
    refuse(given.get("norm_coefficient_post", 0), Reason.DECAY)
    refuse(not adam and t > 0 and beta != 1, Reason.DAMPING)
    correction = math.sqrt(1 - beta ** t) if adam and t else 1.0
    epsilon = given["epsilon"] / correction
    parts = 4 if adam else 3
    tensors = (len(case.inputs) - 2) // parts

    def step(number: int) -> list[Output]:
        x, gradient, m, *v = (floats(case, 2 + number + part * tensors) for part in range(parts))
        gradients = named(run("axpy", {"x": x, "y": gradient}, alpha=given["norm_coefficient"]), "y")
        results = run("optimizer", {"w": x, "grad_w": next(iter(gradients.values()))[None], "m": m,
                                    "v": v[0] if adam else numpy.zeros_like(x)},
                      optimizer="adam" if adam else "momentum", learning_rate=rate, momentum=alpha,
                      beta1=alpha, beta2=beta, epsilon=epsilon, done=t - 1 if t else SETTLED)
        one, decay = Approximate(1.0), Approximate(alpha)
        g = Approximate(given["norm_coefficient"]) * Approximate(x) + Approximate(gradient)
        if not adam:
            new_m = multiply_add(decay, Approximate(m), g)
            new_x = multiply_add(Approximate(-rate), new_m, Approximate(x))
            return [output(results, "w", new_x.want), output(results, "m", new_m.want)]
        new_m = multiply_add(decay, Approximate(m), (one - decay) * g)
        new_v = multiply_add(Approximate(beta), Approximate(v[0]), (one - Approximate(beta)) * g * g)
        divisor = multiply_add(square_root(new_v), Approximate(1 / correction).rounded(),
                               Approximate(epsilon).rounded())
        size = Approximate(rate / (1 - alpha ** t if t else 1.0)).rounded()
        new_x = multiply_add(-size, new_m / divisor, Approximate(x))
        return [output(results, "w", new_x.want), output(results, "m", new_m.want),
                output(results, "v", new_v.want)]

    return [one for same_part in zip(*map(step, range(tensors))) for one in same_part]


# ---- Stage 6: images ------------------------------------------------------------------------------


class Windows:
    """Where the windows of a convolution or a pooling lie, in rows and columns of an image. An array with one
    such axis is an image of one row."""

    def __init__(self, case: Case, size: Sequence[int], image: Sequence[int]):
        """`size` and `image` are the extents behind batch and channels; a transposed convolution's image is
        its output."""
        axes, attributes = len(size), case.attributes
        refuse(axes > 2, Reason.DIMENSIONS)
        refuse(any(d != 1 for d in attributes.get("dilations", [])), Reason.DILATION)
        refuse(attributes.get("group", 1) != 1, Reason.GROUPS)
        stride = list(attributes.get("strides", [1] * axes))
        pads = list(attributes.get("pads", [0] * 2 * axes))
        automatic = attributes.get("auto_pad", "NOTSET")
        if automatic.startswith("SAME"):
            total = [max((-(-extent // s) - 1) * s + r - extent, 0)
                     for extent, s, r in zip(image, stride, size)]
            small, large = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = small + large if automatic == "SAME_UPPER" else large + small
        refuse(pads[:axes] != pads[axes:], Reason.ASYMMETRIC)
        missing = 2 - axes
        self.size, self.stride = [1] * missing + list(size), [1] * missing + stride
        self.padding = [0] * missing + pads[:axes]

    def attributes(self) -> dict[str, int]:
        return {"stride_h": self.stride[0], "stride_w": self.stride[1],
                "pad_h": self.padding[0], "pad_w": self.padding[1]}

    def of_pooling(self) -> dict[str, int]:
        return {"window_h": self.size[0], "window_w": self.size[1], **self.attributes()}

    def extents(self, image: Sequence[int]) -> tuple[int, ...]:
        """How many windows lie below and beside one another."""
        return tuple((extent + 2 * pad - size) // stride + 1
                     for extent, pad, size, stride in zip(image, self.padding, self.size, self.stride))

    def cells(self, image: Sequence[int]) -> tuple[ndarray, ndarray]:
        """The number of each window's cells in an image of rows and columns, (P, Q, R, S); which lie
        outside."""
        row, column = (numpy.arange(count)[:, None] * stride - pad + numpy.arange(size)
                       for count, stride, pad, size in zip(
                           self.extents(image), self.stride, self.padding, self.size))
        row, column = row[:, None, :, None], column[None, :, None, :]
        outside = (row < 0) | (row >= image[0]) | (column < 0) | (column >= image[1])
        return row * image[1] + column, outside


def images(x: ndarray) -> ndarray:
    """(N, C, W) as images of one row."""
    return x[:, :, None] if x.ndim == 3 else x


def rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    """Of such an array's images."""
    return (1, shape[2]) if len(shape) == 3 else (shape[2], shape[3])


def padded(x: ndarray, padding: Sequence[int]) -> ndarray:
    return numpy.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in padding)])


def convolution(case: Case, run: Run) -> list[Output]:
    x, w = images(floats(case, 0)), images(floats(case, 1))
    windows = Windows(case, case.inputs[1].shape[2:], case.inputs[0].shape[2:])
    bias = numpy.zeros(len(w), numpy.float32) if case.input(2) is None else floats(case, 2)
    at = windows.attributes()
    results = run("conv2d", {"x": x, "w": w, "bias": bias}, **at)
    sums_ = matmul(Approximate(double(w).reshape(len(w), -1)), Approximate(columns_of(x, *windows.size, at)))
    plain = sums_.reshape(len(x), len(w), *windows.extents(x.shape[2:]))

    def want(version: str) -> Want:
        tiled = is_winograd(version, w.shape, at)
        y = through_tiles(plain, padded(x, windows.padding), w) if tiled else plain
        return (y + Approximate(bias[:, None, None])).want

    return [output(results, "y", want).shaped(case.outputs[0].shape)]


def transposed_convolution(case: Case, run: Run) -> list[Output]:
    """What a convolution's backward pass computes of its input: ONNX's W (in, out, R, S) are the filters that
    lead there from the output."""
    shape = case.outputs[0].shape
    windows, image = Windows(case, case.inputs[1].shape[2:], shape[2:]), rows_and_columns(shape)
    grad_y, w = images(floats(case, 0)), images(floats(case, 1))
    refuse(windows.extents(image) != grad_y.shape[2:], Reason.ASYMMETRIC)
    n, channels, at = len(grad_y), w.shape[1], windows.attributes()
    x = numpy.zeros((n, channels, *image))  # of the filters' gradient alone
    results = run("conv2d_backward", {"grad_y": grad_y, "w": w, "x": x}, **at)

    number, outside = windows.cells(image)

    def spread(grad: ndarray, filters: ndarray) -> ndarray:
        """Each element of the gradient, times a filter, goes where its window lies."""
        parts = numpy.einsum("nkpq,kcrs->ncpqrs", grad, filters)
        total = numpy.zeros((n, channels, math.prod(image)))
        numpy.add.at(total, (slice(None), slice(None), number[~outside]), parts[:, :, ~outside])
        return total.reshape(n, channels, *image)

    terms = spread(numpy.ones(grad_y.shape), numpy.ones(w.shape))
    absolute = spread(abs(double(grad_y)), abs(double(w)))
    plain = Approximate(spread(double(grad_y), double(w)), gamma(terms) * absolute + TINY)

    def want(version: str) -> Want:
        if not is_winograd(version, w.shape, at):
            return plain.want
        around = padded(grad_y, [2 - pad for pad in windows.padding])
        return through_tiles(plain, around, w.swapaxes(0, 1)[:, :, ::-1, ::-1]).want

    return [output(results, "grad_x", want).shaped(shape)]


def maximum_pool(case: Case, run: Run) -> list[Output]:
    """Also GlobalMaxPool, whose window is the image. ONNX numbers a maximum's cell in the whole array, the
    course in its window."""
    x, shape = images(floats(case)), case.outputs[0].shape
    extents, image = case.inputs[0].shape[2:], x.shape[2:]
    windows = Windows(case, case.attributes.get("kernel_shape", extents), extents)
    refuse(windows.extents(image) != rows_and_columns(shape), Reason.CEIL)
    results = run("maxpool", {"x": x}, **windows.of_pooling())
    number, outside = windows.cells(image)
    planes = x.reshape(*x.shape[:2], -1)
    cells = numpy.where(outside, -numpy.inf, planes[:, :, numpy.where(outside, 0, number)])
    cells = cells.reshape(*cells.shape[:4], -1)
    number = number.reshape(1, 1, *number.shape[:2], -1)
    first = numpy.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], 1, 1) * math.prod(image)

    def in_array(place: ndarray) -> ndarray:
        cell = numpy.take_along_axis(number, place[..., None].astype(int), axis=-1)[..., 0]
        if case.attributes.get("storage_order", 0):
            cell = cell % image[1] * image[0] + cell // image[1]
        return (first + cell).astype(numpy.float32)

    maxima = output(results, "y", Want(cells.max(axis=-1)))
    places = Output({version: in_array(place) for version, place in named(results, "argmax").items()},
                    Want(in_array(cells.argmax(axis=-1))))
    return [one.shaped(shape) for one in (maxima, places)[:len(case.outputs)]]


def maximum_unpool(case: Case, run: Run) -> list[Output]:
    """What a pooling's backward pass makes of its gradient: each value goes to the cell that its maximum came
    from, which ONNX numbers in the smallest images that have these windows."""
    grad_y, indices = images(floats(case, 0)), images(case.inputs[1])
    shape = case.outputs[0].shape
    windows, image = Windows(case, case.attributes["kernel_shape"], shape[2:]), rows_and_columns(shape)
    refuse(windows.extents(image) != grad_y.shape[2:], Reason.ASYMMETRIC)
    height, width = ((count - 1) * stride + size - 2 * pad for count, stride, size, pad
                     in zip(grad_y.shape[2:], windows.stride, windows.size, windows.padding))
    plane = numpy.arange(math.prod(grad_y.shape[:2])).reshape(*grad_y.shape[:2], 1, 1)
    row, column = numpy.divmod(indices - plane * height * width, width)
    want = numpy.zeros((plane.size, math.prod(image)))
    numpy.add.at(want, (numpy.broadcast_to(plane, row.shape), row * image[1] + column), double(grad_y))
    # From the image to the window: ONNX's indices may name a cell outside, the course's cannot.
    row, column = (place + pad - numpy.arange(count).reshape(extents) * stride
                   for place, pad, count, extents, stride in zip(
                       (row, column), windows.padding, row.shape[2:], ((-1, 1), (1, -1)), windows.stride))
    refuse(not all(((0 <= place) & (place < size)).all() for place, size in zip((row, column), windows.size)),
           Reason.OUTSIDE)
    results = run("maxpool_backward", {"grad_y": grad_y, "argmax": row * windows.size[1] + column},
                  H=image[0], W=image[1], **windows.of_pooling())
    return [output(results, "grad_x", Want(want.reshape(*grad_y.shape[:2], *image))).shaped(shape)]


# ---- Stage 7: the parts of a transformer ----------------------------------------------------------


def gather(case: Case, run: Run) -> list[Output]:
    """Rows of a table, with a table of positions that holds zeros."""
    data, indices = floats(case), case.inputs[1]
    axis = case.attributes.get("axis", 0) % data.ndim
    refuse((indices < 0).any(), Reason.NEGATIVE)
    first = numpy.moveaxis(data, axis, 0)
    table = first.reshape(len(first), -1)
    results = run("embedding", {"tokens": indices.reshape(1, -1), "token_table": table,
                                "position_table": numpy.zeros((indices.size, table.shape[1]))})

    def back(y: ndarray) -> ndarray:
        """The axes of the indices, which come first here, in place of the data's axis."""
        y = y.reshape(*indices.shape, *first.shape[1:])
        return numpy.moveaxis(y, range(indices.ndim), range(axis, axis + indices.ndim))

    return [output(results, "y", Want(table[indices.reshape(1, -1)])).through(back)]


def normalized(rows: ndarray, gain: ndarray, bias: ndarray, eps: float) -> dict[str, Want]:
    """Layer normalization of each row: y, mean and rstd, with the bounds of 7.2 for Welford's method,
    whose updates are the larger source of errors, and as many of them and of additions as there are
    columns."""
    x, columns = double(rows), rows.shape[1]
    d = x - x[:, :1]
    mean, largest = d.mean(axis=1, keepdims=True), abs(d).max(axis=1, keepdims=True)
    e = d - mean
    variance = (e ** 2).mean(axis=1, keepdims=True)
    of_thread = gamma(columns / 2 + 6) * largest
    of_mean = of_thread + gamma(columns + 3) * largest
    h, between = of_thread + 3 * U * largest, of_thread + of_mean + 2 * U * largest
    squares = (2 * math.sqrt(2) * h + 2 * between) * numpy.sqrt(variance) + h ** 2 + between ** 2
    of_variance = squares + gamma(2 * columns + 6) * (variance + squares) + TINY
    rstd = Approximate(1.0) / square_root(Approximate(variance, of_variance) + Approximate(eps).rounded())
    centred = Approximate(e, U * abs(d) + of_mean + U * abs(e))
    y = centred * rstd * Approximate(gain) + Approximate(bias)
    return {"y": y.want, "mean": Approximate(x[:, :1] + mean, of_mean).rounded()[:, 0].want,
            "rstd": rstd[:, 0].want}


def layer_normalization(case: Case, run: Run) -> list[Output]:
    """A row is all that lies behind the axis."""
    x, eps = floats(case), case.attributes.get("epsilon", 1e-5)
    axis = case.attributes.get("axis", -1) % x.ndim
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    gain = floats(case, 1).reshape(-1)
    bias = numpy.zeros_like(gain) if case.input(2) is None else floats(case, 2).reshape(-1)
    results = run("layernorm", {"x": rows, "gain": gain, "bias": bias}, eps=eps)
    return [output(results, name, want).shaped(expected.shape)
            for (name, want), expected in zip(normalized(rows, gain, bias, eps).items(), case.outputs)]


def group_normalization(case: Case, run: Run) -> list[Output]:
    """Also InstanceNormalization, with a group for each channel. A row is one group of an image; the rows of
    the same group share gain and bias, which are repeated for all of a channel's elements."""
    x, scale, shift = (floats(case, i) for i in range(3))
    groups, eps = case.attributes.get("num_groups", x.shape[1]), case.attributes.get("epsilon", 1e-5)
    rows = x.reshape(len(x), groups, -1).swapaxes(0, 1)
    gains, biases = (array.repeat(math.prod(x.shape[2:])).reshape(groups, -1) for array in (scale, shift))
    results = [run("layernorm", {"x": matrix, "gain": gain, "bias": bias}, eps=eps)
               for matrix, gain, bias in zip(rows, gains, biases)]
    want = [normalized(matrix, gain, bias, eps)["y"] for matrix, gain, bias in zip(rows, gains, biases)]
    return [Output(stacked([named(of_group, "y") for of_group in results]), joined(want)).through(
        lambda parts: parts.swapaxes(0, 1).reshape(x.shape))]


def heads_first(x: ndarray, heads: int) -> ndarray:
    """(B, T, heads D) as (B, heads, T, D)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def attention(case: Case, run: Run) -> list[Output]:
    """ONNX aligns a causal mask with the first key: query i sees the keys up to i. If there are no more
    queries than keys, no query sees a key behind the last query's; without such keys the course's mask, which
    is aligned with the last key, is the same."""
    given = case.attributes
    q, k, v = (heads_first(floats(case, i), given.get(name, 0))
               for i, name in enumerate(("q_num_heads", "kv_num_heads", "kv_num_heads")))
    refuse(case.input(4) is not None or case.input(5) is not None, Reason.PAST)
    refuse(case.input(3) is not None or case.input(6) is not None, Reason.MASK)
    refuse(any(expected is not None for expected in case.outputs[1:]), Reason.SCORES)
    refuse(given.get("softcap", 0.0), Reason.SOFTCAP)
    refuse(q.shape[1] != k.shape[1], Reason.GROUPED)
    refuse(k.shape[3] != v.shape[3], Reason.HEADS)
    causal, queries = bool(given.get("is_causal", 0)), q.shape[2]
    if causal:
        refuse(queries > k.shape[2], Reason.CAUSAL)
        k, v = k[:, :, :queries], v[:, :, :queries]
    scale = given.get("scale", 1 / math.sqrt(q.shape[3]))
    results = run("attention", {"q": q, "k": k, "v": v}, causal=causal, scale=scale)
    want = attended(Approximate(q), Approximate(k), Approximate(v), Approximate(scale).rounded(),
                    sees(queries, k.shape[2], causal))["out"].want
    shape = case.outputs[0].shape
    return [output(results, "out", want).through(
        lambda out: out if len(shape) == 4 else out.swapaxes(1, 2).reshape(shape))]
