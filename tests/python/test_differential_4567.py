"""Stages 4 to 7 against NumPy in float64, at random shapes and values; differential.py says how, and
differential_layers.py, differential_images.py and differential_text.py what each operator must compute.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from differential import (  # noqa: E402
    Draw, Drawn, Known, U, Want, accepted_mistakes, differences, differences_of, report)
from differential_images import conv2d, conv2d_backward, maxpool, maxpool_backward  # noqa: E402
from differential_layers import (  # noqa: E402
    activation_backward, cross_entropy_backward, dense, dense_backward, mlp_forward, optimizer,
    softmax_backward)
from differential_text import (  # noqa: E402
    ONLY_FORWARD, attention, embedding, embedding_backward, layernorm, layernorm_backward, parameter_shapes,
    transformer_block)
from operators import Operators, Refused, program, waves  # noqa: E402


@pytest.fixture(scope="module", params=waves(), ids=lambda wave: f"wave{wave}")
def operators(request: pytest.FixtureRequest) -> Iterator[Operators]:
    with Operators(program(), request.param) as running:
        yield running


ONES, ROW, CELL = numpy.ones((3, 3)), numpy.ones(3), numpy.ones((1, 1, 1, 1))
NAN_LAST = numpy.where(numpy.arange(4)[:, None] < 3, 1.0, numpy.nan) * numpy.ones((1, 1, 4, 4))

CASES: dict[str, Draw] = {
    of.__name__: of for of in (
        dense, mlp_forward, dense_backward, activation_backward, softmax_backward, cross_entropy_backward,
        optimizer, conv2d, conv2d_backward, maxpool, maxpool_backward, embedding, embedding_backward,
        layernorm, layernorm_backward, attention, transformer_block)}


def nan_behind() -> Drawn:
    """Two tokens, of which the second is NaN; the first sees only itself."""
    x = numpy.ones((1, 2, 2)) * numpy.array([1.0, 2.0])
    given = {name: numpy.zeros(of) for name, of in parameter_shapes(2).items()}
    y = x.copy()
    y[:, 1] = x[:, 1] = numpy.nan
    return Drawn({"x": x, "grad_y": numpy.zeros(x.shape), **given}, {"y": Want(y)}, {"heads": 1})


KNOWN: list[Known] = []


@pytest.mark.parametrize("name", CASES)
def test_operator(operators: Operators, name: str) -> None:
    wrong = differences(operators, name, CASES[name], 20, KNOWN)
    assert not wrong, report(wrong)


@pytest.mark.parametrize("name, case", [
    pytest.param("attention", Drawn(
        {"q": numpy.ones((1, 1, 4, 4)), "k": numpy.ones((1, 1, 4, 4)), "v": NAN_LAST},
        {"out": Want(numpy.where(NAN_LAST == 1, 1.0, numpy.nan), 1e-5)}, {"causal": 1, "scale": 1.0}),
        id="attention: a query does not see a NaN behind it"),
    pytest.param("attention", Drawn(
        {"q": numpy.full((1, 1, 3, 1), 1.1e10), "k": numpy.full((1, 1, 2, 1), 1.3e10),
         "v": numpy.ones((1, 1, 2, 1))},
        {"out": Want(numpy.ones((1, 1, 3, 1)), 1e-5)}, {"causal": 0, "scale": 1.0}),
        id="attention: scores of 1e20"),
    pytest.param("attention", Drawn(
        {"q": CELL, "k": numpy.array([0, -numpy.inf]).reshape(1, 1, 2, 1), "v": numpy.ones((1, 1, 2, 1)),
         "grad_out": CELL},
        lambda version: {} if version in ONLY_FORWARD else {
            "grad_k": Want(numpy.zeros((1, 1, 2, 1)), 1e-5),
            "grad_v": Want(numpy.array([1.0, 0.0]).reshape(1, 1, 2, 1), 1e-5)}, {"causal": 0, "scale": 1.0}),
        id="attention: an infinite key, and queries behind the last"),
    pytest.param("transformer_block", nan_behind(), id="transformer_block: a token behind is NaN"),
    pytest.param("activation_backward", Drawn(
        {"x": numpy.full((1, 1), 1e20), "y": numpy.full((1, 1), 1e20), "grad_y": numpy.ones((1, 1))},
        {"grad_x": Want(numpy.ones((1, 1)), 2 * U)}, {"activation": "gelu_tanh"}),
        id="gelu_tanh: a slope where the cube overflows"),
])
def test_what_was_once_wrong(operators: Operators, name: str, case: Drawn) -> None:
    assert not differences_of(operators, name, case)


@pytest.mark.parametrize("known", [
    pytest.param(one, marks=pytest.mark.xfail(strict=True, reason=one.reason), id=one.operator)
    for one in KNOWN])
def test_known(operators: Operators, known: Known) -> None:
    assert not differences_of(operators, known.operator, known.example)


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_refused(name: str) -> None:
    with Operators(program(), waves()[0]) as operators:
        accepted = accepted_mistakes(operators, name, CASES[name], 25)
    assert not accepted, report(accepted)


@pytest.mark.parametrize("name, inputs, attributes, why", [
    ("dense", {"x": ONES, "w": ONES, "bias": ONES}, {}, "bias has the shape [3, 3], not [3]"),
    ("dense", {"x": ONES, "w": ONES, "bias": ROW}, {"activation": "tanh"},
     "there is no activation tanh here"),
    ("dense_backward", {"grad_y": ONES, "x": ONES, "w": ONES}, {"beta": 1}, "there is no input grad_w"),
    ("cross_entropy_backward", {"logits": ONES, "p": ONES, "labels": 3 * ROW}, {},
     "a label is none of the classes"),
    ("optimizer", {"w": ROW, "grad_w": ONES, "m": ROW, "v": ROW}, {"tensors": "1 1"},
     "the tensors' sizes do not add up to n"),
    ("optimizer", {"w": ROW, "grad_w": ONES, "m": ROW, "v": ROW}, {"epsilon": 0}, "epsilon must be above 0"),
    ("conv2d", {"x": CELL, "w": numpy.ones((1, 1, 2, 1))}, {},
     "conv2d: a filter of 2x1 does not fit an image of 1x1 with padding 0x0"),
    ("maxpool_backward", {"grad_y": CELL, "argmax": CELL}, {"H": 2, "W": 1, "window_w": 1, "pad_h": 1},
     "grad_y has the shape [1, 1, 1, 1], not [1, 1, 2, 1]"),
    ("maxpool_backward", {"grad_y": CELL, "argmax": 0 * CELL}, {"H": 1, "W": 1, "pad_h": 1, "pad_w": 1},
     "an argmax lies outside the image"),
    ("embedding", {"tokens": ONES, "token_table": ONES, "position_table": ONES[:1]}, {},
     "the position table has too few rows"),
    ("layernorm", {"x": ONES, "gain": ROW, "bias": ROW}, {"eps": -1}, "eps is negative or NaN"),
    ("attention", {"q": numpy.ones((1, 1, 1, 257)), "k": CELL, "v": CELL}, {},
     "k has the shape [1, 1, 1, 1], not [1, 1, 1, 257]"),
    ("attention", {"q": CELL, "k": CELL, "v": CELL}, {"scale": 0}, "the scale must be above 0 and finite")])
def test_what_no_contract_allows_is_refused(operators: Operators, name: str, inputs: dict, attributes: dict,
                                            why: str) -> None:
    with pytest.raises(Refused) as refused:
        operators.run(name, inputs, **attributes)
    assert str(refused.value) == why
