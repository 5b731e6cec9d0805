"""ONNX's node vectors on the course's operators: what passes, what is not supported, and that nothing changes
unseen.

onnx_vectors.py says how a vector becomes a call of an operator, and results/onnx.json has every case's
verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata, util

import pytest
from conftest import ROOT, absent

for package in ("numpy", "safetensors", "onnx"):
    if util.find_spec(package) is None:
        absent(f"{package} is not installed: pip install -r scripts/requirements.txt")

RECORD = json.loads((ROOT / "results" / "onnx.json").read_text(encoding="utf-8"))
if metadata.version("onnx") != RECORD["onnx"]:
    absent(f"onnx {metadata.version('onnx')} is installed, and results/onnx.json is of {RECORD['onnx']}: "
           "pip install -r scripts/requirements.txt")

import numpy  # noqa: E402  the imports need what was just looked for
import operators  # noqa: E402

if operators.built() is None:
    absent("the target `operators` is not built: run scripts/course test first")

from onnx_cases import nodes  # noqa: E402
from onnx_operators import CONVERSIONS  # noqa: E402
from onnx_results import Reason, Results, Run  # noqa: E402
from onnx_vectors import PASSED, Runs, all_waves, judge_all, judge_node  # noqa: E402


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with all_waves() as running:
        yield running


@pytest.fixture(scope="module")
def judged(runs: Runs) -> tuple[dict, list[str]]:
    return judge_all(runs)


def test_what_is_supported_is_right(judged: tuple[dict, list[str]]) -> None:
    problems = judged[1]
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems[:20])


def verdicts_of(record: dict) -> dict[tuple[str, str], str]:
    """By case and step."""
    given = {(name, step): verdict
             for steps in record["verdicts"].values() for step, verdicts in steps.items()
             for verdict, names in verdicts.items() for name in names}
    given |= {(name, ""): f"not in the course: {operator}" for operator, names in record["missing"].items()
              for name in names}
    return given | {(name, ""): "a graph" for name in record["graphs"]}


def test_no_verdict_changes_unseen(judged: tuple[dict, list[str]]) -> None:
    now, before = verdicts_of(judged[0]), verdicts_of(RECORD)
    changes = [f"{name} {step}: {before.get((name, step), 'no verdict')}, now {now.get((name, step), 'none')}"
               for name, step in sorted({*now, *before}) if now.get((name, step)) != before.get((name, step))]
    assert not changes, "\n".join([*changes, "if that is right: tests/python/onnx_vectors.py --write"])
    assert judged[0] == RECORD


def test_every_case_is_judged_once(judged: tuple[dict, list[str]]) -> None:
    names = [name for name, _ in verdicts_of(judged[0])]
    assert sorted(set(names)) == sorted(node.name for node in nodes())
    assert len(set(names)) == 1615
    reasons = {verdict for steps in judged[0]["verdicts"].values() for verdicts in steps.values()
               for verdict in verdicts}
    assert reasons <= {PASSED, *(reason.value for reason in Reason)}


def spoiled(run: Run, place: int) -> Run:
    """`run`, with one version's results off at one place: by 2e-3, and by 2e-3 of the largest."""
    def run_and_spoil(*arguments: object, **attributes: object) -> Results:
        results = run(*arguments, **attributes)
        outputs = results[sorted(results)[-1]]
        for name, array in outputs.items():
            if array.size:
                flat = numpy.array(array).reshape(-1)
                flat[place % flat.size] += numpy.float32(2e-3 * (1 + abs(flat).max()))
                outputs[name] = flat.reshape(array.shape)
        return results
    return run_and_spoil


@pytest.mark.parametrize("operator", sorted(CONVERSIONS))
def test_a_wrong_result_is_refused(operator: str, runs: Runs) -> None:
    """In the first and in the last element of an output, in every case that passes."""
    wave, run = next(iter(runs.items()))
    for node in (node for node in nodes() if node.operator == operator):
        if next(node.cases()).inputs[0].size > 2000:
            continue  # smaller ones stand for it
        for step, conversion in CONVERSIONS[operator]:
            for place in (0, -1):
                verdict, wrong = judge_node(node, conversion, {wave: spoiled(run, place)})
                assert wrong or verdict != PASSED, f"{node.name} by {step}, place {place}"
