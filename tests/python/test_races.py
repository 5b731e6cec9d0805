"""Races: which failing runs are suspected of one, what ThreadSanitizer is shown, and what it says, put into a
line."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from course_lib import compiling, exercises, process, races, steps
from course_lib.build import Build, build_root
from course_lib.check import Outcome, Run, Setting


def run(order: str, status: str = "wrong", shape: str = "257", index: int = 0, fault: str = "") -> Run:
    return Run(shape, Setting("32", order, "end"), (Outcome("naive", "n=257", status, 1, 1, index),), fault)


def test_what_another_order_changes_is_suspected_of_a_race_the_smallest_first():
    large = [run("forward"), run("reverse", "ok")]
    small = [run("forward", shape="31"), run("reverse", index=5, shape="31")]
    assert races.suspects([*large, *small]) == [*small, large[0]]
    same = [run("forward"), run("reverse")]
    assert races.suspects(same) == []
    unset = [run("forward", "nan"), run("reverse", "nan")]
    assert races.suspects(unset) == unset
    hung = [run("forward"), run("reverse", fault="timeout")]
    assert races.suspects(hung) == hung[:1]


@pytest.mark.parametrize(("found", "depends"), [
    ({"reverse": ("nan", 0), "waves": ("nan", 0)}, False),
    ({"reverse": ("nan", 0), "waves": ("nan", 7)}, True),
    ({"reverse": ("ok", 0), "waves": ("nan", 0)}, True),
])
def test_what_no_other_order_changes_is_no_race(found: dict[str, tuple[str, int]], depends: bool):
    asked = []

    def again(setting: Setting) -> Run:
        asked.append(setting.order)
        assert setting.wave == "32" and setting.guard == "end"  # nothing else may differ
        status, index = found[setting.order]
        return run(setting.order, status, index=index)

    assert races.depends_on_order(run("forward", "nan"), again) == depends
    assert asked == ["reverse"] if found["reverse"] != ("nan", 0) else asked == ["reverse", "waves"]


REPORT = """==================
WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 4 at 0x7fa73a9fc280 by thread T79:
    #0 _ZZN3cpu6launch <null> (dot+0x17776)
    #1 _ZN3cpu11run_threads <null> (dot+0x17b74)

  Previous read of size 4 at 0x7fa73a9fc280 by thread T207:
    #0 _ZZN3cpu6launch <null> (dot+0x1789e)

  Location is TLS of thread T226.

  Thread T79 'thread (1,0,0)' (tid=0, running) created by thread T226 at:
    #0 cpu::sanitizer::create_fiber() sanitizers.h:28 (dot+0x2b76c)
