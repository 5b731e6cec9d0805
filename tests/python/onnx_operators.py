"""How ONNX's operators become calls of the course's: CONVERSIONS; no test itself.

A conversion takes a case of ONNX, runs operators of the course, and returns for each output what every
version computed, in ONNX's layout, with the result in float64 and its bound. NumPy moves numbers on the way
(transposes, reshapes, repeats, cuts), but all arithmetic on them is the operators'. What these do not compute
is Unsupported.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from approximate import TINY, Approximate, matmul, multiply_add, square_root
from differential import U, Want, affine, product, sums
from numpy import ndarray
from onnx_cases import Case
from test_differential_123 import cross_entropy_of, outputs_of, softmax_of
from test_differential_4567 import attended, columns_of, is_winograd, sees, through_tiles


class Reason(enum.Enum):
    """Why a step does not compute a case, as results/onnx.json has it."""

    ASYMMETRIC = "asymmetric padding"
    CAUSAL = "more queries than keys under a causal mask"
    CEIL = "ceil mode"
    DAMPING = "momentum with a factor for the gradient"
    DECAY = "a decay behind the step"
    DILATION = "dilation"
    DIMENSIONS = "three dimensions"
    ELEMENT = "element type"
    GROUPED = "queries that share heads of keys"
    GROUPS = "groups"
    HEADS = "values of another size than keys"
    LOGARITHMS = "inputs that are no logarithms of probabilities"
    MASK = "attention mask"
    MATRIX = "a matrix as bias"
    NEGATIVE = "negative indices"
    NESTEROV = "Nesterov momentum"
    NOTHING = "nothing to compute"
    OUTSIDE = "a maximum outside its window"
    PAST = "past keys and values"
    ROWS = "more rows than a test has time for"
    SCALED = "alpha and beta"
    SCORES = "scores as an output"
    SOFTCAP = "softcap"
    SUM = "reduction to a sum"
    WEIGHTS = "class weights"


class Unsupported(Exception):
    """The operator does not compute the case."""

    def __init__(self, reason: Reason):
        super().__init__(reason.value)


def refuse(condition: object, reason: Reason) -> None:
    if condition:
        raise Unsupported(reason)


def floats(case: Case, number: int = 0) -> ndarray:
    """An input, which must be of floats."""
    array = case.inputs[number]
    refuse(array.dtype != numpy.float32, Reason.ELEMENT)
    return array


def double(array: ndarray) -> ndarray:
    return array.astype(numpy.float64)


def gamma(roundings: float | ndarray) -> float | ndarray:
    """What so many roundings in a row make of a factor 1, at most (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., lemma 3.1)."""
    return roundings * U / (1 - roundings * U)


# ---- Results --------------------------------------------------------------------------------------

Results = dict[str, dict[str, ndarray]]  # version → output → array
Run = Callable[..., Results]  # operators.Operators.run
Move = Callable[[ndarray], ndarray]


@dataclass
class Output:
    """What the versions computed for one output, and what each must."""

    got: dict[str, ndarray]
    want: Want | Callable[[str], Want]

    def wanted(self, version: str) -> Want:
        return self.want(version) if callable(self.want) else self.want

    def through(self, move: Move, move_bound: Move | None = None) -> Output:
        """In another layout; `move_bound` where `move` does more to the values than that."""
        def moved(version: str) -> Want:
            want = self.wanted(version)
            bound = numpy.broadcast_to(want.bound, numpy.shape(want.value))
            return Want(move(want.value), (move_bound or move)(bound))

        return Output({version: move(array) for version, array in self.got.items()}, moved)

    def shaped(self, shape: Sequence[int]) -> Output:
        return self.through(lambda array: array.reshape(shape))


def named(results: Results, name: str) -> dict[str, ndarray]:
    return {version: outputs[name] for version, outputs in results.items()}


def output(results: Results, name: str, want: Want | Callable[[str], Want]) -> Output:
    return Output(named(results, name), want)


def stacked(parts: Sequence[dict[str, ndarray]]) -> dict[str, ndarray]:
    """What every version computed for each part, along a new first axis. A version that does not take all of
    the parts is left out."""
    versions = [version for version in parts[0] if all(version in part for part in parts)]
    assert versions, "no version takes all parts"
    return {version: numpy.stack([part[version] for part in parts]) for version in versions}


def joined(wants: Sequence[Want]) -> Want:
    """Of parts along a new first axis."""
    return Want(numpy.stack([want.value for want in wants]),
                numpy.stack([numpy.broadcast_to(want.bound, want.value.shape) for want in wants]))


# ---- Stage 1: elements ----------------------------------------------------------------------------


def vectors(case: Case) -> tuple[list[ndarray], tuple[int, ...]]:
    """The inputs, repeated to the shape that they broadcast to, flat; and that shape."""
    arrays = numpy.broadcast_arrays(*(floats(case, i) for i in range(len(case.inputs))))
    return [array.reshape(-1) for array in arrays], arrays[0].shape


def add(case: Case, run: Run) -> list[Output]:
    (a, b), shape = vectors(case)
    return [output(run("vector_add", {"a": a, "b": b}), "c", Want(a + b)).shaped(shape)]


def multiply(case: Case, run: Run) -> list[Output]:
    (a, b), shape = vectors(case)
    return [output(run("vector_multiply", {"a": a, "b": b}), "c", Want(a * b)).shaped(shape)]


def sum_of_inputs(case: Case, run: Run) -> list[Output]:
    """One addition behind the other."""
    (want, *rest), shape = vectors(case)
    refuse(not rest, Reason.NOTHING)
    got: dict[str, ndarray] = {}
    for array in rest:
        if not got:
            got = named(run("vector_add", {"a": want, "b": array}), "c")
        else:
            got = {version: run("vector_add", {"a": so_far, "b": array})[version]["c"]
                   for version, so_far in got.items()}
        want = want + array
    return [Output(got, Want(want)).shaped(shape)]


def subtract(case: Case, run: Run) -> list[Output]:
    """-1 b + a: the product is exact, so that only the sum rounds."""
    (a, b), shape = vectors(case)
    return [output(run("axpy", {"x": b, "y": a}, alpha=-1), "y", Want(a - b)).shaped(shape)]


def negate(case: Case, run: Run) -> list[Output]:
    x = floats(case)
    return [output(run("scale", {"x": x}, alpha=-1), "y", Want(-x))]


def sum_of_squares(case: Case, run: Run) -> list[Output]:
    """The dot product with itself of all that an output is a sum of; the second input says along which
    axes."""
    x, axes = floats(case), case.input(1)
    if axes is None or axes.size == 0:
        refuse(case.attributes.get("noop_with_empty_axes", 0), Reason.NOTHING)
        axes = numpy.arange(x.ndim)
    summed = [int(axis) % x.ndim for axis in axes]
    kept = [axis for axis in range(x.ndim) if axis not in summed]
    shape = case.outputs[0].shape
    refuse(math.prod(shape) == 0, Reason.NOTHING)
    rows = x.transpose(*kept, *summed).reshape(math.prod(shape), -1)
    got = stacked([named(run("dot", {"x": row, "y": row}), "result") for row in rows])
    return [Output(got, joined([product(row, row[:, None]) for row in rows])).shaped(shape)]


def function_of(case: Case) -> str:
    """The activation's name in the course."""
    if case.operator == "Gelu":
        return "gelu_tanh" if case.attributes.get("approximate", "none") == "tanh" else "gelu_erf"
    return case.operator.lower()


