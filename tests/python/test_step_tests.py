"""The step's own tests as `check` runs them: what Catch2 reports, in words; the cases after one that spoils
its process; and compilers that fail for a reason that is not the learner's file."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from course_lib import check, compiling, exercises, step_tests, steps
from course_lib.build import Build
from course_lib.errors import CourseError
from course_lib.step_tests import Failure

# ---- What Catch2 reports -----------------------------------------------------------------------

CASE = '<TestCase name="{name}" filename="../03_dot/dot_test.cpp" line="64">{inside}</TestCase>'
INFOS = """<Info>version.name := "shared_tree"</Info><Info>
        n := 257 (0x101)
      </Info><Info>offset := 1</Info>"""
WORST = ('<Info>worst_element := "1 of 1 elements out of bound, 0 never written; at [0] got 0, want -4, '
         'bound 0"</Info>')
REQUIRE_OK = """<Expression success="false" type="REQUIRE" filename="../dot_test.cpp" line="71">
  <Original>required_comparison.ok</Original><Expanded>false</Expanded></Expression>"""


def xml(*cases: tuple[str, str], root: str = "Catch") -> str:
    inside = "".join(CASE.format(name=name, inside=inside) for name, inside in cases)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} name="dot_test">{inside}</{root}>'


@pytest.mark.parametrize("root", ["Catch", "Catch2TestRun"])  # version 2, version 3
def test_a_comparison_that_fails_is_a_line(root):
    report = step_tests.parse(xml(("sums", INFOS + WORST + REQUIRE_OK), ("fine", ""), root=root))
    assert report.cases == ["sums", "fine"] and report.at_its_end
    assert list(map(step_tests.words_of, report.failures)) == [
        "the step's test 'sums' fails for shared_tree at n = 257, offset = 1 (dot_test.cpp:71): "
        "1 of 1 elements out of bound; at [0] got 0, want -4, bound 0"]


@pytest.mark.parametrize(("element", "words"), [
    ('<Expression success="false" filename="a/x_test.cpp" line="3"><Original>a == b</Original>'
     "<Expanded>1 == 2</Expanded></Expression>", "a == b does not hold: 1 == 2"),
    ('<Expression success="false" filename="a/x_test.cpp" line="3"><Original>is_right</Original>'
     "<Expanded>false</Expanded></Expression>", "is_right does not hold"),
    ('<Expression success="false" filename="a/x_test.cpp" line="3"><Original>f()</Original>'
     "<Expanded>f()</Expanded><Exception>no room</Exception></Expression>", "f() ends with no room"),
    ('<Section name="deeper"><Failure filename="a/x_test.cpp" line="3">it is late</Failure></Section>',
     "it is late"),
    ('<Exception filename="a/x_test.cpp" line="3">no room</Exception>', "no room"),
])
def test_every_kind_of_failure_has_words(element, words):
    (failure,) = step_tests.parse(xml(("a case", element))).failures
    assert step_tests.words_of(failure) == f"the step's test 'a case' fails (x_test.cpp:3): {words}"


def test_only_the_first_failure_of_a_case_counts_and_infos_belong_to_one():
    second = REQUIRE_OK.replace("71", "99")
    report = step_tests.parse(xml(("one", INFOS + REQUIRE_OK + second), ("two", second)))
    assert [(f.case, f.place, f.version) for f in report.failures] == [
        ("one", "dot_test.cpp:71", "shared_tree"), ("two", "dot_test.cpp:99", "")]


def test_a_report_that_is_cut_short_says_what_it_can():
    text = xml(("one", INFOS + REQUIRE_OK), ("two", ""))
    report = step_tests.parse(text[:text.rindex("</TestCase>")])
    assert (report.cases, len(report.failures), report.at_its_end) == (["one", "two"], 1, False)
    assert step_tests.parse("") == step_tests.Report([], [], False)


# ---- Running -----------------------------------------------------------------------------------

# A test with four cases; `behaviour` has what the second does. It honours filters as Catch2 does.
PROGRAM = """#!{python}
import json, os, re, sys, time
open("{folder}/calls.jsonl", "a").write(json.dumps([sys.argv, dict(os.environ)]) + "\\n")
left_out = [re.sub(r"\\\\(.)", r"\\1", name)
            for name in re.findall(r'~"((?:[^"\\\\]|\\\\.)*)"', sys.argv[1])]
out = open(sys.argv[sys.argv.index("-o") + 1], "w")
out.write('<Catch>')
spoilt = False
for case in ["first", "second, [of] four", "third", "fourth"]:
    if case in left_out:
        continue
    out.write('<TestCase name="' + case + '">')
    out.flush()
    if case.startswith("second") or spoilt:
        if "{behaviour}" == "leaves":
            if not spoilt:
                print("cpu backend: kernel k: reads 4 bytes past the end of a buffer", file=sys.stderr)
            spoilt = True
            out.write('<Exception filename="t" line="5">hipMalloc(): hipErrorIllegalAddress (x)</Exception>')
        elif "{behaviour}" == "hangs":
            time.sleep(60)
        elif "{behaviour}" == "waits":
            print("cpu backend: kernel k: still running after 2 s: an endless loop?", file=sys.stderr)
            spoilt = True
            out.write('<Exception filename="t" line="5">hipMalloc(): hipErrorLaunchTimeOut (x)</Exception>')
        elif "{behaviour}" == "dies":
            os.kill(os.getpid(), 11)
    if case == "fourth":
        out.write('<Failure filename="t.cpp" line="9">fourth is wrong</Failure>')
    out.write('</TestCase>')