SUMMARY: ThreadSanitizer: data race
"""


def test_a_race_is_two_lines_of_the_learners_file():
    asked = []

    def lines_of(addresses: list[str]) -> list[races.Frame]:
        asked.append(addresses)
        line = 130 if addresses[0] == "17776" else 133
        lambda_ = "auto dot::launch_shared_tree(float*)::{lambda((auto:1)...)#1}::operator()"
        return [races.Frame("cpu_sum(float)", "common/sum.h:3", False),
                races.Frame("dot::block_sum_tree(float)", f"dot.h:{line}", True),
                races.Frame("dot_shared_tree", "dot.h:146", True), races.Frame(lambda_, "dot.h:9", True),
                races.Frame("operator()<float*, unsigned long>", "dot.h:9", True)]

    race = races.parse(REPORT, lines_of)
    assert asked == [["17776", "17b74"], ["1789e"]]
    assert race == races.Race("dot_shared_tree", races.Access("write", "dot.h:130", "thread (1,0,0)"),
                              races.Access("read", "dot.h:133", ""))
    assert race.words() == ("data race in dot_shared_tree: thread (1,0,0) writes at dot.h:130 what another "
                            "reads at dot.h:133, and nothing says who comes first")
    # Which thread it was is not known behind the end of its block.
    race = races.parse(REPORT.replace("Location is TLS of thread T226.", ""), lines_of)
    assert race.first.thread == ""
    # GCC 13 and later add which build it was.
    assert races.parse(re.sub(r"(0x1\w+\))", r"\1 (BuildId: 943716cf)", REPORT), lines_of) is not None
    assert races.parse("error: something else", lines_of) is None


def test_a_race_is_one_even_where_a_line_is_not_the_learners():
    helper = [races.Frame("add(float*)", "common/sum.h:3", False)]
    race = races.parse(REPORT, lambda found: helper if found[0] == "1789e"
                       else [races.Frame("mine(float*)", "mine.hip:7", True)])
    assert (race.kernel, race.first.place, race.second.place) == ("mine", "mine.hip:7", "common/sum.h:3")
    lost = re.sub(r"    #0 .*0x1789e\)\n", "    [failed to restore the stack]\n", REPORT)
    race = races.parse(lost, lambda found: helper if found else [])
    assert race.words() == ("data race in add: thread (1,0,0) writes at common/sum.h:3 what another reads, "
                            "and nothing says who comes first")
    assert races.parse(REPORT, lambda _: []) is not None


@pytest.fixture(scope="module")
def thread_sanitizer(tmp_path_factory) -> Build:
    """The CPU backend's build, where dot is built in it and ThreadSanitizer works here."""
    build = Build(ROOT, build_root(ROOT) / "cpu", "cpu", dict(os.environ))
    if not (build.folder / "stage1_vector" / "dot").is_file():
        pytest.skip("dot is not built for the CPU backend")
    folder = tmp_path_factory.mktemp("tsan")
    (folder / "main.cpp").write_text("int main() { return 0; }")
    compiler = os.environ.get("CXX", "c++")
    if process.output([compiler, "-fsanitize=thread", "-o", str(folder / "main"),
                       str(folder / "main.cpp")]) is None or process.output([str(folder / "main")]) is None:
        pytest.skip("ThreadSanitizer does not work here")
    return build


def course_of(name: str) -> exercises.Course:
    return exercises.load(next(step for step in steps.discover(ROOT) if step.name == name))


@pytest.mark.parametrize(
    ("name", "version", "right", "wrong", "lines"),
    [("dot", "shared_tree", "__syncthreads();  // every thread's sum is in sums", "",
      ("sums[threadIdx.x] = ", "sums[threadIdx.x] += sums[threadIdx.x + half]")),
     ("dot", "shared_tree", "if (threadIdx.x == 0) atomicAdd(result, sums[0])",
      "if (threadIdx.x == 0) *result = 1", ("*result = 1",)),
     ("dot", "shared_tree", "", "", None)])
def test_one_run_finds_a_race_in_what_is_right_otherwise(thread_sanitizer: Build, name, version, right, wrong,
                                                         lines):
    """A missing barrier, and two writes of one value; the solution gives no alarm."""
    course = course_of(name)
    exercise = next(e for e in course.exercises if version in e.versions)
    file, text = exercise.file, course.solution(exercise.file)
    assert right in text
    if right:
        text = text.replace(right, wrong)
    result = races.Detector(course, thread_sanitizer).look({file: text}, {file: "mine"}, [version])
    assert result.looked, result.why
    if lines is None:
        assert result.race is None
        return
    assert result.race.kernel == "dot_shared_tree"
    found = [text.splitlines()[int(access.place.removeprefix("mine:")) - 1]
             for access in (result.race.first, result.race.second)]
    assert all(any(line in other for other in found) for line in lines), found


