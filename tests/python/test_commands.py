"""Every command of scripts/course as a whole, on a small step of this repository, with the CPU backend's
build that is here: no stand-ins. Where vector_add is not built yet these tests are skipped.

Nothing is installed, and what the learner has is left alone: the workspace is a temporary one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from course_lib import backend, exercises, python_env, steps
from course_lib.build import Build, build_root

STEP = next(step for step in steps.discover(ROOT) if step.name == "vector_add")
NAIVE = Path("stage1_vector", "01_vector_add", "versions", "naive.hip")
HERE = ("--backend", "cpu", "--no-setup")
BUILD = Build(ROOT, build_root(ROOT) / "cpu", "cpu", dict(os.environ))


class Learner:
    """Runs scripts/course with a workspace of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.workspace = folder / "workspace"
        self.environment = {**os.environ, "COURSE_WORKSPACE": str(self.workspace), "NO_COLOR": "1"}

    def command(self, *words: object) -> list[str]:
        return [sys.executable, str(ROOT / "scripts" / "course"), *map(str, words)]

    def course(self, *words: object, code: int = 0, environment: dict | None = None) -> str:
        """What the command printed; it must end with this exit code, and never in a traceback."""
        done = subprocess.run(self.command(*words), env={**self.environment, **(environment or {})},
                              cwd=self.folder, text=True, capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=120)
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        assert done.returncode == code, text
        return text

    def solve(self) -> None:
        """Writes the solution into the files that were started."""
        for name in exercises.load(STEP).files:
            path = self.workspace / STEP.folder.relative_to(ROOT) / name
            path.write_text((STEP.folder / name).read_text(encoding="utf-8"), encoding="utf-8")


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path)


@pytest.fixture
def built(learner: Learner) -> Iterator[Learner]:
    """A learner who has built vector_add. The results of its last run are put back."""
    if not (BUILD.is_configured() and BUILD.program(STEP).is_file()):
        pytest.skip("vector_add is not built for the CPU backend")
    kept = BUILD.folder / "results" / "vector_add.json"
    before = kept.read_bytes() if kept.is_file() else None
    yield learner
    if before is None:
        kept.unlink(missing_ok=True)
    else:
        kept.write_bytes(before)


# ---- What needs no build -----------------------------------------------------------------------


def test_list(learner: Learner):
    assert "1.1   vector_add" in learner.course("list")
    entries = json.loads(learner.course("list", "--json"))
    assert len(entries) == len(steps.roadmap(ROOT)) and {e["state"] for e in entries} >= {"not started"}


def test_doctor(learner: Learner):
    # What is missing depends on the machine: 0 or 3.
    done = subprocess.run(learner.command("doctor"), env=learner.environment, text=True, capture_output=True)
    assert done.returncode in (0, 3) and done.stderr == ""
    assert "backend" in done.stdout and "missing" in done.stdout


def test_diff(learner: Learner):
    assert "scripts/course diff 1.1 naive grid_stride" in learner.course("diff", "1.1")
    assert "blockIdx" in learner.course("diff", "1.1", "naive", "vectorized")
    page = learner.folder / "diff.html"
    learner.course("diff", "1.1", "naive", "vectorized", "--html", page)
    assert "<!DOCTYPE html>" in page.read_text(encoding="utf-8")


def test_start_hint_solution_and_progress(learner: Learner):
    assert "1.1 vector_add" in learner.course("start", "1.1")
    mine = learner.workspace / NAIVE
    assert mine.is_file() and "a[i] + b[i]" not in mine.read_text(encoding="utf-8")
    assert "is there already" in learner.course("start", "1.1", code=2)
    assert "kept: " in learner.course("start", "1.1", "--reset")
    for name in ("naive", "add_naive", "naive.hip", "versions/naive.hip"):
        assert "1.1 add_naive: " in learner.course("hint", "1.1", name)
    assert "it has add_naive (naive), " in learner.course("hint", "1.1", "naif", code=2)
    assert "is not solved yet" in learner.course("solution", "1.1", code=2)
    assert "+  if (i < n)" in learner.course("solution", "1.1", "--give-up")
    assert "1.1 vector_add: in progress" in learner.course("progress")
    carried = learner.folder / "progress.json"
    learner.course("progress", "--export", carried)
    mine.unlink()
    learner.course("progress", "--import", carried)
    assert mine.is_file()


@pytest.mark.parametrize("step", [step.number for step in steps.discover(ROOT)
                                  if not exercises.has_exercises(step)])
def test_a_readme_promises_no_exercise_that_start_denies(learner: Learner, step: str):
    folder = next(one.folder for one in steps.discover(ROOT) if one.number == step)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "\n## Exercise" not in text and f"`scripts/course test {step}`" in text
    assert "its README.md says what to try there" in learner.course("start", step, code=2)