out.write('</Catch>')
out.close()
sys.exit(1)
"""


@pytest.fixture
def course() -> exercises.Course:
    return exercises.load(next(step for step in steps.discover(ROOT) if step.name == "dot"))


def program(folder: Path, behaviour: str) -> Path:
    made = folder / "dot_test"
    made.write_text(PROGRAM.format(python=sys.executable, folder=folder, behaviour=behaviour))
    made.chmod(0o755)
    return made


WIDE = check.Setting("64", "reverse", "end")


def calls(folder: Path) -> list:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("behaviour", "fault", "message", "processes"), [
    ("leaves", "outside", "kernel k: reads 4 bytes past the end of a buffer", 2),
    ("dies", "crash", "ended by signal 11", 2),
])
def test_what_spoils_the_process_spoils_no_other_case(tmp_path, behaviour, fault, message, processes):
    found = step_tests.run(program(tmp_path, behaviour), {}, WIDE, [])
    assert [(f.case, f.fault, f.message) for f in found] == [
        ("second, [of] four", fault, message), ("fourth", "", "")]
    assert len(calls(tmp_path)) == processes


@pytest.mark.parametrize(("behaviour", "fault", "seconds"),
                         [("waits", "loop", 30), ("hangs", "timeout", 1)])
def test_after_what_does_not_end_no_case_begins(tmp_path, behaviour, fault, seconds):
    found = step_tests.run(program(tmp_path, behaviour), {}, check.PLAIN, [], seconds)
    assert [(f.case, f.fault) for f in found] == [("second, [of] four", fault)]
    assert len(calls(tmp_path)) == 1


def test_the_cases_the_settings_and_the_versions(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_VERSIONS", raising=False)
    step_tests.run(program(tmp_path, "right"), {}, WIDE, [])
    step_tests.run(program(tmp_path, "right"), {}, replace(check.PLAIN, guard="begin", blocks="2"), ["atomic"])
    (first, environment), (_, other) = calls(tmp_path)
    for tag in ("[numpy]", "[long]", "[harness]", "[.]"):
        assert f"~{tag}" in first[1]
    wanted = {"HIP_CPU_WAVE": "64", "HIP_CPU_ORDER": "reverse", "HIP_CPU_POISON": "1", "HIP_CPU_THREADS": "1",
              "HIP_CPU_GUARD": "end", "HIP_CPU_MULTIPROCESSORS": "4"}
    assert {name: environment.get(name) for name in wanted} == wanted
    assert "COURSE_VERSIONS" not in environment and "HIP_CPU_BLOCKS" not in environment
    assert (other["HIP_CPU_GUARD"], other["COURSE_VERSIONS"], other["HIP_CPU_BLOCKS"]) == ("begin", "atomic", "2")


def test_the_words_of_a_fault():
    failure = Failure("sums", "dot_test.cpp:71", "", "shared_tree", "outside", "kernel k: reads\nmore",
                      "n = 2")
    assert step_tests.words_of(failure) == (
        "the step's test 'sums' stops for shared_tree at n = 2 (dot_test.cpp:71): kernel k: reads")
    only = replace(failure, only=replace(WIDE, blocks="2").described())
    assert ("(dot_test.cpp:71), only with waves of 64, the order reverse, guard pages at the end, and grids of "
            "at most 2 blocks: kernel k: reads") in step_tests.words_of(only)


# ---- Compilers that fail -----------------------------------------------------------------------

# Fails as failure.txt says, where it is there: "exit code\ntext", with NAME for the learner's file.
FAILING = """#!{python}
import os, signal, subprocess, sys
words = sys.argv[1:]
linking = "-c" not in words
failure = "{folder}/" + ("link.txt" if linking else "compile.txt")
if "c++-header" in words or not os.path.isfile(failure):
    open(words[words.index("-o") + 1], "w").write("")
    sys.exit(0)
code, _, text = open(failure).read().partition("\\n")
print(text.replace("NAME", words[-1]))
if int(code) < 0:
    os.kill(os.getpid(), -int(code))
