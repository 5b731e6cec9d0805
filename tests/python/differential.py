"""What the differential tests share: seeded cases, values that kernels get wrong, and the comparison.

A test draws cases of an operator, computes each in float64, and holds every version against that. Two
variables of the environment choose the cases:

    COURSE_SEED    where the drawing begins; default: from the commit
    COURSE_CASES   how many cases an operator gets for each size of a wave; default: what takes seconds
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy
from conftest import commit
from operators import Operators, Refused

U = 2.0 ** -24  # float32's unit roundoff: a rounded result is off by a factor of at most 1 ± U,
ETA = 2.0 ** -150  # or, below the normal range, by half of the smallest number, 2^-149
LARGEST = float(numpy.finfo(numpy.float32).max)
SHOWN = 8  # differences in one message

EDGES = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 61, 63, 64, 65, 127, 128, 129, 251, 255, 256, 257,
         509, 511, 512, 513, 1021, 1023, 1024, 1025, 2047, 2049, 4093, 4096, 4097, 8191]
SPECIAL = numpy.array([numpy.nan, numpy.inf, -numpy.inf, LARGEST, -LARGEST, 2.0 ** -149, -0.0],
                      numpy.float32)
KINDS = ("normal", "ties", "zeros", "denormal", "large", "huge", "small", "mixed", "special")


def seed() -> int:
    given = os.environ.get("COURSE_SEED")
    return int(given) if given else int(commit()[:15] or "0", 16)


def case_count(default: int) -> int:
    return int(os.environ.get("COURSE_CASES") or default)


# ---- Drawing --------------------------------------------------------------------------------------


def extent(rng: numpy.random.Generator, most: int, least: int = 1) -> int:
    """An extent in [least, most]: half of them beside a power of two, or a prime."""
    near = [edge for edge in EDGES if least <= edge <= most]
    if near and rng.random() < 0.5:
        return int(rng.choice(near))
    return int(numpy.exp(rng.uniform(numpy.log(least + 1), numpy.log(most + 2)))) - 1


def shape(rng: numpy.random.Generator, axes: int, elements: int, least: int = 1) -> tuple[int, ...]:
    """Extents, in a random order, whose product is at most `elements`. With least = 0 one in 25 of them is
    0, and the product of the others is at most that: some array may have these axes alone."""
    extents: list[int] = []
    for left in range(axes, 0, -1):
        if least == 0 and rng.random() < 0.04:
            extents.append(0)
            continue
        room = max(elements // math.prod(max(one, 1) for one in extents), 1)
        power = 1 if left == 1 else rng.uniform(0, 1)
        extents.append(extent(rng, max(int(room ** power), 1)))
    rng.shuffle(extents)
    return tuple(extents)


def values(rng: numpy.random.Generator, shape: tuple[int, ...], kind: str = "normal") -> numpy.ndarray:
    """float32 numbers of one of KINDS:

    normal    mean 0, variance 1            large     up to ±1e4
    ties      integers in [-3, 3]           huge      about ±1e30
    zeros     of both signs, and a few 1    small     about ±1e-30
    denormal  below the normal range        mixed     each element of another scale, 1e-38 to 1e38
    special   normal, and at a few places NaN, an infinity, the largest or smallest number, or -0
    """
    drawn = rng.standard_normal(shape)
    sign = rng.choice([-1.0, 1.0], shape)
    if kind == "ties":
        drawn = rng.integers(-3, 4, shape).astype(float)
    elif kind == "zeros":
        drawn = numpy.where(rng.random(shape) < 0.1, 1.0, 0.0) * sign
    elif kind == "denormal":
        drawn = sign * rng.integers(1, 2 ** 23, shape) * 2.0 ** -149
    elif kind == "large":
        drawn = rng.uniform(-1e4, 1e4, shape)
    elif kind == "huge":
        drawn = drawn * 1e30
    elif kind == "small":
        drawn = drawn * 1e-30
    elif kind == "mixed":
        drawn = sign * 10.0 ** rng.uniform(-38, 38, shape)
    result = numpy.array(drawn, numpy.float32)
    if kind == "special" and result.size:
        places = rng.integers(0, result.size, 1 + int(rng.exponential(2)))
        result.reshape(-1)[places] = rng.choice(SPECIAL, len(places))
    return result


def kinds(rng: numpy.random.Generator, inputs: int) -> list[str]:
    """A kind for each of an operator's inputs: of one in half of the cases, or each its own."""
    if rng.random() < 0.5:
        return [str(rng.choice(KINDS))] * inputs
    return [str(kind) for kind in rng.choice(KINDS, inputs)]


