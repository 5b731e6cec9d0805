"""Stages 1 to 3 against NumPy in float64, at random shapes and values; differential.py says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from differential import Drawn, Want, differences, kinds, report, shape, values  # noqa: E402
from operators import Operators, program, waves  # noqa: E402


@pytest.fixture(scope="module", params=waves(), ids=lambda wave: f"wave{wave}")
def operators(request: pytest.FixtureRequest) -> Iterator[Operators]:
    with Operators(program(), request.param) as running:
        yield running


def vector_add(rng: numpy.random.Generator) -> Drawn:
    """Exactly rounded: float64 holds the sum of two float32 with enough digits to round it once more."""
    extents = shape(rng, int(rng.integers(1, 4)), 9000, 0)
    a, b = (values(rng, extents, kind) for kind in kinds(rng, 2))
    want = (a.astype(float) + b.astype(float)).astype(numpy.float32)
    return Drawn({"a": a, "b": b}, {"c": Want(want)}, {"offset": int(rng.integers(4))})


CASES = {"vector_add": vector_add}


@pytest.mark.parametrize("name", CASES)
def test_operator(operators: Operators, name: str) -> None:
    wrong = differences(operators, name, CASES[name], 50)
    assert not wrong, report(wrong)
