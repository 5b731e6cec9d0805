"""ONNX's operators on elements, matrices and rows: calls of the course's stages 1 to 4."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from differential import Want, affine, product, sums
from numpy import ndarray
from onnx_cases import Case
from onnx_results import (
    Move, Output, Reason, Run, double, floats, joined, named, output, refuse, stacked)
from test_differential_123 import cross_entropy_of, outputs_of, softmax_of


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
