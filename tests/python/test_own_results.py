"""Results of one's own device: `run --save-results` keeps them, `bench --compare` holds others against them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from conftest import REPORT, ROOT, Machine
from course_lib import bench_file, contribute, results, slower
from course_lib.errors import CourseError
from test_bench import changed
from test_bench_command import Bench, workbench  # noqa: F401: a fixture

SLOWER = {"ms": 2.5, "ms_p10": 2.4, "ms_p90": 2.6}


# ---- Whether anything is slower ----------------------------------------------------------------


@pytest.mark.parametrize(("after", "line"), [
    ({}, "nothing is slower than in results/example: 2 times of versions compared, 0 faster"),
    ({"ms": 1.0, "ms_p10": 0.9, "ms_p90": 1.1},
     "nothing is slower than in results/example: 2 times of versions compared, 1 faster"),
    ({"ms": 2.08, "ms_p10": 2.07, "ms_p90": 2.09},  # of committed spreads from 1.9 to 2.2
     "nothing is slower than in results/example: 2 times of versions compared, 0 faster"),
    (SLOWER, "worse than in results/example: 1 of 2 times of versions, 0 faster; worst: 1.1 vector_add naive at "
             "n=2^28 float32: 2.50 ms instead of 2.00 ms, 1.25 times"),
    ({"ms": None, "status": "FAIL"}, "worse than in results/example: 1 of 2 times of versions, 0 faster; worst: "
                                     "1.1 vector_add naive at n=2^28 float32: fails now"),
    ({"ms": None, "status": "skipped", "skipped": "needs more"},
     "worse than in results/example: 1 of 2 times of versions, 0 faster; worst: 1.1 vector_add naive at "
     "n=2^28 float32: not timed now"),
])
def test_the_verdict_is_one_line(run: dict, after: dict, line: str):  # noqa: F811
    found = slower.verdict(run, changed(run, **after), "results/example")
    assert (found.line, found.is_worse) == (line, line.startswith("worse"))


@pytest.mark.parametrize(("ms", "is_worse"), [(2.09, False), (2.11, True)])
def test_less_than_runs_differ_by_themselves_is_not_slower(run: dict, ms: float, is_worse: bool):  # noqa: F811
    before = changed(run, ms=2.0, ms_p10=2.0, ms_p90=2.0)
    assert slower.verdict(before, changed(run, ms=ms, ms_p10=ms, ms_p90=ms), "x").is_worse == is_worse


def test_the_worst_comes_first_and_libraries_do_not_count(run: dict):  # noqa: F811
    after = changed(run, **SLOWER)
    rows = after["reports"][0]["tables"][0]["rows"]
    rows[0].update(ms=9.0, ms_p10=9.0, ms_p90=9.0)  # cuBLAS
    rows[2].update(ms=1.2, ms_p10=1.2, ms_p90=1.2)
    before = changed(run)
    before["reports"][0]["tables"][0]["rows"][2].update(ms=0.8, ms_p10=0.8, ms_p90=0.8)
    line = slower.verdict(before, after, "x").line
    assert "2 of 2 times" in line and "worst: 1.1 vector_add vectorised" in line and line.endswith("1.50 times")


def test_what_says_nothing_is_refused(run: dict):  # noqa: F811
    with pytest.raises(CourseError, match="--quick makes none"):
        slower.verdict(run, {**run, "quick": True}, "x")
    other = copy.deepcopy(run)
    other["reports"][0]["tables"][0]["problem"] = "n=2^4 float32"
    with pytest.raises(CourseError, match="x has no time of any version that was measured here"):
        slower.verdict(run, other, "x")


def test_the_committed_results_are_not_slower_than_themselves():
    [(name, committed)] = [one for one in slower.committed(ROOT / "results") if one[0].endswith("h200")]
    found = slower.against([(name, committed)], committed)
    assert not found.is_worse and "0 faster" in found.line
    after = copy.deepcopy(committed)
    row = next(row for report in after["reports"] for table in report["tables"] for row in table["rows"]
               if row["ms"] and not row["peer"])
    for key in ("ms", "ms_p10", "ms_p90"):
        row[key] = 3 * (row["ms_p90"] if key != "ms" else row["ms"])
    assert slower.against([(name, committed)], after).line.startswith(f"worse than in {name}: 1 of ")


def keep_results(bench: Bench, of_naive: dict, device: str = "Example GPU") -> None:
    report = copy.deepcopy(REPORT)
    report["device"]["name"] = device
    report["tables"][0]["rows"][1].update(of_naive)
    folder = bench.root / "results" / "example"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vector_add.json").write_text(json.dumps(report), encoding="utf-8")


@pytest.mark.parametrize(("committed", "code", "word"), [
    ({}, 0, "nothing is slower than in "),
    ({"ms": 3.0, "ms_p10": 2.9, "ms_p90": 3.1}, 0, "nothing is slower than in "),
    ({"ms": 1.0, "ms_p10": 0.9, "ms_p90": 1.1}, 1, "worse than in "),
])
def test_steps_are_measured_and_held_against_the_committed_results(
    workbench: Bench, tmp_path: Path, committed: dict, code: int, word: str  # noqa: F811
):
    keep_results(workbench, committed)
    done = workbench.bench("1.1", "--rounds", "1", "--compare", "--peers", "none", "--save",
                           str(workbench.root / "results" / "example"))  # compared with what was there before
    assert (done.returncode, done.stderr) == (code, "")
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{word}results/example: ") and "of versions" in last
    file = str(workbench.build / "bench" / "bench.json")  # and the same from a file
    keep_results(workbench, committed)
    done = workbench.course("bench", "--compare", file)
    assert (done.returncode, done.stdout) == (code, last + "\n")


def test_another_device_is_not_compared(workbench: Bench, tmp_path: Path, run: dict):  # noqa: F811
    keep_results(workbench, {}, device="Another GPU")
    done = workbench.bench("1.1", "--rounds", "1", "--peers", "none", "--compare")
    assert done.returncode == 3 and "details: " in done.stdout  # the results are not lost
    assert done.stderr == ("course: results/ has nothing of Example GPU (cuda) to compare with: `scripts/course run "
                           "--save-results` makes it\n")
    other = copy.deepcopy(run)
    other["environment"]["device"] = "Another GPU"
    for name, value in (("a", run), ("b", changed(run, **SLOWER)), ("c", other)):
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    done = workbench.course("bench", "--compare", str(tmp_path / "a"), str(tmp_path / "c"))
    assert done.returncode == 0 and "different devices" in done.stdout and "slower" not in done.stdout
    done = workbench.course("bench", "--compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 1 and "worse than in " in done.stdout.splitlines()[-1]
    (tmp_path / "b").write_text(json.dumps({**changed(run, **SLOWER), "quick": True}), encoding="utf-8")
    done = workbench.course("bench", "--compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0 and "slower" in done.stdout and "worse" not in done.stdout
    assert done.stdout.splitlines()[0] == "made with --quick: these times mean nothing"


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--compare", "--quick"], "--compare is for times, and --quick makes none"),
    (["--compare", "a", "b", "c"], "--compare takes two files at most"),
    (["1.1", "--compare", "a"], "--compare FILE and --merge read files"),
    (["--compare", "a"], "a: "),
])
def test_what_cannot_be_compared(workbench: Bench, arguments: list[str], complaint: str):  # noqa: F811
    done = workbench.bench(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and done.stderr.count("\n") == 1


# ---- What one's own device has reached ---------------------------------------------------------


def test_results_are_saved_under_the_devices_name(machine: Machine):
    done = machine.course("run", "1.1", "--save-results")
    assert (done.returncode, done.stderr) == (0, "")
    assert "results of 1 programs are in results/example-gpu: CONTRIBUTING.md says how" in done.stdout
    file = machine.root / "results" / "example-gpu" / "vector_add.json"
    report = results.load(file)
    assert report["environment"]["device"] == "Example GPU" and report["environment"]["processors"] > 0
    [again] = bench_file.load(file.parent)  # as `course report`, `bench --compare` and tables.py read it
    assert again["reports"][0]["tables"] == REPORT["tables"]
    machine.variables["FAKE_FAILING"] = "vector_add"
    before = file.read_bytes()
    done = machine.course("run", "1.1", "--save-results")
    assert done.returncode == 1 and "no program passed, so nothing is saved" in done.stderr
    assert file.read_bytes() == before


def test_what_bench_has_measured_is_kept(machine: Machine, tmp_path: Path):
    folder = machine.root / "results" / "h200"
    folder.mkdir(parents=True)
    report = {**copy.deepcopy(REPORT), "environment": {"device": "Example GPU", "torch": "2.11"}}
    (folder / "vector_add.json").write_text(json.dumps(report), encoding="utf-8")
    before = (folder / "vector_add.json").read_bytes()
    done = machine.course("run", "1.1", "--save-results")
    assert "results of 0 programs are in results/h200" in done.stdout  # the folder that this device has already
    assert "as they were: vector_add, measured beside other libraries" in done.stdout
    assert (folder / "vector_add.json").read_bytes() == before


@pytest.mark.parametrize(("device", "folder"), [
    (("NVIDIA GeForce RTX 3060", "cuda"), "nvidia-geforce-rtx-3060"),
    (("AMD Radeon RX 7900 XTX", "hip"), "amd-radeon-rx-7900-xtx"),
    (("Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz (8 threads)", "cpu"), "cpu-intel-core-i7-8565u-cpu-1-80ghz-8-threads"),
    (("CPU (4 threads)", "cpu"), "cpu-4-threads"),
    (("../../etc", "cuda"), "etc"), (("", "cuda"), "device"), (("\u00e9\u00e9", "hip"), "device"),
])
def test_folders_are_named_by_letters_and_digits(tmp_path: Path, device: tuple[str, str], folder: str):
    assert contribute.device_folder(device, tmp_path) == tmp_path / folder


@pytest.mark.parametrize("more", [["--quick"], ["--mine"], ["--", "--version", "naive"]])
def test_only_whole_results_are_saved(machine: Machine, more: list[str]):
    done = machine.course("run", "1.1", "--save-results", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("course: --save-results keeps what all versions of the repository reach")
    assert machine.calls() == []
