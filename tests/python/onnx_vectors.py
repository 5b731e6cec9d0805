"""Runs ONNX's node vectors, which its package brings, on the course's operators; no test itself.

    tests/python/onnx_vectors.py --write    runs them all, and writes their verdicts to results/onnx.json

A case of ONNX is one node with its attributes, inputs and outputs. CONVERSIONS says which of the course's
operators compute the node's operator. Each of those gives the case a verdict: it passes, or the operator
does not compute this case and says why. NumPy moves numbers on the way (transposes, reshapes, repeats,
cuts), but all arithmetic on them is the operators'.

A case passes if every version, with waves of 32 and of 64, agrees twice: with ONNX's output within ONNX's
tolerance, and with the result in double precision within a bound that follows from the operation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
import operators
from conftest import ROOT
from approximate import TINY, Approximate, matmul, multiply_add, square_root
from differential import U, Want, affine, difference, product, sums
from numpy import ndarray
from onnx import defs, helper, numpy_helper
from test_differential_123 import cross_entropy_of, outputs_of, softmax_of
from test_differential_4567 import attended, columns_of, is_winograd, sees, through_tiles

RECORD = ROOT / "results" / "onnx.json"
NODES = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"

RELATIVE, ABSOLUTE = 1e-3, 1e-7  # what ONNX's own backend tests allow

# Attributes with which ONNX computed a case's outputs, and which its node lacks.
FORGOTTEN = {"adam_multiple": {"epsilon": 1e-2}}

# Versions that ONNX's tolerance does not fit, by case, each with the reason. Their own bound must hold all the same.
EXCEPTIONS = {
    ("convtranspose", "backward_winograd"):
        "sums of transformed numbers up to 36 give 1e-6 in place of a 0, and of a 0 ONNX allows no more than 1e-7",
}

PASSED = "passed"

# The verdicts on cases that a step does not compute.
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
SCALED = "alpha and beta"
SCORES = "scores as an output"
SOFTCAP = "softcap"
ROWS = "more rows than a test has time for"
SUM = "reduction to a sum"
WEIGHTS = "class weights"
REASONS = {ASYMMETRIC, CAUSAL, CEIL, DAMPING, DECAY, DILATION, DIMENSIONS, ELEMENT, GROUPED, GROUPS, HEADS, LOGARITHMS, MASK,
           MATRIX, NEGATIVE, NESTEROV, NOTHING, OUTSIDE, PAST, ROWS, SCALED, SCORES, SOFTCAP, SUM, WEIGHTS}


class Unsupported(Exception):
    """The course's operator does not compute the case; the text is one of REASONS."""


def refuse(condition: object, reason: str) -> None:
    if condition:
        raise Unsupported(reason)


# ---- ONNX's cases ------------------------------------------------------------------------------


@dataclass
class Case:
    """A node, and one set of its inputs and outputs; an optional one that is left out is None."""

    name: str
    operator: str
    attributes: dict
    inputs: list[ndarray | None]
    outputs: list[ndarray | None]

    def input(self, number: int) -> ndarray | None:
        return self.inputs[number] if number < len(self.inputs) else None

    def floats(self, number: int = 0) -> ndarray:
        """An input that must be of floats."""
        array = self.inputs[number]
        refuse(array.dtype != numpy.float32, ELEMENT)
        return array


class Node:
    """The model in a folder of ONNX's. `node`, `operator` and `version`, in which ONNX last changed the operator, are
    None where it has several nodes."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = folder.name.removeprefix("test_")
        self.model = onnx.load(folder / "model.onnx")
        nodes = self.model.graph.node
        self.node = nodes[0] if len(nodes) == 1 else None
        self.operator = self.version = None
        if self.node is not None:
            domain = self.node.domain
            opset = next(o.version for o in self.model.opset_import if o.domain == domain)
            self.operator = f"{domain}.{self.node.op_type}" if domain else self.node.op_type
            self.version = defs.get_schema(self.node.op_type, opset, domain).since_version

    def cases(self) -> Iterator[Case]:
        """One for each of its sets of data."""
        attributes = {a.name: helper.get_attribute_value(a) for a in self.node.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value
                      for name, value in attributes.items()}
        forgotten = FORGOTTEN.get(self.name, {})
        assert not forgotten.keys() & attributes.keys(), f"FORGOTTEN: {self.name} has what it lacked"
        attributes |= forgotten
        for data in sorted(self.folder.glob("test_data_set_*")):
            inputs, outputs = (
                self._arrays(data, kind, names, given) for kind, names, given in (
                    ("input", self.node.input, self.model.graph.input),
                    ("output", self.node.output, self.model.graph.output)))
            yield Case(self.name, self.operator, attributes, inputs, outputs)

    @staticmethod
    def _arrays(data: Path, kind: str, names: Sequence[str], given: Sequence) -> list[ndarray | None]:
        number = {value.name: i for i, value in enumerate(given)}
        arrays = []
        for name in names:
            tensor = onnx.TensorProto()
            if name:
                tensor.ParseFromString((data / f"{kind}_{number[name]}.pb").read_bytes())
            arrays.append(numpy_helper.to_array(tensor) if name else None)
        return arrays


def nodes() -> Iterator[Node]:
    return (Node(folder) for folder in sorted(NODES.iterdir()))


# ---- What a result may be off ------------------------------------------------------------------

def gamma(roundings: float) -> float:
    """What so many roundings in a row make of a factor 1, at most (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., lemma 3.1)."""
    return roundings * U / (1 - roundings * U)


@dataclass
class Output:
    """What the versions computed for one output, and what each must."""

    got: dict[str, ndarray]
    want: Want | Callable[[str], Want]

    def wanted(self, version: str) -> Want:
        return self.want(version) if callable(self.want) else self.want

    def through(self, move: Callable[[ndarray], ndarray], move_bound: Callable[[ndarray], ndarray] | None = None
                ) -> Output:
        """The same, moved to ONNX's layout; `move_bound` where `move` does more to the values than that."""
        def moved(version: str) -> Want:
            want = self.wanted(version)
            bound = numpy.broadcast_to(want.bound, numpy.shape(want.value))
            return Want(move(want.value), (move_bound or move)(bound))

        return Output({version: move(array) for version, array in self.got.items()}, moved)


