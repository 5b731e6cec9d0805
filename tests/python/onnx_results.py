"""What a conversion of onnx_operators.py returns for a case of ONNX, and why it may refuse one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from differential import U, Want
from numpy import ndarray
from onnx_cases import Case


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