def test_report_of_the_committed_results_sets_nothing_up(learner: Learner):
    made = learner.folder / "made"
    page = learner.folder / "report.html"
    # -S: a Python without Matplotlib or anything else that was installed.
    done = subprocess.run([sys.executable, "-S", *learner.command("report", "--out", page)[1:]], text=True,
                          env={**learner.environment, "COURSE_BUILD_DIR": str(made)}, capture_output=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and not made.exists(), done.stdout + done.stderr
    assert page.read_text(encoding="utf-8").count("<img ") > 30


def test_plot(learner: Learner):
    if python_env.find(["matplotlib"], [sys.executable]) is None:
        pytest.skip("no Matplotlib here")
    made = learner.folder / "made"
    text = learner.course("plot", "--no-setup", "--json", ROOT / "results" / "h200" / "train_toy.json",
                          environment={"COURSE_BUILD_DIR": str(made)})
    assert list((made / "plots").glob("*.png")) and "plots/" in text
    assert "no results to draw are here yet" in learner.course(
        "plot", "--no-setup", environment={"COURSE_BUILD_DIR": str(learner.folder / "empty")}, code=2)


def test_profile_without_a_profiler(learner: Learner):
    hardware = backend.detect()
    if hardware.nvidia or hardware.amd:
        pytest.skip("a GPU is here")
    text = learner.course("profile", "1.1", "--version", "naive", "--no-setup", code=2)
    assert "neither GPU is here" in text and text.count("\n") == 1


# ---- What builds and runs vector_add -----------------------------------------------------------


def test_run(built: Learner):
    text = built.course("run", "1.1", "--quick", *HERE)
    assert "steps: 1 " in text and "1.1   vector_add  " in text
    text = built.course("run", "vector_add", *HERE, "--", "--help")
    assert "--size n" in text and "steps: 1" not in text
    text = built.course("run", "1.1", *HERE, "--", "--size", "1000", "--no-limits", "--repeat", "1")
    assert "n=1000 " in text and "steps: 1 " in text


def test_test(built: Learner):
    if not (BUILD.folder / "stage1_vector" / "vector_add_test").is_file():
        pytest.skip("vector_add_test is not built")
    assert "100% tests passed" in built.course("test", "1.1", *HERE)


def test_bench(built: Learner):
    file = built.folder / "bench.json"
    text = built.course("bench", "1.1", "--quick", "--peers", "numpy,loop", "--json", file, *HERE)
    assert "vectorized" in text and "C++ loop" in text
    run = json.loads(file.read_text(encoding="utf-8"))
    assert [report["program"] for report in run["reports"]] == ["vector_add"] and not run["failures"]
    assert "vector_add" in built.course("bench", "--merge", file)
    built.course("bench", "--compare", file, file)
    page = built.folder / "report.html"
    if python_env.find(["matplotlib"], [sys.executable]):
        made = {"COURSE_BUILD_DIR": str(built.folder / "made")}
        built.course("report", file, "--out", page, environment=made)
        assert "Made with --quick" in page.read_text(encoding="utf-8")


def test_check_and_run_mine(built: Learner):
    built.course("start", "1.1")
    assert "add_naive" in built.course("check", "1.1", *HERE, code=1)
    assert "nothing of yours to run" in built.course("run", "1.1", "--mine", *HERE, code=2)
    built.solve()
    built.course("check", "1.1", *HERE)
    assert "the same, line by line" in built.course("solution", "1.1")
    assert "1 of " in built.course("progress")
    mine = built.workspace / NAIVE
    text = built.course("run", "1.1", "--mine", "--quick", *HERE)
    files = sorted(str(STEP.folder.relative_to(ROOT) / file) for file in exercises.load(STEP).files)
    assert f"1.1 vector_add runs with your {', '.join(files)}\n" in text
    # Nothing but the learner's files was compiled, and the program has them in it.
    rules = (BUILD.folder.parent / "cpu-mine" / "build.ninja").read_text(encoding="utf-8")
    assert rules.count(": compile ") == len(files) and rules.count(": own ") == 1
    mine.write_text(mine.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
    text = built.course("run", "1.1", "--mine", "--quick", *HERE)
    files.remove(str(NAIVE))
    assert "naive.hip, which has not passed" in text and f"your {', '.join(files)}\n" in text


# ---- watch -------------------------------------------------------------------------------------


def children_of(process: int) -> set[int]:
    """The processes whose ancestor is `process`, by /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(stat.parent.name)] = int(parent)
    found = {process}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {process}
        found |= more


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_watch_shows_that_it_works_and_leaves_nothing_behind(built: Learner, which: int):
    built.course("start", "1.1")
    built.solve()
    mine = built.workspace / NAIVE
    os.mkfifo(built.folder / "pipe")  # the compiler waits for somebody to write into it
    text = mine.read_text(encoding="utf-8")
    mine.write_text(f'#include "{built.folder}/pipe"\n{text}', encoding="utf-8")
    said = built.folder / "said.txt"
    with said.open("w") as output, subprocess.Popen(
            built.command("watch", "1.1", *HERE), env=built.environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
            preexec_fn=lambda: signal.signal(which, signal.SIG_DFL)) as process:  # nohup ignores SIGHUP
        end = time.monotonic() + 60
        while ("still checking, " not in said.read_text() if which == signal.SIGINT
               else not any(name_of(child) in ("cc1plus", "clang") for child in children_of(process.pid))):
            assert time.monotonic() < end and process.poll() is None, said.read_text()
            time.sleep(0.05)
        children = children_of(process.pid)
        os.kill(process.pid, which)
        try:
            process.wait(timeout=40)
        finally:
            process.kill()
    left = [child for child in children if is_running(child)]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert children and not left and process.returncode == 0, said.read_text()
    assert "Traceback" not in said.read_text()


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""
