"""ONNX's node vectors on the course's operators: the verdict on each; no test itself.

    tests/python/onnx_vectors.py            runs them all, and says what is wrong
    tests/python/onnx_vectors.py --write    writes the verdicts to results/onnx.json too, if nothing is

Each operator of the course that onnx_operators.py has for a case gives it a verdict: it passes, or the
operator does not compute it and says why. A case passes if every version, with waves of 32 and of 64, agrees
twice: with ONNX's outputs within ONNX's tolerance, and with the result in float64 within a bound that follows
from the operation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
from collections.abc import Iterator

import numpy
import onnx
import operators
from conftest import ROOT
from differential import Want, difference
from onnx_cases import Case, Node, nodes
from onnx_operators import CONVERSIONS, Conversion
from onnx_results import Output, Reason, Run, Unsupported, double

RECORD = ROOT / "results" / "onnx.json"
PASSED = "passed"
MAY_FUSE = platform.machine() != "x86_64" or operators.waves() == [None]  # GPUs and ARM64, not x86-64
RELATIVE, ABSOLUTE = 1e-3, 1e-7  # what ONNX's own backend tests allow

# Versions that ONNX's tolerance does not fit, by case, each with the reason. Their own bound must hold all
# the same. Where a compiler may fuse products and sums, last digits differ: an exception may not be needed there.
EXCEPTIONS = {
    ("convtranspose", "winograd"):
        "its transforms leave 1e-6 in place of a 0, beside sums up to 36; ONNX allows 1e-7 there",
}


def wrong_with(name: str, output: Output, expected: numpy.ndarray) -> Iterator[str]:
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
        elif exception and not found and not MAY_FUSE:
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
    return next(iter(found), Reason.NOTHING.value), problems


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write results/onnx.json if nothing is wrong")
    options = parser.parse_args(arguments)
    if operators.built() is None:
        print("onnx_vectors: the target `operators` is not built: run scripts/course test first",
              file=sys.stderr)
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