def double(array: ndarray) -> ndarray:
    return array.astype(numpy.float64)


# ---- Running the operators ---------------------------------------------------------------------

Results = dict[str, dict[str, ndarray]]  # version → output → array
Run = Callable[..., Results]


def named(results: Results, output: str) -> dict[str, ndarray]:
    return {version: outputs[output] for version, outputs in results.items()}


def shaped(got: dict[str, ndarray], shape: Sequence[int]) -> dict[str, ndarray]:
    return {version: array.reshape(shape) for version, array in got.items()}


def stacked(parts: list[dict[str, ndarray]]) -> dict[str, ndarray]:
    """What every version computed for each part, along a new first axis. Versions that did not take all of
    the parts are left out; at least one did.
    """
    versions = [version for version in parts[0] if all(version in part for part in parts)]
    assert versions, "no version takes all parts"
    return {version: numpy.stack([part[version] for part in parts]) for version in versions}


def vectors(case: Case) -> tuple[list[ndarray], tuple[int, ...]]:
    """The inputs, repeated to the shape that they broadcast to, flat; and that shape."""
    arrays = numpy.broadcast_arrays(*(case.floats(i) for i in range(len(case.inputs))))
    return [array.reshape(-1) for array in arrays], arrays[0].shape


# ---- Stage 1: elements ---------------------------------------------------------------------------------


def add(case: Case, run: Run) -> list[Output]:
    (a, b), shape = vectors(case)
    return [Output(shaped(named(run("vector_add", {"a": a, "b": b}), "c"), shape), Want((a + b).reshape(shape)))]


def multiply(case: Case, run: Run) -> list[Output]:
    (a, b), shape = vectors(case)
    got = named(run("vector_multiply", {"a": a, "b": b}), "c")
    return [Output(shaped(got, shape), Want((a * b).reshape(shape)))]


def sum_of_inputs(case: Case, run: Run) -> list[Output]:
    """One addition behind the other."""
    (want, *rest), shape = vectors(case)
    refuse(not rest, NOTHING)
    got: dict[str, ndarray] = {}
    for array in rest:
        got = ({version: run("vector_add", {"a": so_far, "b": array})[version]["c"]
                for version, so_far in got.items()} if got
               else named(run("vector_add", {"a": want, "b": array}), "c"))
        want = want + array
    return [Output(shaped(got, shape), Want(want.reshape(shape)))]


def subtract(case: Case, run: Run) -> list[Output]:
    """-1 b + a: the product is exact, so that only the sum rounds."""
    (a, b), shape = vectors(case)
    got = named(run("axpy", {"x": b, "y": a}, alpha=-1), "y")
    return [Output(shaped(got, shape), Want((a - b).reshape(shape)))]


def negate(case: Case, run: Run) -> list[Output]:
    x = case.floats()
    return [Output(named(run("scale", {"x": x}, alpha=-1), "y"), Want(-x))]


def sum_of_squares(case: Case, run: Run) -> list[Output]:
    """The dot product with itself of all that one output is a sum of; the second input says along which axes."""
    x, axes = case.floats(), case.input(1)
    if axes is None or axes.size == 0:
        refuse(case.attributes.get("noop_with_empty_axes", 0), NOTHING)
        axes = numpy.arange(x.ndim)
    summed = [int(axis) % x.ndim for axis in axes]
    kept = [axis for axis in range(x.ndim) if axis not in summed]
    shape = case.outputs[0].shape
    refuse(math.prod(shape) == 0, NOTHING)
    rows = x.transpose(*kept, *summed).reshape(math.prod(shape), -1)
    got = stacked([named(run("dot", {"x": row, "y": row}), "result") for row in rows])
    want = [product(row[None, :], row[:, None]) for row in rows]
    return [Output(shaped(got, shape), Want(*(numpy.array([getattr(sum_, part) for sum_ in want]).reshape(shape)
                                              for part in ("value", "bound"))))]


def function_of(case: Case) -> str:
    """The activation's name in the course."""
    if case.operator == "Gelu":
        return "gelu_tanh" if case.attributes.get("approximate", "none") == "tanh" else "gelu_erf"
    return case.operator.lower()


def activation(case: Case, run: Run) -> list[Output]:
    x, name = case.floats(), function_of(case)
    return [Output(named(run(name, {"x": x}), "y"), outputs_of(name, x, None)["y"])]


def matrix_activation(case: Case, run: Run) -> list[Output]:
    """With a bias of 0: f(x + 0)."""
    x, name = case.floats(), function_of(case)
    columns = x.shape[-1]
    got = named(run(f"matrix_{name}", {"x": x.reshape(-1, columns), "bias": numpy.zeros(columns)}), "y")
    return [Output(shaped(got, x.shape), outputs_of(name, x, None)["y"])]


# ---- Stage 2: matrices ---------------------------------------------------------------------------------


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


