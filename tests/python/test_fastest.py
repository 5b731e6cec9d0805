"""What a step's own choice of a version is, against what the committed tables measured."""

import json
import re

import pytest
from conftest import ROOT

DENSE_BACKWARD = ROOT / "stage5_training" / "01_dense_backward" / "dense_backward.h"


def slower_than_the_fastest(rows: list[dict], chosen: str) -> bool:
    """Whether the median of this version is beyond what the fastest one took in nine of ten runs."""
    versions = {row["name"]: row for row in rows if not row["peer"]}
    fastest = min(versions.values(), key=lambda row: row["ms"])
    return versions[chosen]["ms"] > fastest["ms_p90"]


def chosen_by_backward(problem: str, limit: float) -> str:
    """The version that dense_backward::backward() takes where there are branches."""
    batch, inputs, outputs = map(int, re.search(r"batch (\d+), (\d+) -> (\d+)", problem).groups())
    return "concurrent" if 2 * batch * inputs * outputs >= limit else "weight_slices"


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/*/dense_backward.json")),
                         ids=lambda path: path.parent.name)
def test_the_backward_pass_of_a_layer_forks_where_that_is_faster(path):
    limit = float(re.search(r"kConcurrentOperations = (\S+);", DENSE_BACKWARD.read_text(encoding="utf-8"))[1])
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    assert tables
    for table in tables:
        chosen = chosen_by_backward(table["problem"], limit)
        assert not slower_than_the_fastest(table["rows"], chosen), (table["problem"], chosen)


def test_a_choice_that_loses_is_refused():
    rows = [{"name": "a", "peer": False, "ms": 1.0, "ms_p90": 1.1},
            {"name": "b", "peer": False, "ms": 1.2, "ms_p90": 1.3},
            {"name": "library", "peer": True, "ms": 0.5, "ms_p90": 0.6}]
    assert not slower_than_the_fastest(rows, "a")
    assert slower_than_the_fastest(rows, "b")
