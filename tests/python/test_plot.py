"""scripts/course plot: every kind of picture, series that can't be drawn, and the command itself."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import plot

LOSS = {"columns": ["epoch", "graph", "wave"], "rows": [[1, 1.0, 1.1], [2, 0.5, 0.4]]}
GRID = {"columns": ["x", "y", "class", "probability"],
        "rows": [[x, y, (x + y) % 3, 0.9] for y in range(4) for x in range(5)]}
POINTS = {"columns": ["x", "y", "class"], "rows": [[0.5, 1, 0], [2, 2.5, 1], [3, 1, 2]]}
SERIES = {
    "spiral_loss": LOSS,
    "spiral_boundary": GRID,
    "spiral_points": POINTS,
    "blobs_points": POINTS,
    "confusion": {"columns": ["0", "1"], "rows": [[980, 0], [7, 1013]]},
    "worst": {"columns": ["label", "prediction", "confidence", *(f"p{i}" for i in range(9))],
              "rows": [[3, 5, 0.99, *range(9)], [1, 7, 0.75, *range(9)]]},
    "predictions": {"columns": ["total", "predicted"], "rows": [[1, 1.2], [900, 850], [30, 33]]},
    "training": {"columns": ["epoch", "loss", "accuracy"], "rows": [[1, 0.3, 96], [2, 0.2, 97]]},
}
PICTURES = ["spiral_loss", "spiral_boundary", "blobs_points", "confusion", "worst", "predictions",
            "training"]


def size_of(file: Path) -> tuple[int, int]:
    """Width and height of a PNG file."""
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:])


def test_every_kind_of_series_gets_its_picture(report: dict, tmp_path: Path):
    report["series"] = SERIES
    assert plot.pictures_of(report) == PICTURES
    files = plot.draw(report, tmp_path)
    assert [file.name for file in files] == [f"vector_add_{name}.png" for name in PICTURES]
    assert sorted(tmp_path.iterdir()) == sorted(files)  # and no temporary file
    for file in files:
        assert size_of(file)[0] == round(6.4 * plot.DPI)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("loss", [[1, 0.5, None]]),
        ("loss", [[1, None, None], [2, None, None]]),
        ("loss", [[1, 0, -1], [2, 0, -1]]),  # no logarithm
        ("points", [[1, 2, 0]]),
        ("boundary", [[0, 0, 1, 0.5]]),
        ("boundary", [[0, 0, 1, None], [1, 0, 9, 1.0]]),
        ("confusion", [[0]]),
        ("worst", [[3, 5, 1.0, 0]]),
        ("predictions", [[1, 1]]),
        ("predictions", [[None, 2]]),
        ("anything", [[1], [2]]),
        ("anything", [[1, None, 2]]),
    ],
)
def test_series_at_the_edge_are_drawn_too(report: dict, tmp_path: Path, name, rows):
    columns = [f"c{i}" for i in range(len(rows[0]))]
    report["series"] = {name: {"columns": columns, "rows": rows}}
    (file,) = plot.draw(report, tmp_path)
    assert min(size_of(file)) > 100


def test_no_series_and_empty_ones_get_no_picture(report: dict, tmp_path: Path):
    assert plot.draw(report, tmp_path) == []
    report["series"] = {"loss": {"columns": ["epoch", "loss"], "rows": []}}
    assert plot.draw(report, tmp_path) == []


@pytest.mark.parametrize(
    ("series", "line"),
    [
        ([], "'series' is not an object"),
        ({"loss": {"columns": ["a"]}}, "series 'loss' has no columns and rows"),
        ({"loss": {"columns": ["a", 1], "rows": []}},
         "series 'loss': the columns are not a list of names"),
        ({"loss": {"columns": ["a", "b"], "rows": 7}}, "series 'loss': the rows are not a list"),
        ({"loss": {"columns": ["a", "b"], "rows": [[1, 2], [1]]}},
         "series 'loss': row 1 has not 2 values"),
        ({"loss": {"columns": ["a", "b"], "rows": [[1, "2"]]}},
         "series 'loss': row 0 holds what is no number"),
        ({"loss": {"columns": ["a"], "rows": [[1]]}},
         "series 'loss' has 1 columns, 2 are needed"),
        ({"confusion": {"columns": ["a", "b"], "rows": [[1, 2]]}},
         "series 'confusion' is no square: 1 rows, 2 columns"),
        ({"worst": {"columns": list("abcdefg") + ["h"], "rows": [[0] * 8]}},
         "series 'worst': 5 pixels are no square image"),
        ({"a/b": LOSS}, "series 'a/b': a name is letters, digits, '_' and '-'"),
    ],
)
def test_what_is_no_series_is_named(report: dict, series, line):
    report["series"] = series
    with pytest.raises(ValueError) as error:
        plot.series_of(report)
    assert str(error.value) == line


def test_curves_keep_their_gaps():
    assert plot._numbers([[1, 2], [3, None]], 0) == [1, 3]
    first, second = plot._numbers([[1, 2], [3, None]], 1)
    assert first == 2 and math.isnan(second)


# ---- The command -------------------------------------------------------------------------------


def write_report(machine: Machine, path: Path, report: dict, series: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**report, "series": series}), encoding="utf-8")
    return path


def drawing_calls(machine: Machine) -> list[str]:
    return [call for call in machine.calls() if "plot.py" in call]


def test_steps_are_built_run_and_drawn(machine: Machine, report: dict):
    machine.fake_venv()
    write_report(machine, machine.fakes / "report.json", report, {"loss": LOSS})
    done = machine.course("plot", "1.1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "vector_add prints its table" in done.stdout
    folder = machine.root / "build"
    (call,) = drawing_calls(machine)
    assert call.endswith(f"plot.py {folder / 'plots'} {folder / 'cpu/results/vector_add.json'}")


def test_results_of_earlier_runs_are_drawn(machine: Machine, report: dict):
    machine.fake_venv()
    write_report(machine, machine.root / "build/cpu/results/axpy.json", report, {})
    kept = write_report(machine, machine.root / "build/cpu/results/dot.json", report,
                        {"loss": LOSS})
    done = machine.course("plot", "--backend", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    (call,) = drawing_calls(machine)
    assert call.endswith(f"plots {kept}")
    other = write_report(machine, machine.root / "kept" / "a.json", report, {"loss": LOSS})
    assert machine.course("plot", "--json", str(other)).returncode == 0
    assert drawing_calls(machine)[1].endswith(f"plots {other}")
    assert not [call for call in machine.calls() if call.startswith("cmake --build")]


def test_what_can_not_be_drawn_is_one_line(machine: Machine, report: dict):
    def line_of(*arguments: str) -> str:
        done = machine.course("plot", *arguments)
        assert done.returncode == 2 and not drawing_calls(machine)
        return done.stderr

    machine.fake_venv()
    assert line_of("--backend", "cpu") == (
        "course: no results to draw are here yet: try `scripts/course plot 5.6`\n")
    assert line_of("1.1") == (
        "course: these steps write no series to draw; those that train do\n")
    assert line_of("1.1", "--json", "a.json") == (
        "course: either steps, which are run, or --json with files, which are read\n")
    assert line_of("--json", "nowhere.json").startswith("course: nowhere.json: ")
    plain = write_report(machine, machine.root / "plain.json", report, {})
    assert line_of("--json", str(plain)) == (
        f"course: {plain} has no series to draw: vector_add writes none\n")
    bad = write_report(machine, machine.root / "bad.json", report, {"loss": {}})
    assert line_of("--json", str(bad)) == (
        f"course: {bad}: series 'loss' has no columns and rows\n")


def test_a_program_that_fails_and_a_picture_that_fails(machine: Machine, report: dict):
    machine.fake_venv()
    write_report(machine, machine.fakes / "report.json", report, {"loss": LOSS})
    machine.variables["FAKE_FAILING"] = "axpy"
    assert machine.course("plot", "axpy").returncode == 1
    assert not drawing_calls(machine)
    assert machine.course("plot", "stage1").returncode == 1  # and what could be drawn is drawn
    assert len(drawing_calls(machine)) == 1
    machine.fake("python3", 'case "$*" in *plot.py*) echo "Traceback"; exit 1 ;; esac',
                 machine.root / ".venv" / "bin")
    done = machine.course("plot", "1.1")
    log = machine.root / "build" / "plot.log"
    assert (done.returncode, done.stderr) == (
        1, f"course: the pictures could not be drawn: see {log}\n")
    assert "Traceback" in log.read_text(encoding="utf-8")


def test_a_file_that_is_no_report_is_one_line(tmp_path: Path):
    path = tmp_path / "x.json"
    for text in ("{", "[" * 5000, "{}", '{"series": {"loss": 1.5}}'):
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "course_lib" / "plot.py"), str(tmp_path),
                               str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.startswith(f"plot: {path}: ")
        assert done.stderr.count("\n") == 1