def test_a_version_that_the_run_leaves_out_was_not_looked_at(tmp_path: Path, report: dict):
    """Nor is a kernel with one block, where two of them would be the race."""
    program = tmp_path / "program"
    rows = [{**report["tables"][0]["rows"][3], "name": name, "status": status, "skipped": why}
            for name, status, why in (("fused", "ok", ""), ("persistent", "skipped", "it does not fit"),
                                      ("wgmma", "skipped", "needs sm_90"))]
    (tmp_path / "report.json").write_text(json.dumps({**report, "tables": [{**report["tables"][0], "rows": rows}]}))
    program.write_text(f"""#!/bin/sh
env > '{tmp_path}/environment.txt'
while [ "$1" != --json ]; do shift; done
cp '{tmp_path}/report.json' "$2"
""")
    program.chmod(0o755)
    detector = races.Detector(course_of("dot"), Build(ROOT, tmp_path, "cpu", {}))
    detector._compiler = SimpleNamespace(compile=lambda *_, **__: compiling.Compiled(program, ""))
    result = detector.look({}, {}, [])
    assert not result.looked and result.why == "its run under ThreadSanitizer leaves persistent out"
    environment = (tmp_path / "environment.txt").read_text().splitlines()
    assert {"HIP_CPU_MULTIPROCESSORS=2", "HIP_CPU_BLOCKS=2"} <= set(environment)


def test_where_there_can_be_no_race_nothing_is_built_or_run(tmp_path: Path):
    course = replace(course_of("dot"), races=exercises.RaceRun("", (), none="one thread"))
    detector = races.Detector(course, Build(ROOT, tmp_path, "cpu", {}))
    result = detector.look({}, {}, [])
    assert result.looked and result.why == "one thread" and result.run is None
    assert not detector.suspect(["shared_tree"], Run("257", Setting("64", "waves", "begin"), (), "", ""))


def test_a_suspect_is_run_as_it_failed_if_that_is_no_larger_by_much(tmp_path: Path, report: dict):
    program = tmp_path / "program"
    (tmp_path / "report.json").write_text(json.dumps(report))
    program.write_text(f"""#!/bin/sh
echo "$@" > '{tmp_path}/arguments.txt'
while [ "$1" != --json ]; do shift; done
cp '{tmp_path}/report.json' "$2"
exit 1
""")
    program.chmod(0o755)
    detector = races.Detector(course_of("dot"), Build(ROOT, tmp_path, "cpu", {}))
    detector._compiler = SimpleNamespace(compile=lambda *_, **__: compiling.Compiled(program, ""))
    setting = Setting("64", "waves", "begin")
    result = detector.look({}, {}, ["shared_tree"])
    assert not result.looked and result.run is None  # where all should be right, a failure is none of a race's
    assert not detector.suspect(["atomic"], Run("1000000", setting, (), "", ""))
    assert detector.look({}, {}, ["shared_tree"]).run is None
    suspect = Run("257", setting, (), "", "")
    assert detector.suspect(["atomic"], suspect)
    result = detector.look({}, {}, ["shared_tree"])
    assert result.looked and result.race is None and result.run is suspect
    arguments = (tmp_path / "arguments.txt").read_text()
    assert all(f" {text}" in arguments for text in ("--wave 64", "--order waves", "--version atomic", "--size 257"))


def test_where_races_can_not_be_looked_for_it_says_so(thread_sanitizer: Build, tmp_path: Path, monkeypatch):
    course = course_of("dot")
    files = {file: course.solution(file) for file in course.files}
    monkeypatch.setattr(races, "RUN_TIMEOUT", 0.01)
    result = races.Detector(course, thread_sanitizer).look(files, files, course.versions)
    assert not result.looked and result.race is None and "not at its end" in result.why
    monkeypatch.setenv("COURSE_BUILD_DIR", str(tmp_path))
    broken = Build(ROOT, tmp_path / "cpu", "cpu", {**os.environ, "PATH": str(tmp_path)})
    result = races.Detector(course, broken).look(files, files, course.versions)
    assert not result.looked and result.why


def test_two_builds_for_thread_sanitizer_wait_for_each_other(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("COURSE_BUILD_DIR", str(tmp_path))
    lines: list[str] = []
    build = Build(ROOT, tmp_path / "cpu", "cpu", dict(os.environ))
    first, second = (races.Detector(course_of("dot"), build, lines.append) for _ in range(2))
    with first._alone():
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(second._alone().__enter__)
            time.sleep(0.3)
            assert not waiting.done() and lines == [
                "waiting for what ThreadSanitizer needs, which another command builds"]
            second.stop()
            waiting.result(timeout=5)
