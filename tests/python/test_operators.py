"""The program behind the differential tests, and the comparison that judges what it answers."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from differential import Drawn, Want, affine, difference, differences, seed, shape, sums  # noqa: E402
from operators import Operators, Refused, program  # noqa: E402

POISON = numpy.array(0xFFFFFFFF, numpy.uint32).view(numpy.float32)
SQUARE = numpy.ones((3, 3))


@pytest.fixture(scope="module")
def operators() -> Iterator[Operators]:
    with Operators(program()) as running:
        yield running


# ---- The program ----------------------------------------------------------------------------------


def test_every_version_answers(operators: Operators) -> None:
    found = operators.run("vector_add", {"a": SQUARE, "b": SQUARE}, offset=1)
    assert {"naive", "vectorized"} <= set(found)
    for outputs in found.values():
        assert outputs["c"].dtype == numpy.float32 and outputs["c"].tolist() == (2 * SQUARE).tolist()


def test_nan_and_infinity_travel(operators: Operators) -> None:
    a = numpy.array([[numpy.nan, numpy.inf, -0.0], [1e-45, -numpy.inf, 3e38]], numpy.float32)
    out = operators.run("transpose", {"a": a})["naive"]["out"]
    assert out.tobytes() == a.T.tobytes()


@pytest.mark.parametrize("name, inputs, attributes, why", [
    ("no_such", {}, {}, 'there is no operator "no_such"'),
    ("vector_add", {"a": SQUARE}, {}, "there is no input b"),
    ("vector_add", {"a": SQUARE, "b": SQUARE[0]}, {}, "b has the shape [3], not [3, 3]"),
    ("vector_add", {"a": SQUARE, "b": SQUARE}, {"offset": 4}, "the offset is 4, not 0 to 3"),
    ("scale", {"x": SQUARE}, {"alpha": "1x"}, 'alpha is not a number: "1x"'),
    ("scale", {"x": SQUARE}, {"in_place": 0.5}, "in_place is not an integer from 0 to 1e15: 0.5"),
    ("transpose", {"a": SQUARE[0]}, {}, "a has the shape [3], not 2 axes"),
    ("gemv", {"a": SQUARE, "x": SQUARE[0, :2]}, {}, "x has the shape [2], not [3]"),
    ("gemv", {"a": SQUARE, "x": SQUARE[0]}, {"beta": 1}, "there is no input y"),
    ("gemm", {"a": SQUARE[:, :2], "b": SQUARE}, {}, "a and b differ in K"),
    ("gemm", {"a": SQUARE, "b": SQUARE}, {"transpose_a": 1, "transpose_b": 1},
     "one of a and b may be transposed, not both"),
    ("gemm_mixed", {"a": SQUARE, "b": SQUARE}, {"type": "int8"}, "type is not fp16, bf16 or tf32"),
    ("cross_entropy", {"logits": SQUARE, "labels": [0, 1, 3]}, {}, "label 3 is not in [0, 3)"),
    ("cross_entropy", {"logits": SQUARE, "labels": [0, 1, -1]}, {}, "label -1 is not in [0, 3)"),
    ("cross_entropy", {"logits": SQUARE, "labels": [0, 1, 0.5]}, {}, "a label is not an integer: 0.500000"),
    ("cross_entropy", {"logits": SQUARE[:, :0], "labels": [0, 0, 0]}, {}, "there is no class")])
def test_what_no_contract_allows_is_refused(operators: Operators, name: str, inputs: dict, attributes: dict,
                                            why: str) -> None:
    with pytest.raises(Refused) as refused:
        operators.run(name, inputs, **attributes)
    assert str(refused.value) == why


def test_a_program_that_died_is_said_and_started_anew(operators: Operators) -> None:
    case = {"a": SQUARE, "b": SQUARE}
    operators.run("vector_add", case)
    operators._process.kill()
    operators._process.wait()
    with pytest.raises(RuntimeError, match="vector_add: failed: it ended with -9"):
        operators.run("vector_add", case)
    assert operators.run("vector_add", case)


def test_bad_requests_are_one_line_each() -> None:
    done = subprocess.run([program()], input="\nvector_add a b c\nvector_add none out\n", capture_output=True,
                          text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == ""
    assert lines[0] == lines[1] == "refused: a request is OPERATOR IN.safetensors OUT.safetensors"
    assert lines[2].startswith("failed: none cannot be opened")


def test_bad_arguments_and_settings_are_one_line_and_exit_2() -> None:
    for arguments, variables in ([["--no"], {}], [["--list", "x"], {}], [[], {"HIP_CPU_WAVE": "7"}]):
        if variables and program().parent.parent.name != "cpu":
            continue
        done = subprocess.run([program(), *arguments], env={**os.environ, **variables}, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=60)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, arguments


# ---- The cases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_what_the_axes_that_are_not_zero_span_is_never_large(axes: int) -> None:
    rng = numpy.random.default_rng(axes)
    drawn = [shape(rng, axes, 60000, 0) for _ in range(3000)]
    assert all(math.prod(one for one in extents if one) <= 60000 for extents in drawn)
    assert any(0 in extents for extents in drawn) and all(len(extents) == axes for extents in drawn)


# ---- The comparison -------------------------------------------------------------------------------


def array(*values: float) -> numpy.ndarray:
    return numpy.array(values, numpy.float32)


@pytest.mark.parametrize("got, want, bound", [
    ([1.0, -2.0], [1.0, -2.0], 0), ([1.0], [1.5], 0.5), ([0.0], [-0.0], 0),
    ([numpy.nan, numpy.inf, -numpy.inf], [numpy.nan, numpy.inf, -numpy.inf], 0),
    ([numpy.inf, -numpy.inf], [1e39, -1e39], 0),  # beyond float32's largest number
    ([numpy.nan, 7.0], [1.0, numpy.inf], numpy.inf)])  # may overflow on the way
def test_right_answers_pass(got: list, want: list, bound: float) -> None:
    assert difference(array(*got), Want(numpy.array(want), bound)) == ""


@pytest.mark.parametrize("got, want, bound", [
    ([1.0], [1.5], 0.49), ([numpy.nan], [1.0], 10), ([numpy.inf], [1.0], 10), ([1.0], [numpy.nan], 10),
    ([1.0], [numpy.inf], 10), ([-numpy.inf], [numpy.inf], 10), ([numpy.nan], [numpy.inf], 10),
    ([numpy.inf], [numpy.nan], numpy.inf), ([-numpy.inf], [1e39], 0), ([numpy.inf], [3e38], 1e30),
    ([POISON], [numpy.nan], numpy.inf), ([1.0], [1.0, 2.0], 0)])
def test_wrong_answers_do_not(got: list, want: list, bound: float) -> None:
    assert difference(array(*got), Want(numpy.array(want), bound))


def test_a_difference_says_where_it_is_and_what_repeats_it(operators: Operators,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_CASES", raising=False)
    drawn = Drawn({"a": array(1, 2), "b": array(3, 4)}, {"c": Want(array(4, 7))}, {"offset": 2})
    wrong = differences(operators, "vector_add", lambda _: drawn, 1)
    assert len(wrong) == len(operators.run("vector_add", drawn.inputs))
    assert wrong[1] == ("naive: c 1 of 2 wrong: at [1] got 6.0, want 7.0, bound 0; vector_add, wave None, "
                        f"COURSE_SEED={seed()}, case 0: a [2], b [2], offset=2")


def test_a_missing_term_is_beyond_the_bound_of_a_sum() -> None:
    rng = numpy.random.default_rng(5)
    a, b = (rng.standard_normal((1, 300)).astype(numpy.float32) for _ in range(2))
    result = sums(a, b.T)
    terms = numpy.sort(numpy.abs(a * b))[0]
    assert 0 < result.bound[0, 0] < terms[150]
    want = affine(result, 3.0, 2.0, array(5)[None])
    assert want.value[0, 0] == 3 * result.value[0, 0] + 10 and want.bound[0, 0] < 3 * terms[150]


def test_sums_of_integers_are_exact_and_sums_that_overflow_are_not_judged() -> None:
    integers = numpy.full((1, 9), 3.0)
    assert sums(integers, integers.T).bound[0, 0] == 0
    assert affine(sums(integers, integers.T), 2.0, -1.0, integers[:, :1]).bound[0, 0] == 0
    assert numpy.isposinf(sums(1e20 * integers, 1e20 * integers.T).bound[0, 0])
    assert affine(sums(integers, integers.T), 0.0, 1.0, numpy.array([[numpy.nan]])).value != 0  # NaN stays
