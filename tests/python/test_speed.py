"""Times and medals: programs that report what they are told, in rounds whose times vary."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from course_lib import exercises, speed
from course_lib.build import Build
from course_lib.compiling import Compiled
from course_lib.speed import Prepared
from course_lib.steps import Step
from course_lib.workspace import Progress, Workspace

# Takes "ms" times a factor that varies by `spread`, from one seed for all programs; notes its arguments.
PROGRAM = """#!{python}
import json, random, sys
folder, ms, spread = {folder!r}, {ms}, {spread}
with open(folder + "/calls", "a") as calls:
    calls.write({name!r} + " " + " ".join(sys.argv[1:]) + "\\n")
number = len(open(folder + "/calls").readlines())
report = json.load(open(folder + "/report.json"))
random.seed({seed} * 1000 + number)
for row in report["tables"][0]["rows"]:
    row["ms"] = ms * random.uniform(1 - spread, 1 + spread)
json.dump(report, open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""


class Bench:
    """The repository's program, which takes 1 ms, and a learner's."""

    def __init__(self, folder: Path, backend: str):
        self.folder = folder
        self.step = Step("1.1", "vector_add", folder / "stage1_vector" / "01_vector_add")
        self.course = exercises.Course(self.step, ("17", "1000", "257"), (), ())
        self.build = Build(folder, folder / backend, backend, {})
        self.progress = Progress(Workspace(folder))

    def program(self, path: Path, ms: float, spread: float = 0.0, seed: int = 1) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.format(python=sys.executable, folder=str(self.folder), ms=ms, spread=spread,
                                       seed=seed, name=path.name))
        path.chmod(0o755)
        return path

    def measure(self, ms: float, spread: float = 0.0, seed: int = 1) -> dict | None:
        """The figures of a learner's program in the progress; None: it got no medal."""
        (self.folder / "calls").unlink(missing_ok=True)
        self.program(self.build.program(self.step), 1.0, spread, seed)
        theirs = self.program(self.folder / "theirs", ms, spread, seed)
        progress = Progress(Workspace(self.folder))
        assert speed.measure(self.course, self.build, Prepared("naive", Compiled(theirs, "")), progress,
                             solution=False) == 0
        return progress.of(self.step).get("devices", {}).get("cuda: Example GPU")

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def bench(tmp_path, monkeypatch, report) -> Bench:
    monkeypatch.setenv("COURSE_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setattr(speed, "ENOUGH", speed.LIMIT)  # a busy machine takes as many rounds as an idle one
    (tmp_path / "report.json").write_text(json.dumps(report))
    return Bench(tmp_path, "cuda")


@pytest.mark.parametrize("ms, medal", [(1.0, "gold"), (1.2, "silver"), (2.0, "bronze")])
def test_times_that_agree_give_a_medal_after_five_rounds_in_turns(bench, ms, medal, capsys):
    figures = bench.measure(ms)
    assert figures["medal"] == medal and figures["of_solution"] == pytest.approx(1 / ms)
    order = [call.split()[0] for call in bench.calls]
    assert order == ["vector_add", "theirs", "theirs", "vector_add"] * 2 + ["vector_add", "theirs"]
    assert sum("--no-limits" not in call for call in bench.calls) == 1
    assert f"speed        {medal}   naive" in capsys.readouterr().out


def test_one_file_gets_one_medal_though_single_times_vary_by_20_percent(bench):
    assert bench.measure(1.0, 0.1)["medal"] == "gold"
    medals = []
    for seed in range(200):
        numbers = random.Random(seed)
        ratios: list[float] = []
        while speed.goes_on(ratios, 0):
            ratios.append(numbers.uniform(0.9, 1.1) / numbers.uniform(0.9, 1.1))
        medals.append({speed.medal_of(edge) for edge in speed.interval(ratios)})
    assert {"silver"} not in medals and medals.count({"gold"}) >= 190


def test_a_medal_that_the_times_do_not_tell_is_not_given(bench, capsys):
    assert bench.measure(1 / speed.GOLD, 0.1) is None
    out = capsys.readouterr().out
    assert "speed        no medal   naive" in out and "silver or gold: the times vary too much to say" in out
    assert len(bench.calls) == 2 * speed.MOST_ROUNDS
    assert bench.measure(1.2)["medal"] == "silver"


def test_a_program_that_is_slow_is_not_timed_for_ever(bench, monkeypatch, capsys):
    monkeypatch.setattr(speed, "LIMIT", 0.0)
    assert bench.measure(1.0) is None and len(bench.calls) == 2
    assert "100% of the solution (100% to 100% in 1 round)" in capsys.readouterr().out


def test_the_median_lies_in_its_interval_as_often_as_promised():
    numbers = random.Random(1)
    for n in (5, 8, 13, 30):
        held = 0
        for _ in range(2000):
            low, high = speed.interval([numbers.uniform(0, 1) for _ in range(n)])
            held += low <= 0.5 <= high
        assert 1 - speed.CHANCE - 0.02 < held / 2000


# ---- On the CPU backend ------------------------------------------------------------------------


def test_on_the_cpu_a_time_is_shown_and_no_medal(bench, monkeypatch, capsys):
    theirs, own = bench.program(bench.folder / "theirs", 2.0), bench.program(bench.folder / "own", 1.0)

    class Compiler:
        def compile(self, files, shown_as, fast):
            assert fast
            return Compiled(theirs if files == {"a.hip": "mine"} else own, "")

    monkeypatch.setattr(speed, "Compiler", lambda *_: Compiler())
    monkeypatch.setattr(exercises.Course, "solution", lambda *_: "own")
    cpu = Build(bench.folder, bench.folder / "cpu", "cpu", {})
    speed.show_plain_time(bench.course, cpu, {"a.hip": "mine"})
    assert capsys.readouterr().out == (
        "time         naive 2.00 ms; the course's own 1.00 ms   "
        "(one CPU thread, without optimization: noisy, and no measure of a GPU)\n")
    assert all("--quick --no-limits --repeat 3 --size 1000" in call for call in bench.calls)
    assert [call.split()[0] for call in bench.calls] == ["theirs", *["own", "theirs"] * 2]  # in turns
    monkeypatch.setattr(speed, "PLAIN_TIMEOUT", 0.001)
    speed.show_plain_time(bench.course, cpu, {"a.hip": "mine"})
    assert capsys.readouterr().out == ""