# ---- Comparing ------------------------------------------------------------------------------------


@dataclass
class Want:
    """An output in float64. |got - value| <= bound wherever value is finite; a NaN or an infinity must come
    back as such. An infinite bound says that float32 may overflow on the way: any number will do there, but
    something must have been written, and a NaN is a NaN still."""

    value: numpy.ndarray
    bound: numpy.ndarray | float = 0.0


@dataclass
class Drawn:
    """A case. `want` is what every version must compute, or a function of the version's name; of the outputs
    that it does not mention nothing is asked."""

    inputs: dict[str, numpy.ndarray]
    want: dict[str, Want] | Callable[[str], dict[str, Want]]
    attributes: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        shapes = [f"{name} {list(numpy.shape(value))}" for name, value in self.inputs.items()]
        return ", ".join(shapes + [f"{name}={value}" for name, value in self.attributes.items()])


Draw = Callable[[numpy.random.Generator], Drawn]


def difference(got: numpy.ndarray, want: Want) -> str:
    """What is wrong with an output; empty: nothing."""
    value = numpy.asarray(want.value, numpy.float64)
    if got.shape != value.shape:
        return f"has the shape {list(got.shape)}, not {list(value.shape)}"
    bound = numpy.broadcast_to(numpy.asarray(want.bound, numpy.float64), value.shape)
    unwritten = got.view(numpy.uint32) == 0xFFFFFFFF if got.size else numpy.zeros(got.shape, bool)
    with numpy.errstate(invalid="ignore", over="ignore"):
        exact = got.astype(numpy.float64)
        same = (exact == value) | (numpy.isnan(exact) & numpy.isnan(value))
        near = numpy.isfinite(exact) & numpy.isfinite(value) & (numpy.abs(exact - value) <= bound)
        # Rounded to float32, a number beyond the largest is the infinity of its sign.
        beyond = numpy.isfinite(value) & (numpy.abs(value) + bound > LARGEST) & (exact == numpy.copysign(
            numpy.inf, value))
        anything = numpy.isposinf(bound) & ~numpy.isnan(value)
    wrong = unwritten | ~(same | near | beyond | anything)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
    return (f"{int(wrong.sum())} of {wrong.size} wrong: at {list(at)} got {got[at]!s}"
            f"{' (never written)' if unwritten[at] else ''}, want {value[at]!s}, bound {bound[at]:.3g}")


@dataclass
class Known:
    """What is known to be wrong and is not mended yet: `versions` of an operator, in the cases where
    `applies`. differences() leaves them out. A test of `example` that is expected to fail, strictly, says
    when it is mended."""

    operator: str
    versions: tuple[str, ...]
    applies: Callable[[Drawn], bool]
    example: Drawn
    reason: str


def drawn(name: str, draw: Draw, count: int) -> Iterator[tuple[int, Drawn]]:
    """An operator's cases, numbered. Each is the same whatever comes before it."""
    start = seed()
    for number in range(count):
        rng = numpy.random.default_rng([start, zlib.crc32(name.encode()), number])
        with numpy.errstate(all="ignore"):
            case = draw(rng)
        yield number, case


def wanted(case: Drawn, version: str) -> dict[str, Want]:
    with numpy.errstate(all="ignore"):
        return case.want(version) if callable(case.want) else case.want


# Versions that add with atomics. A GPU may take what is below the normal range for 0 there, before and after
# each addition (PTX ISA, `red`: global memory, f32), and a compiler offers no other instruction.
ATOMIC = {
    "dot": ("atomic", "shared_tree", "wave_shuffle", "loads_in_flight"),
    "maxpool_backward": ("scatter_atomic",),
    "embedding_backward": ("backward_atomic",),
}


def flushing(want: Want, case: Drawn) -> Want:
    """With what atomic additions may lose below the normal range: at most once per element of an input, and
    once when they begin."""
    additions = 1 + max(numpy.size(of) for of in case.inputs.values())
    return Want(want.value, want.bound + 2 * additions * 2.0 ** -126)


