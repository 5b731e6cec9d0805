"""What a step's own choice of a version is, against what the committed tables measured."""

import json

import pytest
from conftest import ROOT


def slower_than_the_fastest(rows: list[dict], chosen: str) -> bool:
    """Whether the median of this version is beyond what the fastest one took in nine of ten runs."""
    versions = {row["name"]: row for row in rows if not row["peer"]}
    fastest = min(versions.values(), key=lambda row: row["ms"])
    return versions[chosen]["ms"] > fastest["ms_p90"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/*/dense_backward.json")),
                         ids=lambda path: path.parent.name)
def test_the_backward_pass_of_a_layer_forks_because_that_is_faster(path):
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    assert tables
    for table in tables:  # backward() takes this version wherever there are branches
        assert not slower_than_the_fastest(table["rows"], "concurrent"), table["problem"]


def test_a_choice_that_loses_is_refused():
    rows = [{"name": "a", "peer": False, "ms": 1.0, "ms_p90": 1.1},
            {"name": "b", "peer": False, "ms": 1.2, "ms_p90": 1.3},
            {"name": "library", "peer": True, "ms": 0.5, "ms_p90": 0.6}]
    assert not slower_than_the_fastest(rows, "a")
    assert slower_than_the_fastest(rows, "b")
