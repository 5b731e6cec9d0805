"""The page of the operations: what step 8.2's program lists stands in docs/operations.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import operations
import pytest
from conftest import ROOT

PAGE = "# Operations\n\n<!-- operations -->\n<!-- end operations -->\n\nbehind\n"
TABLE = "| operation |\n|:--|\n| `add` |\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A page, and a program that lists one operation."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "operations.md").write_text(PAGE)
    lists(tmp_path, f"open(sys.argv[2], 'w').write({TABLE!r})")
    return tmp_path


def lists(repository: Path, line: str) -> None:
    program = repository / "build" / "cpu" / "stage8_framework" / "backends"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1] == '--operations'\n{line}\n")
    program.chmod(0o755)


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "scripts" / "operations.py", "--root", repository, *arguments],
                          capture_output=True, text=True, check=False)


def test_the_table_is_written_once(repository: Path) -> None:
    page = repository / "docs" / "operations.md"
    assert run(repository, "--check").returncode == 1 and page.read_text() == PAGE
    assert run(repository).returncode == 0
    assert f"<!-- operations -->\n\n{TABLE}\n<!-- end operations -->\n\nbehind\n" in page.read_text()
    assert run(repository, "--check").returncode == 0
    lists(repository, f"open(sys.argv[2], 'w').write({TABLE.replace('add', 'sub')!r})")
    assert "run `scripts/operations.py`" in run(repository, "--check").stderr


@pytest.mark.parametrize("line, words", [
    ("sys.exit('backends: no device')", "operations: backends: no device"),
    ("pass", "wrote no table")])
def test_a_program_that_lists_nothing_is_said(repository: Path, line: str, words: str) -> None:
    lists(repository, line)
    done = run(repository)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_a_page_without_a_place_for_the_table_is_said(repository: Path) -> None:
    (repository / "docs" / "operations.md").write_text("# Operations\n")
    assert "has no line <!-- operations -->" in run(repository).stderr


def test_the_page_of_the_course_is_what_the_program_lists() -> None:
    program = operations.built(ROOT)
    if program is None:
        pytest.skip("the target `backends` is not built: run scripts/course test first")
    table = operations.listed(program)
    assert f"<!-- operations -->\n\n{table}\n<!-- end operations -->" in (ROOT / operations.PAGE).read_text()