def activation(case: Case, run: Run) -> list[Output]:
    x, name = floats(case), function_of(case)
    return [output(run(name, {"x": x}), "y", outputs_of(name, x, None)["y"])]


def matrix_activation(case: Case, run: Run) -> list[Output]:
    """With a bias of 0: f(x + 0)."""
    x, name = floats(case), function_of(case)
    rows = x.reshape(-1, x.shape[-1])
    results = run(f"matrix_{name}", {"x": rows, "bias": numpy.zeros(x.shape[-1])})
    return [output(results, "y", outputs_of(name, rows, None)["y"]).shaped(x.shape)]


# ---- Stage 2: matrices ----------------------------------------------------------------------------


def rotations(shape: Sequence[int], permutation: Sequence[int]) -> list[tuple[int, int, int]]:
    """The transposes that bring the axes into this order, one behind the other: how many matrices, their rows
    and their columns. Each moves the axes from some place on round until the right one stands there."""
    order, steps = list(range(len(shape))), []
    for place, axis in enumerate(permutation):
        at = order.index(axis)
        if at > place:
            parts = order[:place], order[place:at], order[at:]
            steps.append(tuple(math.prod(shape[i] for i in part) for part in parts))
            order = parts[0] + parts[2] + parts[1]
    return steps or [(1, 1, math.prod(shape))]  # nothing moves: the transpose of a row