def permuted(x: ndarray, permutation: Sequence[int], run: Run) -> dict[str, ndarray]:
    """x.transpose(permutation) by step 2.1's transposes of matrices."""
    got: dict[str, ndarray] = {}
    for step in rotations(x.shape, permutation):
        def turned(array: ndarray) -> dict[str, ndarray]:
            return stacked([named(run("transpose", {"a": matrix}), "out") for matrix in array.reshape(step)])

        got = {version: turned(array)[version] for version, array in got.items()} if got else turned(x)
    return shaped(got, [x.shape[axis] for axis in permutation])


def transpose(case: Case, run: Run) -> list[Output]:
    x = case.floats()
    permutation = case.attributes.get("perm", range(x.ndim)[::-1])
    return [Output(permuted(x, permutation, run), Want(x.transpose(permutation)))]


def depth_and_space(case: Case, run: Run) -> list[Output]:
    """DepthToSpace and SpaceToDepth, which ONNX defines as transposes of six axes."""
    x, size = case.floats(), case.attributes["blocksize"]
    n, c, h, w = x.shape
    shape, permutation = {
        "DCR": ((n, size, size, c // size ** 2, h, w), (0, 3, 4, 1, 5, 2)),
        "CRD": ((n, c // size ** 2, size, size, h, w), (0, 1, 4, 2, 5, 3)),
        "SpaceToDepth": ((n, c, h // size, size, w // size, size), (0, 3, 5, 1, 2, 4)),
    }[case.attributes.get("mode", "DCR") if case.operator == "DepthToSpace" else case.operator]
    parts, out = x.reshape(shape), case.outputs[0].shape
    return [Output(shaped(permuted(parts, permutation, run), out), Want(parts.transpose(permutation).reshape(out)))]


def matrices(case: Case) -> tuple[ndarray, ndarray, Want]:
    """MatMul's operands, each repeated to the common batch and with that as its one first axis; the product."""
    a, b = case.floats(0), case.floats(1)
    batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    want = product(a, b)
    return (*(numpy.broadcast_to(x, batch + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b)), want)


def products(case: Case, run: Run) -> list[Output]:
    """One product behind the other, so that every version takes part; and all in one launch by those that can."""
    a, b, want = matrices(case)
    got = stacked([named(run("gemm", {"a": one, "b": other}), "c") for one, other in zip(a, b)])
    batch = named(run("gemm", {"a": a, "b": b}), "c")
    got |= {f"{version}, as a batch": y for version, y in batch.items()}
    return [Output(shaped(got, want.value.shape), want)]


def matmul_by_columns(case: Case, run: Run) -> list[Output]:
    """The product of a matrix and a vector for each column."""
    a, b, want = matrices(case)
    got = stacked([named(run("gemv", {"a": one, "x": column}), "y")
                   for one, other in zip(a, b) for column in other.T])
    turned = want.value.swapaxes(-1, -2).shape
    return [Output({version: y.reshape(turned).swapaxes(-1, -2) for version, y in got.items()}, want)]


def gemm_in_double(case: Case) -> tuple[ndarray, ndarray, ndarray | None, Want]:
    """Gemm's op(A), op(B) and its C, repeated to the product's shape; alpha op(A) op(B) + beta C."""
    a = case.floats(0).T if case.attributes.get("transA", 0) else case.floats(0)
    b = case.floats(1).T if case.attributes.get("transB", 0) else case.floats(1)
    c = None if case.input(2) is None else numpy.broadcast_to(case.floats(2), (a.shape[0], b.shape[1]))
    beta = 0.0 if c is None else case.attributes.get("beta", 1.0)
    return a, b, c, affine(sums(a, b), case.attributes.get("alpha", 1.0), beta, c)


def gemm(case: Case, run: Run) -> list[Output]:
    """Where both are transposed the product is computed as (B A)^T."""
    a, b, c, want = gemm_in_double(case)
    transposed = [bool(case.attributes.get(name, 0)) for name in ("transA", "transB")]
    inputs = {"a": case.floats(0), "b": case.floats(1)}
    if all(transposed):
        inputs = {"a": case.floats(1), "b": case.floats(0)}
    if c is not None:
        inputs["c"] = c.T if all(transposed) else c
    got = named(run("gemm", inputs, alpha=case.attributes.get("alpha"),
                    beta=0 if c is None else case.attributes.get("beta", 1.0),
                    transpose_a=int(transposed == [True, False]), transpose_b=int(transposed == [False, True])), "c")
    return [Output({version: y.T if all(transposed) else y for version, y in got.items()}, want)]


def layer(case: Case, run: Run) -> list[Output]:
    """A dense layer without an activation: x (batch, in), w (out, in), a bias (out)."""
    a, b, c, want = gemm_in_double(case)
    refuse(case.attributes.get("alpha", 1.0) != 1 or case.attributes.get("beta", 1.0) != 1, SCALED)
    refuse(c is not None and case.input(2).ndim == 2 and case.input(2).shape[0] > 1, MATRIX)
    bias = numpy.zeros(b.shape[1]) if c is None else c[0]
    return [Output(named(run("dense", {"x": a, "w": b.T, "bias": bias}), "y"), want)]


def cast(case: Case, run: Run) -> list[Output]:
    """Floats rounded to 16 bits, which step 2.4 multiplies."""
    x, to = case.floats(), case.outputs[0].dtype.name
    types = {"float16": "fp16", "bfloat16": "bf16"}
    refuse(to not in types, ELEMENT)
    return [Output(named(run("round", {"x": x}, type=types[to]), "y"), Want(double(x.astype(case.outputs[0].dtype))))]


# ---- Stage 3: rows -------------------------------------------------------------------------------------


def rows_of(x: ndarray, axis: int) -> tuple[ndarray, Callable[[ndarray], ndarray]]:
    """x as a matrix whose rows lie along the axis, and what brings such a matrix back."""
    last = numpy.moveaxis(x, axis, -1)
    return (last.reshape(-1, x.shape[axis]), lambda matrix: numpy.moveaxis(matrix.reshape(last.shape), -1, axis))


def softmax(case: Case, run: Run) -> list[Output]:
    rows, back = rows_of(case.floats(), case.attributes.get("axis", -1))
    return [Output(named(run("softmax", {"x": rows}), "y"), Want(*softmax_of(rows))).through(back)]


def losses(logits: ndarray, labels: ndarray, ignored: int | None, run: Run) -> dict[str, Output]:
    """Step 3.3's `loss` and `row_losses`, of which a version that takes probabilities is off by more."""
    results = run("cross_entropy", {"logits": logits, "labels": labels}, ignore_index=ignored)
    wanted = {of_probabilities: cross_entropy_of(logits, labels, ignored, of_probabilities)
              for of_probabilities in (False, True)}
    return {name: Output(named(results, name), lambda version, name=name: wanted["probabilities" in version][name])
            for name in ("loss", "row_losses")}


def logarithms(rows: ndarray, run: Run) -> Output:
    """Of softmax: a row's losses for all labels, with the other sign."""
    classes = rows.shape[1]
    labels = numpy.tile(numpy.arange(classes), len(rows))
    return losses(rows.repeat(classes, axis=0), labels, None, run)["row_losses"].through(
        lambda all_losses: -all_losses.reshape(rows.shape), lambda bound: bound.reshape(rows.shape))


def log_softmax(case: Case, run: Run) -> list[Output]:
    rows, back = rows_of(case.floats(), case.attributes.get("axis", -1))
    return [logarithms(rows, run).through(back)]


MOST = 10_000  # logarithms: a block each, in every version, takes the CPU backend seconds


def cross_entropy(case: Case, run: Run) -> list[Output]:
    """Classes along axis 1, as in PyTorch; the optional second output is log softmax. NegativeLogLikelihoodLoss
    takes the logarithms of probabilities, which are their own logits, if they are that."""
    reduction, ignored = case.attributes.get("reduction", "mean"), case.attributes.get("ignore_index")
    refuse(case.input(2) is not None, WEIGHTS)
    refuse(reduction == "sum", SUM)
    rows, back = rows_of(case.floats(), 1)
    refuse(len(case.outputs) > 1 and rows.size > MOST, ROWS)
    if case.operator == "NegativeLogLikelihoodLoss":
        refuse((abs(numpy.exp(double(rows)).sum(axis=1) - 1) > 1e-6).any(), LOGARITHMS)
    labels = case.inputs[1]
    all_losses = losses(rows, labels.reshape(-1), ignored, run)
    outputs = [all_losses["loss"] if reduction == "mean"
               else all_losses["row_losses"].through(lambda array: array.reshape(labels.shape))]
    return outputs + [logarithms(rows, run).through(back) for _ in case.outputs[1:]]


# ---- Stage 5: optimizers -------------------------------------------------------------------------------

ONE = Approximate(1.0)
SETTLED = 10 ** 6  # a step so late that a mean of gradients needs no correction any more


def optimizer(case: Case, run: Run) -> list[Output]:
    """A step for every tensor: Momentum (G, V) and Adam (G, V, H) of ai.onnx.preview.training.

    ONNX adds norm_coefficient X to the gradient, which axpy does here. With T = 0 it corrects nothing, as a step
    that comes late enough. Its epsilon is added to the root before that is corrected.
    """
    adam = case.operator.endswith("Adam")
    refuse(case.attributes.get("mode", "standard") == "nesterov", NESTEROV)
    refuse(case.attributes.get("norm_coefficient_post", 0), DECAY)
    rate, t = float(case.inputs[0]), int(case.inputs[1])
    alpha, beta = case.attributes.get("alpha", 0.9), case.attributes.get("beta", 0.999 if adam else 1.0)
    refuse(not adam and t > 0 and beta != 1, DAMPING)
    norm, epsilon = case.attributes.get("norm_coefficient", 0.0), case.attributes.get("epsilon", 1e-6)
    correction = math.sqrt(1 - beta ** t) if adam and t else 1.0
    tensors = (len(case.inputs) - 2) // (4 if adam else 3)
    outputs: list[list[Output]] = []
    for number in range(tensors):
        x, gradient, *states = (case.floats(2 + number + part * tensors) for part in range(4 if adam else 3))
        m, v = states if adam else (*states, numpy.zeros_like(x))
        gradients = named(run("axpy", {"x": x, "y": gradient}, alpha=norm), "y")
        results = run("optimizer", {"w": x, "grad_w": next(iter(gradients.values()))[None], "m": m, "v": v},
                      optimizer="adam" if adam else "momentum", learning_rate=rate, momentum=alpha, beta1=alpha,
                      beta2=beta, epsilon=epsilon / correction, done=t - 1 if t else SETTLED)
        g = Approximate(norm) * Approximate(x) + Approximate(gradient)
        if adam:
            new_m = multiply_add(Approximate(alpha), Approximate(m), (ONE - Approximate(alpha)) * g)
            new_v = multiply_add(Approximate(beta), Approximate(v), (ONE - Approximate(beta)) * g * g)
            divisor = multiply_add(square_root(new_v), Approximate(1 / correction).rounded(),
                                   Approximate(epsilon / correction).rounded())
            step = Approximate(rate / (1 - alpha ** t if t else 1.0)).rounded()
            new_x = multiply_add(-step, new_m / divisor, Approximate(x))
        else:
            new_m = multiply_add(Approximate(alpha), Approximate(m), g)
            new_v = None
            new_x = multiply_add(Approximate(-rate), new_m, Approximate(x))
        outputs.append([Output(named(results, name), new.want)
                        for name, new in (("w", new_x), ("m", new_m), ("v", new_v)) if new is not None])
    return [output for part in zip(*outputs) for output in part]


# ---- Stage 6: images -----------------------------------------------------------------------------------


@dataclass
class Windows:
    """Where the windows of a convolution or a pooling lie, in images with rows and columns: an array of one
    dimension is an image of one row."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def __init__(self, case: Case, size: Sequence[int], image: Sequence[int], transposed: bool = False):
        """`size` and `image` are the extents behind batch and channels; of a transposed convolution the image is
        the output."""
        axes = len(size)
        refuse(axes > 2, DIMENSIONS)
        attributes = case.attributes
        refuse(any(d != 1 for d in attributes.get("dilations", [1] * axes)), DILATION)
        refuse(attributes.get("group", 1) != 1, GROUPS)
        stride = list(attributes.get("strides", [1] * axes))
        pads = list(attributes.get("pads", [0] * 2 * axes))
        automatic = attributes.get("auto_pad", "NOTSET")
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            out = [-(-extent // s) for extent, s in zip(image, stride)]
            total = [max((o - 1) * s + r - extent, 0) for o, s, r, extent in zip(out, stride, size, image)]
            small, large = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = small + large if automatic == "SAME_UPPER" else large + small
        refuse(pads[:axes] != pads[axes:], ASYMMETRIC)
        one = [1] * (2 - axes)
        self.size, self.stride = tuple([*one, *size]), tuple([*one, *stride])
        self.padding = tuple([*[0] * (2 - axes), *pads[:axes]])

    def attributes(self) -> dict[str, int]:
        return {"stride_h": self.stride[0], "stride_w": self.stride[1],
                "pad_h": self.padding[0], "pad_w": self.padding[1]}

    def of_pooling(self) -> dict[str, int]:
        return {"window_h": self.size[0], "window_w": self.size[1], **self.attributes()}

    def extents(self, image: Sequence[int]) -> list[int]:
        """How many windows lie below and beside one another."""
        return [(extent + 2 * pad - size) // stride + 1
                for extent, pad, size, stride in zip(image, self.padding, self.size, self.stride)]

    def cells(self, shape: Sequence[int]) -> tuple[ndarray, ndarray]:
        """For images of this shape (rows, columns): the number of each window's cells in the image, (P, Q, R, S),
        and which of them lie outside."""
        p, q = self.extents(shape)
        row, column = (numpy.arange(count)[:, None] * stride - pad + numpy.arange(size) for count, stride, pad, size
                       in zip((p, q), self.stride, self.padding, self.size))
        outside = (((row < 0) | (row >= shape[0]))[:, None, :, None]
                   | ((column < 0) | (column >= shape[1]))[None, :, None, :])
        return row[:, None, :, None] * shape[1] + column[None, :, None, :], outside


def images(x: ndarray) -> ndarray:
    """(N, C, W) as images of one row."""
    return x[:, :, None] if x.ndim == 3 else x


def convolution(case: Case, run: Run) -> list[Output]:
    x, w = images(case.floats(0)), images(case.floats(1))
    windows = Windows(case, case.floats(1).shape[2:], case.floats(0).shape[2:])
    bias = numpy.zeros(len(w), numpy.float32) if case.input(2) is None else case.floats(2)
    shape, at = case.outputs[0].shape, windows.attributes()
    results = run("conv2d", {"x": x, "w": w, "bias": bias}, **at)
    columns = columns_of(x, *windows.size, at)
    plain = matmul(Approximate(double(w).reshape(len(w), -1)), Approximate(columns))
    plain = plain.reshape(len(x), len(w), *windows.extents(x.shape[2:]))

    def want(version: str) -> Want:
        around = [(pad, pad) for pad in windows.padding]
        y = (through_tiles(plain, numpy.pad(x, [(0, 0), (0, 0), *around]), w)
             if is_winograd(version, w.shape, at) else plain)
        return (y + Approximate(bias[:, None, None])).want

    return [Output(named(results, "y"), want).through(lambda y: y.reshape(shape))]


def transposed_convolution(case: Case, run: Run) -> list[Output]:
    """What a convolution's backward pass computes of its input: ONNX's W (in, out, R, S) are the filters that lead
    there from the output."""
    shape = case.outputs[0].shape
    windows = Windows(case, case.floats(1).shape[2:], shape[2:])
    grad_y, w = images(case.floats(0)), images(case.floats(1))
    (n, maps), channels, image = grad_y.shape[:2], w.shape[1], [1, *shape[2:]][-2:]
    refuse(windows.extents(image) != list(grad_y.shape[2:]), ASYMMETRIC)
    at = windows.attributes()
    results = run("conv2d_backward", {"grad_y": grad_y, "w": w, "x": numpy.zeros((n, channels, *image))}, **at)

    # Each element of grad_y, times a filter, goes where its window lies.
    number, outside = windows.cells(image)
    products = numpy.einsum("nkpq,kcrs->ncpqrs", double(grad_y), double(w))
    absolute = numpy.einsum("nkpq,kcrs->ncpqrs", abs(double(grad_y)), abs(double(w)))
    value, size = numpy.zeros((2, n, channels, math.prod(image)))
    terms = numpy.zeros(math.prod(image))
    for total, parts in ((value, products), (size, absolute)):
        numpy.add.at(total, (slice(None), slice(None), number[~outside]), parts[:, :, ~outside])
    numpy.add.at(terms, number[~outside], maps)
    plain = Approximate(value, gamma(terms) * size + TINY).reshape(n, channels, *image)

    def want(version: str) -> Want:
        if not is_winograd(version, w.shape, at):
            return plain.want
        around = [(2 - pad, 2 - pad) for pad in windows.padding]
        turned = w.swapaxes(0, 1)[:, :, ::-1, ::-1]
        return through_tiles(plain, numpy.pad(grad_y, [(0, 0), (0, 0), *around]), turned).want

    return [Output(named(results, "grad_x"), want).through(lambda y: y.reshape(shape))]


def maximum_pool(case: Case, run: Run) -> list[Output]:
    """Also GlobalMaxPool, whose window is the image. ONNX numbers a maximum in the whole array, the course in its
    window."""
    x = images(case.floats())
    extents = case.floats().shape[2:]
    windows = Windows(case, case.attributes.get("kernel_shape", extents), extents)
    shape, image = case.outputs[0].shape, x.shape[2:]
    refuse(windows.extents(image) != [1, *shape[2:]][-2:], CEIL)
    results = run("maxpool", {"x": x}, **windows.of_pooling())
    number, outside = windows.cells(image)
    p, q = number.shape[:2]
    cells = numpy.where(outside, -numpy.inf, x.reshape(*x.shape[:2], -1)[:, :, numpy.where(outside, 0, number)])
    cells = cells.reshape(*x.shape[:2], p, q, -1)
    outputs = [Output(shaped(named(results, "y"), shape), Want(cells.max(axis=-1).reshape(shape)))]
    if len(case.outputs) > 1:
        plane = numpy.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], 1, 1) * math.prod(image)

        def in_array(place: ndarray) -> ndarray:
            cell = numpy.take_along_axis(number.reshape(1, 1, p, q, -1),
                                         place.reshape(*x.shape[:2], p, q, 1).astype(int), axis=-1)[..., 0]
            if case.attributes.get("storage_order", 0):
                cell = cell % image[1] * image[0] + cell // image[1]
            return (plane + cell).reshape(shape).astype(numpy.float32)

        outputs.append(Output({version: in_array(place) for version, place in named(results, "argmax").items()},
                              Want(double(in_array(cells.argmax(axis=-1))))))
    return outputs


def maximum_unpool(case: Case, run: Run) -> list[Output]:
    """What a pooling's backward pass makes of its gradient: each value goes to the cell that its maximum came
    from, which ONNX numbers in the smallest image that has these windows."""
    grad_y, indices = images(case.floats(0)), images(case.inputs[1])
    shape = case.outputs[0].shape
    image = [1, *shape[2:]][-2:]
    windows = Windows(case, case.attributes["kernel_shape"], shape[2:])
    refuse(windows.extents(image) != list(grad_y.shape[2:]), ASYMMETRIC)
    least = [(count - 1) * stride + size - 2 * pad for count, stride, size, pad
             in zip(grad_y.shape[2:], windows.stride, windows.size, windows.padding)]
    plane = numpy.arange(math.prod(grad_y.shape[:2])).reshape(*grad_y.shape[:2], 1, 1)
    row, column = numpy.divmod(indices - plane * math.prod(least), least[1])
    want = numpy.zeros((plane.size, math.prod(image)))
    numpy.add.at(want, (numpy.broadcast_to(plane, row.shape), row * image[1] + column), double(grad_y))
    # From the image to the window: ONNX's indices may name a cell outside, the course's cannot.
    row = row + windows.padding[0] - numpy.arange(row.shape[2])[:, None] * windows.stride[0]
    column = column + windows.padding[1] - numpy.arange(row.shape[3]) * windows.stride[1]
    refuse(((row < 0) | (row >= windows.size[0]) | (column < 0) | (column >= windows.size[1])).any(), OUTSIDE)
    results = run("maxpool_backward", {"grad_y": grad_y, "argmax": row * windows.size[1] + column}, H=image[0],
                  W=image[1], **windows.of_pooling())
    return [Output(shaped(named(results, "grad_x"), shape), Want(want.reshape(shape)))]


# ---- Stage 7: the parts of a transformer ---------------------------------------------------------------


def gather(case: Case, run: Run) -> list[Output]:
    """Rows of a table, with a table of positions that holds zeros."""
    data, indices = case.floats(), case.inputs[1]
    axis = case.attributes.get("axis", 0) % data.ndim
    refuse((indices < 0).any(), NEGATIVE)
    first = numpy.moveaxis(data, axis, 0)
    table = first.reshape(len(first), -1)
    got = named(run("embedding", {"tokens": indices.reshape(1, -1), "token_table": table,
                                  "position_table": numpy.zeros((indices.size, table.shape[1]))}), "y")
    between = axis, indices.ndim  # the indices' axes come first here, and in place of the axis in ONNX

    def back(y: ndarray) -> ndarray:
        y = y.reshape(*indices.shape, *first.shape[1:])
        return numpy.moveaxis(y, range(between[1]), range(between[0], between[0] + between[1]))

    return [Output({version: back(y) for version, y in got.items()}, Want(numpy.take(data, indices, axis)))]


def normalized(rows: ndarray, gain: ndarray, bias: ndarray, eps: float) -> tuple[Want, Want, Want]:
    """Layer normalization of each row: y, mean and 1 / deviation in double precision, with what float32 may be off
    as step 7.2 derives it, for the larger of its two methods' errors."""
    x, columns = double(rows), rows.shape[1]
    distance = x - x[:, :1]
    mean = distance.mean(axis=1, keepdims=True)
    centred = distance - mean
    variance = (centred ** 2).mean(axis=1, keepdims=True)
    largest = abs(distance).max(axis=1, keepdims=True)
    of_mean = gamma(1.5 * columns + 9) * largest  # a thread's running mean, and the sum over all threads
    each = of_mean + 3 * U * largest
    of_variance = (5 * each * numpy.sqrt(variance) + 2 * each ** 2 + gamma(2 * columns + 6) * variance
                   + TINY) / (variance + eps) + U
    rstd = 1 / numpy.sqrt(variance + eps)
    of_rstd = (1 + gamma(2)) / numpy.sqrt(1 - of_variance) - 1
    scale = rstd * abs(double(gain))
    most = (abs(centred) + U * abs(distance) + of_mean + U * abs(centred)) * scale * (1 + of_rstd)
    all_mean = x[:, :1] + mean
    return (Want(centred * rstd * double(gain) + double(bias),
                 most - abs(centred) * scale + gamma(4) * most + U * abs(double(bias)) + TINY),
            Want(all_mean[:, 0], (of_mean + U * (abs(all_mean) + of_mean) + TINY)[:, 0]),
            Want(rstd[:, 0], (of_rstd * rstd)[:, 0]))


def layer_normalization(case: Case, run: Run) -> list[Output]:
    """A row is all that lies behind the axis."""
    x = case.floats()
    axis = case.attributes.get("axis", -1) % x.ndim
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    gain = case.floats(1).reshape(-1)
    bias = numpy.zeros_like(gain) if case.input(2) is None else case.floats(2).reshape(-1)
    eps = case.attributes.get("epsilon", 1e-5)
    results = run("layernorm", {"x": rows, "gain": gain, "bias": bias}, eps=eps)
    return [Output(shaped(named(results, name), out.shape), Want(want.value.reshape(out.shape),
                                                                 want.bound.reshape(out.shape)))
            for name, want, out in zip(("y", "mean", "rstd"), normalized(rows, gain, bias, eps), case.outputs)]


def group_normalization(case: Case, run: Run) -> list[Output]:
    """Also InstanceNormalization, with a group for each channel. A row is one group of an image; the rows of the
    same group share gain and bias, which are repeated over each channel's elements."""
    x, scale, shift = (case.floats(i) for i in range(3))
    groups = case.attributes.get("num_groups", x.shape[1])
    eps = case.attributes.get("epsilon", 1e-5)
    rows = x.reshape(len(x), groups, -1).swapaxes(0, 1)
    gains, biases = (array.repeat(math.prod(x.shape[2:])).reshape(groups, -1) for array in (scale, shift))
    got = stacked([named(run("layernorm", {"x": matrix, "gain": gain, "bias": bias}, eps=eps), "y")
                   for matrix, gain, bias in zip(rows, gains, biases)])
    want = [normalized(matrix, gain, bias, eps)[0] for matrix, gain, bias in zip(rows, gains, biases)]

    def back(parts: ndarray) -> ndarray:
        return parts.swapaxes(0, 1).reshape(x.shape)

    return [Output({version: back(y) for version, y in got.items()},
                   Want(back(numpy.array([one.value for one in want])), back(numpy.array([one.bound for one in want]))))]


def heads(x: ndarray, count: int) -> ndarray:
    """(B, T, heads D) as (B, heads, T, D)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def attention(case: Case, run: Run) -> list[Output]:
    """ONNX aligns a causal mask with the first key: query i sees the keys up to i. With at most as many queries as
    keys none sees those behind the last query's; without them the course's mask, which is aligned with the last
    key, is the same."""
    attributes = case.attributes
    q, k, v = (heads(case.floats(i), attributes.get("q_num_heads" if i == 0 else "kv_num_heads", 0)) for i in range(3))
    refuse(case.input(4) is not None or case.input(5) is not None, PAST)
    refuse(case.input(3) is not None or case.input(6) is not None, MASK)
    refuse(any(output is not None for output in case.outputs[1:]), SCORES)
    refuse(attributes.get("softcap", 0.0), SOFTCAP)
    refuse(q.shape[1] != k.shape[1], GROUPED)
    refuse(k.shape[3] != v.shape[3], HEADS)
    causal, queries = bool(attributes.get("is_causal", 0)), q.shape[2]
    if causal:
        refuse(queries > k.shape[2], CAUSAL)
        k, v = k[:, :, :queries], v[:, :, :queries]
    scale = attributes.get("scale", 1 / math.sqrt(q.shape[3]))
    results = run("attention", {"q": q, "k": k, "v": v}, causal=causal, scale=scale)

    want = attended(Approximate(q), Approximate(k), Approximate(v), Approximate(scale).rounded(),
                    sees(queries, k.shape[2], causal))["out"].want
    shape = case.outputs[0].shape
    return [Output(named(results, "out"), want).through(
        lambda y: y if len(shape) == 4 else y.swapaxes(1, 2).reshape(shape))]


# ---- The operators of ONNX that the course has ---------------------------------------------------------

Conversion = Callable[[Case, Run], list[Output]]
ACTIVATIONS: list[tuple[str, Conversion]] = [("1.4 activations", activation),
                                             ("3.1 matrix_activations", matrix_activation)]
CONVERSIONS: dict[str, list[tuple[str, Conversion]]] = {
    "Add": [("1.1 vector_add", add)],
    "Mul": [("1.1 vector_add", multiply)],
    "Sum": [("1.1 vector_add", sum_of_inputs)],
    "Neg": [("1.2 axpy", negate)],
    "Sub": [("1.2 axpy", subtract)],
    "ReduceSumSquare": [("1.3 dot", sum_of_squares)],
    "Relu": ACTIVATIONS,
    "Sigmoid": ACTIVATIONS,
    "Tanh": ACTIVATIONS,
    "Gelu": ACTIVATIONS,
    "Softplus": ACTIVATIONS,
    "Transpose": [("2.1 transpose", transpose)],
    "DepthToSpace": [("2.1 transpose", depth_and_space)],
    "SpaceToDepth": [("2.1 transpose", depth_and_space)],
    "MatMul": [("2.2 gemv", matmul_by_columns), ("2.3 gemm", products)],
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
    "ConvTranspose": [("6.1 conv2d", transposed_convolution)],
    "MaxPool": [("6.2 maxpool", maximum_pool)],
    "GlobalMaxPool": [("6.2 maxpool", maximum_pool)],
    "MaxUnpool": [("6.2 maxpool", maximum_unpool)],
    "Gather": [("7.1 embedding", gather)],
    "LayerNormalization": [("7.2 layernorm", layer_normalization)],
    "InstanceNormalization": [("7.2 layernorm", group_normalization)],
    "GroupNormalization": [("7.2 layernorm", group_normalization)],
    "Attention": [("7.3 attention", attention)],
}


# ---- Verdicts ------------------------------------------------------------------------------------------


def wrong_with(name: str, output: Output, expected: ndarray) -> Iterator[str]:
    """One line for each thing that is wrong with an output of the case; `expected` is ONNX's."""
    expected = double(expected)
    given = Want(expected, ABSOLUTE + RELATIVE * abs(expected))
    for version, got in sorted(output.got.items()):
        want = output.wanted(version)
        reference = difference(numpy.asarray(want.value).astype(numpy.float32), given)
        if reference:
            yield f"the result in double precision {reference} by ONNX"
            return
        found = difference(got, want)
        if found:
            yield f"{version} {found} by the operation"
        found, exception = difference(got, given), EXCEPTIONS.get((name, version))
        if found and not exception:
            yield f"{version} {found} by ONNX"
        elif exception and not found:
            yield f"{version} is within ONNX's tolerance: its exception can go"


def judge(case: Case, conversion: Conversion, run: Run) -> tuple[str, list[str]]:
    """PASSED or why not, and what is wrong."""
    try:
        outputs = conversion(case, run)
    except Unsupported as why:
        return str(why), []
    except (operators.Refused, RuntimeError) as error:
        return PASSED, [str(error)]
    expected = [array for array in case.outputs if array is not None]
    if len(outputs) != len(expected):
        return PASSED, [f"{len(outputs)} outputs, and ONNX has {len(expected)}"]
    return PASSED, [f"output {i}: {wrong}" for i, (output, array) in enumerate(zip(outputs, expected))
                    for wrong in wrong_with(case.name, output, array)]


Runs = dict[int | None, Run]  # by the size of a wave
Verdicts = dict[str, dict[str, dict[str, list[str]]]]  # operator of ONNX → step → verdict → cases


def judge_node(node: Node, conversion: Conversion, runs: Runs) -> tuple[str, list[str]]:
    """The one verdict of all its sets of data and all sizes of a wave, and what is wrong, a line each."""
    found: dict[str, None] = {}
    problems = []
    for case in node.cases():
        for wave, run in runs.items():
            verdict, wrong = judge(case, conversion, run)
            found[verdict] = None
            problems += [f"{node.name}, wave {wave}, {line}" for line in wrong]
    if len(found) != 1:
        problems.append(f"{node.name} has {len(found)} verdicts: {', '.join(found)}")
    return next(iter(found), NOTHING), problems


def judge_all(runs: Runs) -> tuple[dict, list[str]]:
    """The record of all cases, as results/onnx.json holds it, and what is wrong, a line each:

    onnx       the package's version
    verdicts   of operators that the course has
    missing    operators, with the versions in which ONNX last changed them, that it does not have → cases
    graphs     cases of several operators
    """
    verdicts: Verdicts = {}
    missing: dict[str, list[str]] = {}
    graphs, problems = [], []
    for node in nodes():
        if node.operator is None:
            graphs.append(node.name)
        elif node.operator not in CONVERSIONS:
            missing.setdefault(f"{node.operator} {node.version}", []).append(node.name)
        else:
            for step, conversion in CONVERSIONS[node.operator]:
                verdict, wrong = judge_node(node, conversion, runs)
                problems += [f"{step}: {line}" for line in wrong]
                steps = verdicts.setdefault(f"{node.operator} {node.version}", {})
                steps.setdefault(step, {}).setdefault(verdict, []).append(node.name)
    record = {"onnx": onnx.__version__, "verdicts": verdicts, "missing": missing, "graphs": graphs}
    return json.loads(json.dumps(record, sort_keys=True)), problems


@contextlib.contextmanager
def all_waves() -> Iterator[Runs]:
    """The built operators, with every size of a wave that they can run with."""
    with contextlib.ExitStack() as stack:
        yield {wave: stack.enter_context(operators.Operators(operators.built(), wave)).run
               for wave in operators.waves()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write results/onnx.json if nothing is wrong")
    options = parser.parse_args(arguments)
    if operators.built() is None:
        print("onnx_vectors: the target `operators` is not built: run scripts/course test first", file=sys.stderr)
        return 1
    with all_waves() as runs:
        record, problems = judge_all(runs)
    for problem in problems:
        print(problem, file=sys.stderr)
    if options.write and not problems:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