def differences_of(operators: Operators, name: str, case: Drawn) -> dict[str, str]:
    """Runs a case. What is wrong, by version; under "" what is wrong with all: it was refused, or the program
    failed."""
    try:
        by_version = operators.run(name, case.inputs, **case.attributes)
    except (Refused, RuntimeError) as error:
        return {"": f"{type(error).__name__}: {error}"}
    wrong = {}
    for version, outputs in sorted(by_version.items()):
        wants = wanted(case, version)
        if operators.wave is None and version in ATOMIC.get(name, ()):
            wants = {output: flushing(want, case) for output, want in wants.items()}
        found = [(output, difference(outputs[output], want) if output in outputs else "is not there")
                 for output, want in wants.items()]
        if any(text for _, text in found):
            wrong[version] = ", ".join(f"{output} {text}" for output, text in found if text)
    return wrong


def differences(operators: Operators, name: str, draw: Draw, default: int,
                known: Sequence[Known] = ()) -> list[str]:
    """Draws and runs cases of an operator. A line for each version that is wrong, with what repeats it."""
    lines = []
    for number, case in drawn(name, draw, case_count(default)):
        expected = {version for one in known if one.operator == name and one.applies(case)
                    for version in one.versions}
        for version, wrong in differences_of(operators, name, case).items():
            if version not in expected:
                lines.append(f"{version}: {wrong}; {name}, wave {operators.wave}, COURSE_SEED={seed()}, "
                             f"case {number}: {case.text()}")
    return lines


def report(wrong: list[str]) -> str:
    """The message of a failed test."""
    more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    return "\n".join([f"{len(wrong)} differences", *wrong[:SHOWN], *more])


# ---- Mistakes: what the comparison must refuse ----------------------------------------------------


def mistakes(rng: numpy.random.Generator, got: numpy.ndarray, want: Want) -> dict[str, numpy.ndarray]:
    """Copies of a right output, each with one mistake where the comparison judges; those that it has elements
    for."""
    value = numpy.asarray(want.value, numpy.float64)
    bound = numpy.broadcast_to(numpy.asarray(want.bound, numpy.float64), value.shape)
    judged = numpy.isnan(value) | ~numpy.isposinf(bound)
    finite = judged & numpy.isfinite(value) & numpy.isfinite(got)
    planted = {}

    def plant(name: str, places: numpy.ndarray, wrong: float | numpy.ndarray) -> None:
        chosen = numpy.flatnonzero(places)
        if len(chosen):
            planted[name] = got.copy()
            planted[name].reshape(-1)[rng.choice(chosen)] = wrong

    plant("never written", judged, numpy.array(0xFFFFFFFF, numpy.uint32).view(numpy.float32))
    plant("NaN instead of a number", finite, numpy.nan)
    plant("infinity instead of a number", finite & (numpy.abs(value) + bound < LARGEST), numpy.inf)
    plant("0 instead of NaN", numpy.isnan(value), 0)
    for infinity in (numpy.inf, -numpy.inf):
        plant(f"{-infinity} instead of {infinity}", judged & (value == infinity), -infinity)
        plant(f"0 instead of {infinity}", judged & (value == infinity), 0)
    if finite.any():
        places, numbers = numpy.flatnonzero(finite), got.reshape(-1)
        least, most = places[numpy.argmin(numbers[places])], places[numpy.argmax(numbers[places])]
        largest = max(least, most, key=lambda i: abs(numbers[i]))
        with numpy.errstate(over="ignore"):
            wrong = numbers[largest] * numpy.float32(1.01)
        if wrong != numbers[largest]:
            planted[SLIGHT[0]] = got.copy()
            planted[SLIGHT[0]].reshape(-1)[largest] = wrong
        if numbers[least] != numbers[most]:
            planted[SLIGHT[1]] = got.copy()
            planted[SLIGHT[1]].reshape(-1)[[least, most]] = numbers[[most, least]]
    return planted


# A bound may hide these in one case, but not in all.
SLIGHT = ("the largest 1% larger", "two elements that have changed places")