def permuted(x: ndarray, permutation: Sequence[int], run: Run) -> Output:
    """x.transpose(permutation), by transposes of matrices."""
    got: dict[str, ndarray] = {}
    for step in rotations(x.shape, permutation):
        def turned(array: ndarray) -> dict[str, ndarray]:
            return stacked([named(run("transpose", {"a": matrix}), "out") for matrix in array.reshape(step)])

        got = {version: turned(array)[version] for version, array in got.items()} if got else turned(x)
    want = x.transpose(permutation)
    return Output({version: array.reshape(want.shape) for version, array in got.items()}, Want(want))


def transpose(case: Case, run: Run) -> list[Output]:
    x = floats(case)
    return [permuted(x, case.attributes.get("perm", range(x.ndim)[::-1]), run)]


def depth_and_space(case: Case, run: Run) -> list[Output]:
    """DepthToSpace and SpaceToDepth, which ONNX defines as transposes of six axes."""
    x, size = floats(case), case.attributes["blocksize"]
    n, c, h, w = x.shape
    kind = case.attributes.get("mode", "DCR") if case.operator == "DepthToSpace" else case.operator
    shape, permutation = {
        "DCR": ((n, size, size, c // size ** 2, h, w), (0, 3, 4, 1, 5, 2)),
        "CRD": ((n, c // size ** 2, size, size, h, w), (0, 1, 4, 2, 5, 3)),
        "SpaceToDepth": ((n, c, h // size, size, w // size, size), (0, 3, 5, 1, 2, 4)),
    }[kind]
    return [permuted(x.reshape(shape), permutation, run).shaped(case.outputs[0].shape)]


def matrices(case: Case) -> tuple[ndarray, ndarray, Want]:
    """MatMul's operands, each repeated to the common batch, which becomes its one first axis; and the
    product."""
    a, b = floats(case, 0), floats(case, 1)
    batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    repeated = (numpy.broadcast_to(x, batch + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b))
    return (*repeated, product(a, b))


def products(case: Case, run: Run) -> list[Output]:
    """One behind the other, so that every version takes part; and all in one launch by those that can."""
    a, b, want = matrices(case)
    got = stacked([named(run("gemm", {"a": one, "b": other}), "c") for one, other in zip(a, b)])
    batch = named(run("gemm", {"a": a, "b": b}), "c")
    got |= {f"{version}, as a batch": c for version, c in batch.items()}
    return [Output({version: c.reshape(want.value.shape) for version, c in got.items()}, want)]


def products_by_columns(case: Case, run: Run) -> list[Output]:
    """The product of a matrix and a vector for each column."""
    a, b, want = matrices(case)
    got = stacked([named(run("gemv", {"a": one, "x": column}), "y")
                   for one, other in zip(a, b) for column in other.T])
    turned = want.value.swapaxes(-1, -2).shape
    return [Output({version: y.reshape(turned).swapaxes(-1, -2) for version, y in got.items()}, want)]


def gemm_in_double(case: Case) -> tuple[ndarray, ndarray, ndarray | None, Want]:
    """Gemm's op(A), op(B) and its C, repeated to the product's shape; alpha op(A) op(B) + beta C."""
    a = floats(case, 0).T if case.attributes.get("transA", 0) else floats(case, 0)
    b = floats(case, 1).T if case.attributes.get("transB", 0) else floats(case, 1)
    c = None if case.input(2) is None else numpy.broadcast_to(floats(case, 2), (a.shape[0], b.shape[1]))
    beta = 0.0 if c is None else case.attributes.get("beta", 1.0)
    return a, b, c, affine(sums(a, b), case.attributes.get("alpha", 1.0), beta, c)


def gemm(case: Case, run: Run) -> list[Output]:
    """Where both are transposed the product is computed as (B A)^T."""
    c, want = gemm_in_double(case)[2:]
    transpose_a, transpose_b = (bool(case.attributes.get(name, 0)) for name in ("transA", "transB"))
    both = transpose_a and transpose_b
    a, b = (floats(case, int(both)), floats(case, int(not both)))
    results = run("gemm", {"a": a, "b": b, **({} if c is None else {"c": c.T if both else c})},
                  alpha=case.attributes.get("alpha"),
                  beta=0 if c is None else case.attributes.get("beta", 1.0),
                  transpose_a=transpose_a and not both, transpose_b=transpose_b and not both)
    return [Output({version: y.T if both else y for version, y in named(results, "c").items()}, want)]


def layer(case: Case, run: Run) -> list[Output]:
    """A dense layer without an activation: x (batch, in), w (out, in), bias (out)."""
    a, b, c, want = gemm_in_double(case)
    refuse(case.attributes.get("alpha", 1.0) != 1 or case.attributes.get("beta", 1.0) != 1, Reason.SCALED)
    refuse(c is not None and case.input(2).ndim == 2 and case.input(2).shape[0] > 1, Reason.MATRIX)
    bias = numpy.zeros(b.shape[1]) if c is None else c[0]
    return [output(run("dense", {"x": a, "w": b.T, "bias": bias}), "y", want)]


def cast(case: Case, run: Run) -> list[Output]:
    """Floats rounded to 16 bits, which step 2.4 multiplies; also CastLike, whose second input has the
    type."""
    x, to = floats(case), case.outputs[0].dtype
    types = {"float16": "fp16", "bfloat16": "bf16"}
    refuse(to.name not in types, Reason.ELEMENT)
    return [output(run("round", {"x": x}, type=types[to.name]), "y", Want(double(x.astype(to))))]


# ---- Stage 3: rows --------------------------------------------------------------------------------


def rows_of(x: ndarray, axis: int) -> tuple[ndarray, Move]:
    """x as a matrix whose rows lie along the axis, and what brings such a matrix back."""
    last = numpy.moveaxis(x, axis, -1)
    return last.reshape(-1, x.shape[axis]), lambda rows: numpy.moveaxis(rows.reshape(last.shape), -1, axis)


def softmax(case: Case, run: Run) -> list[Output]:
    rows, back = rows_of(floats(case), case.attributes.get("axis", -1))
    return [output(run("softmax", {"x": rows}), "y", Want(*softmax_of(rows))).through(back)]


def losses(logits: ndarray, labels: ndarray, ignored: int | None, run: Run) -> dict[str, Output]:
    """Step 3.3's `loss` and `row_losses`, of which a version that takes probabilities is off by more."""
    results = run("cross_entropy", {"logits": logits, "labels": labels}, ignore_index=ignored)
    wanted = {of_probabilities: cross_entropy_of(logits, labels, ignored, of_probabilities)
              for of_probabilities in (False, True)}
    return {name: output(results, name, lambda version, name=name: wanted["probabilities" in version][name])
            for name in ("loss", "row_losses")}


def logarithms(rows: ndarray, run: Run) -> Output:
    """Of softmax: a row's losses for all labels, with the other sign."""
    classes = rows.shape[1]
    labels = numpy.tile(numpy.arange(classes), len(rows))
    return losses(rows.repeat(classes, axis=0), labels, None, run)["row_losses"].through(
        lambda of_labels: -of_labels.reshape(rows.shape), lambda bound: bound.reshape(rows.shape))


def log_softmax(case: Case, run: Run) -> list[Output]:
    rows, back = rows_of(floats(case), case.attributes.get("axis", -1))
    return [logarithms(rows, run).through(back)]


MOST = 5000  # rows: a block for each, in every version, takes the CPU backend some seconds


def cross_entropy(case: Case, run: Run) -> list[Output]:
    """Classes along axis 1, as in PyTorch; the optional second output is log softmax.

    NegativeLogLikelihoodLoss takes the logarithms of probabilities, which are their own logits, if they are
    that.
    """
    reduction, ignored = case.attributes.get("reduction", "mean"), case.attributes.get("ignore_index")
    refuse(case.input(2) is not None, Reason.WEIGHTS)
    refuse(reduction == "sum", Reason.SUM)
    rows, back = rows_of(floats(case), 1)
    refuse(len(rows) + (rows.size if len(case.outputs) > 1 else 0) > MOST, Reason.ROWS)
    if case.operator == "NegativeLogLikelihoodLoss":
        refuse((abs(numpy.exp(double(rows)).sum(axis=1) - 1) > 1e-6).any(), Reason.LOGARITHMS)
    labels = case.inputs[1]
    found = losses(rows, labels.reshape(-1), ignored, run)
    outputs = [found["loss"] if reduction == "mean" else found["row_losses"].shaped(labels.shape)]
    return outputs + [logarithms(rows, run).through(back) for _ in case.outputs[1:]]


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


# ---- The operators of ONNX that the course has ----------------------------------------------------

Conversion = Callable[[Case, Run], list[Output]]
ACTIVATION: list[tuple[str, Conversion]] = [("1.4 activations", activation),
                                            ("3.1 matrix_activations", matrix_activation)]

# By ONNX's operator: the steps that compute it, and how.
CONVERSIONS: dict[str, list[tuple[str, Conversion]]] = {
    "Add": [("1.1 vector_add", add)],
    "Mul": [("1.1 vector_add", multiply)],
    "Sum": [("1.1 vector_add", sum_of_inputs)],
    "Neg": [("1.2 axpy", negate)],
    "Sub": [("1.2 axpy", subtract)],
    "ReduceSumSquare": [("1.3 dot", sum_of_squares)],
    "Relu": ACTIVATION,
    "Sigmoid": ACTIVATION,
    "Tanh": ACTIVATION,
    "Gelu": ACTIVATION,
    "Softplus": ACTIVATION,
    "Transpose": [("2.1 transpose", transpose)],
    "DepthToSpace": [("2.1 transpose", depth_and_space)],
    "SpaceToDepth": [("2.1 transpose", depth_and_space)],
    "MatMul": [("2.2 gemv", products_by_columns), ("2.3 gemm", products)],
    "Gemm": [("2.3 gemm", gemm), ("4.1 dense", layer)],
    "Cast": [("2.4 gemm_mixed", cast)],
    "CastLike": [("2.4 gemm_mixed", cast)],
    "Softmax": [("3.2 softmax", softmax)],
    "LogSoftmax": [("3.3 losses", log_softmax)],
    "SoftmaxCrossEntropyLoss": [("3.3 losses", cross_entropy)],
    "NegativeLogLikelihoodLoss": [("3.3 losses", cross_entropy)],
    "ai.onnx.preview.training.Momentum": [("5.4 optimizers", optimizer)],
    "ai.onnx.preview.training.Adam": [("5.4 optimizers", optimizer)],
    "Conv": [("6.1 conv2d", convolution)],
    "ConvTranspose": [("6.2 conv2d_backward", transposed_convolution)],
    "MaxPool": [("6.3 maxpool", maximum_pool)],
    "GlobalMaxPool": [("6.3 maxpool", maximum_pool)],
    "MaxUnpool": [("6.3 maxpool", maximum_unpool)],
    "Gather": [("7.1 embedding", gather)],
    "LayerNormalization": [("7.2 layernorm", layer_normalization)],
    "InstanceNormalization": [("7.2 layernorm", group_normalization)],
    "GroupNormalization": [("7.2 layernorm", group_normalization)],
    "Attention": [("7.4 attention", attention)],
}