sys.exit(int(code))
"""
TOML = """[[exercise]]
name = "value"
file = "versions/naive.hip"
hints = ["one", "two", "three"]
"""
TEXT = "// exercise: a value (about 1 line)\nint value() { return 1; }\n// end exercise\n"


@pytest.fixture
def failing(tmp_path: Path, monkeypatch) -> tuple[compiling.Compiler, Path]:
    """A compiler for a step, and the folder that failures are put into."""
    folder = tmp_path / "course" / "stage3_ml_ops" / "01_sum"
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "naive.hip").write_text(TEXT)
    (folder / "exercise.toml").write_text(TOML)
    (folder / "sum.cpp").touch()
    root, made = folder.parents[1], tmp_path / "build" / "cpu"
    (root / "common").mkdir()
    made.mkdir(parents=True)
    for name in ("main.o", "test.o", "version.o", "libstep_sum.a"):
        (made / name).touch()
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    tools = {"cc": FAILING.format(python=sys.executable, folder=tmp_path)}
    tools["ninja"] = f"""#!/bin/sh
echo "cc -I'{root}' -O3 -o version.o -c '{folder}/versions/naive.hip'"
case "$*" in
*sum_test*) echo "cc test.o -o stage3_ml_ops/sum_test libstep_sum.a" ;;
*) echo "cc main.o -o stage3_ml_ops/sum libstep_sum.a" ;; esac
"""
    for name, body in tools.items():
        (fakes / name).write_text(body)
        (fakes / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{fakes}:{os.environ['PATH']}")
    course = exercises.load(steps.discover(root)[0])
    build = Build(root, made, "cpu", dict(os.environ))
    return compiling.Compiler(build, course, tmp_path / "check" / "sum"), tmp_path


def compiled(failing, what: str = "program") -> compiling.Compiled:
    file = "versions/naive.hip"
    return failing[0].compile({file: TEXT}, {file: "mine/naive.hip"}, fast=True, what=what)


@pytest.mark.parametrize("failure", [
    "1\ncc: fatal error: Killed signal terminated program cc1plus",
    "-9\n",
    "1\ncc1plus: out of memory allocating 65536 bytes after a total of 1 bytes",
    "1\nvirtual memory exhausted: Cannot allocate memory",
    "1\nNAME:3:1: internal compiler error: Segmentation fault",
    "1\ncc: error trying to exec 'cc1plus': execvp: No such file or directory",
    "127\nsh: 1: cc: not found",
    "126\nsh: 1: cc: cannot execute: required file not found",
    "1\n/usr/include/stdio.h:27:10: fatal error: bits/x.h: No such file or directory",
    "1\nsomething that nobody has heard of",
])
@pytest.mark.parametrize("what", ["program", "test"])
def test_a_compiler_that_the_machine_fails_is_no_verdict(failing, failure, what):
    place = failing[1] / "compile.txt"
    place.write_text(failure)
    for _ in range(2):
        with pytest.raises(CourseError, match="which says nothing about your file"):
            compiled(failing, what)
    place.unlink()
    assert compiled(failing, what).program  # the same text, where the machine is well


@pytest.mark.parametrize("failure", [
    "1\nNAME:2:1: error: 'm' was not declared\n    2 | out of memory, Killed",
    "1\nNAME(2): error: identifier \"m\" is undefined",
])
def test_a_verdict_is_kept(failing, failure):
    place = failing[1] / "compile.txt"
    place.write_text(failure)
    said = compiled(failing)
    assert said.program is None and said.messages.startswith("mine/naive.hip"), said
    place.unlink()
    assert compiled(failing) == said


def test_a_file_that_is_not_there_is_named_but_not_for_ever(failing):
    place = failing[1] / "compile.txt"
    place.write_text("1\nNAME:2:10: fatal error: mine.h: No such file or directory")
    assert "mine.h: No such file" in compiled(failing).messages
    place.unlink()
    assert compiled(failing).program


@pytest.mark.parametrize(("failure", "is_the_texts"), [
    ("1\nmain.o: undefined reference to `value()'", True),
    ("1\ncollect2: fatal error: cannot find 'ld'", False),
    ("1\ncollect2: fatal error: ld terminated with signal 9 [Killed]", False),
])
def test_what_does_not_link_is_linked_again(failing, failure, is_the_texts):
    place = failing[1] / "link.txt"
    place.write_text(failure)
    if is_the_texts:
        done = compiled(failing)
        assert done.program is None and "undefined reference" in done.messages
    else:
        with pytest.raises(CourseError, match="which says nothing about your file"):
            compiled(failing)
    place.unlink()
    assert compiled(failing).program


def test_a_full_disk_is_no_verdict(failing):
    (failing[1] / "compile.txt").write_text("1\nNAME:1: fatal error: x.s: No space left on device")
    with pytest.raises(CourseError, match="is full"):
        compiled(failing)
    (failing[1] / "compile.txt").unlink()
    assert compiled(failing).program


# ---- The course's tests ------------------------------------------------------------------------


def test_every_step_with_exercises_has_cases_for_check():
    for step in steps.discover(ROOT):
        if not exercises.has_exercises(step):
            continue
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(step.folder.glob("*_test.*")))
        cases = re.findall(r'^(?:TEST_CASE|FOR_EACH_TYPE|TEMPLATE_TEST_CASE)\(\s*"[^;{]*', text, re.MULTILINE)
        chosen = [case for case in cases if not re.search(r"\[(numpy|long|harness|\.)", case)]
        assert len(chosen) >= 3, step.name