def accepted_mistakes(operators: Operators, name: str, draw: Draw, count: int) -> list[str]:
    """The planted mistakes that the comparison lets pass: in any case, or in all if they are slight. Of slight
    ones, which not every case shows, more cases are drawn until all are refused. A line each."""
    accepted, slight, refused = [], set(), set()
    for number, case in drawn(name, draw, 5 * count):
        if number >= count and slight <= refused:
            break
        for version, outputs in operators.run(name, case.inputs, **case.attributes).items():
            for output, want in wanted(case, version).items():
                rng = numpy.random.default_rng(number)
                for mistake, wrong in mistakes(rng, outputs[output], want).items():
                    what = f"{version}/{output}: {mistake}"
                    if mistake in SLIGHT:
                        slight.add(what)
                    if difference(wrong, want):
                        refused.add(what)
                    elif mistake not in SLIGHT:
                        accepted.append(f"{what}; COURSE_SEED={seed()}, case {number}: {case.text()}")
    return accepted + sorted(slight - refused)


# ---- Bounds ---------------------------------------------------------------------------------------


def integers(*arrays: numpy.ndarray | float) -> bool:
    return all(bool((numpy.isfinite(x) & (x == numpy.rint(x))).all()) for x in map(numpy.asarray, arrays))


@dataclass
class Sums:
    """Sums of products: in float64, of the terms' magnitudes, and what a float32 result may be off."""

    value: numpy.ndarray
    absolute: numpy.ndarray  # of the finite terms
    bound: numpy.ndarray  # infinite where a partial sum may overflow
    terms: int


def sums(a: numpy.ndarray, b: numpy.ndarray, roundings: float = 1) -> Sums:
    """a @ b for float32 arrays. With K terms the bound is K U sum |a b|, whatever the order of the additions
    (Jeannerod and Rump: Improved error bounds for inner products in floating-point arithmetic. SIAM J. Matrix
    Anal. Appl. 34, 2013), times `roundings` where a term goes through more, and ETA for each product below
    the normal range. Sums of integers below 2^24 are exact."""
    a, b = numpy.asarray(a, numpy.float64), numpy.asarray(b, numpy.float64)
    terms = a.shape[-1]
    finite_a, finite_b = (numpy.where(numpy.isfinite(x), numpy.abs(x), 0) for x in (a, b))
    absolute = finite_a @ finite_b
    if numpy.isfinite(a).all() and numpy.isfinite(b).all():
        value = a @ b
    else:  # a BLAS may leave out what is multiplied by 0
        value = numpy.einsum("...ik,...kj->...ij", a, b)
    share = roundings * terms * U
    bound = share / (1 - share) * absolute + roundings * terms * ETA
    if integers(a, b):
        bound = numpy.where(absolute < 2 ** 24, 0, bound)
    return Sums(value, absolute, numpy.where(absolute * (1 + share) < LARGEST, bound, numpy.inf), terms)


def product(a: numpy.ndarray, b: numpy.ndarray) -> Want:
    """a @ b, with the bound of sums()."""
    result = sums(a, b)
    return Want(result.value, result.bound)


def affine(s: Sums, alpha: float, beta: float, before: numpy.ndarray | None) -> Want:
    """alpha s + beta y as the BLAS has it: s is 0 where alpha is 0 or nothing is summed, and y does not count
    where beta is 0. The error of s counts alpha times; each of the two products is rounded once, and so is
    their sum: 2 U of each of the two, and ETA for each."""
    if alpha == 0 or s.terms == 0:
        s, alpha = Sums(numpy.zeros_like(s.value), *[numpy.zeros_like(s.value)] * 2, s.terms), 1
    after = beta * numpy.asarray(before, numpy.float64) if beta != 0 else numpy.zeros_like(s.value)
    error = numpy.where(numpy.isfinite(s.bound), s.bound, 0)
    size = abs(alpha) * (s.absolute + error)
    size_after = numpy.where(numpy.isfinite(after), numpy.abs(after), 0)
    bound = abs(alpha) * error + 2 * U * (1 + 2 * U) * (size + size_after) + 2 * ETA
    if alpha == 1 and beta == 0:
        bound = error
    elif integers(alpha, beta, after):
        bound = numpy.where((error == 0) & (size + size_after < 2 ** 24), 0, bound)
    if numpy.isfinite(alpha):
        unknown = size + size_after > LARGEST * (1 - 4 * U)  # float32 may overflow on the way
    else:
        unknown = (numpy.abs(s.value) <= error) & (error > 0)  # infinity times a sum that may be 0
    unknown = unknown | numpy.isposinf(s.bound)
    sure = numpy.isnan(s.value) | numpy.isnan(after)  # what is unknown need not be NaN
    value = numpy.where(unknown & ~sure, 0, alpha * s.value + after)
    return Want(value, numpy.where(unknown, numpy.inf, bound))
