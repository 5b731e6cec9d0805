"""scripts/choices.py."""

from __future__ import annotations

import json
from pathlib import Path

import choices
import pytest
from conftest import ROOT

HEADER = "stage3_ml_ops/02_softmax/choices.h"
RESULT = "results/h200/softmax.json"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in (HEADER, RESULT):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


def change(repository: Path, version: str, key: str, value: object) -> None:
    path = repository / RESULT
    report = json.loads(path.read_text())
    for row in report["tables"][0]["rows"]:
        if row["name"] == version:
            row[key] = value
    path.write_text(json.dumps(report))


def test_committed_tables_agree_with_the_results() -> None:
    assert choices.main(["--check"]) == 0


def test_a_stale_table_is_refused_and_made_anew(repository: Path, capsys) -> None:
    assert choices.main(["--check"], repository) == 0
    before = (repository / HEADER).read_text()
    change(repository, "online", "ms", 1e-3)
    assert choices.main(["--check"], repository) == 1
    assert HEADER in capsys.readouterr().err
    assert (repository / HEADER).read_text() == before
    assert choices.main([], repository) == 0
    assert "{8192, 8192, Choice::online}," in (repository / HEADER).read_text()
    assert choices.main(["--check"], repository) == 0


def test_a_version_without_a_time_is_refused(repository: Path, capsys) -> None:
    change(repository, "online", "name", "offline")
    assert choices.main(["--check"], repository) == 2
    assert "no time of online" in capsys.readouterr().err


def test_a_block_without_an_end_is_refused(repository: Path) -> None:
    path = repository / HEADER
    path.write_text(path.read_text().replace("// end choices", "// the end"))
    assert choices.main(["--check"], repository) == 2
