"""Exercises: what a skeleton is, what a check says, and that no work of a learner's is ever lost.

Nothing is compiled here; scripts/exercises.py holds the real exercises to the rules of the course.
"""

from __future__ import annotations

import json
import os
import pty
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from course_lib import check, exercises, fingerprints, learn, steps, verdict_words, watch
from course_lib.check import Outcome, Run
from course_lib.errors import USAGE, CourseError
from course_lib.workspace import Progress, Workspace

TEXT = """// 1.1  sum: a sum of two vectors.
//
// Any n.

inline int first(int a) {
  // exercise: one more than a
  // and no less (about 1 line)
  return a + 1;
  // end exercise
}
inline void second(int* b) {
  // exercise: the same in place (about 2 lines)
  const int old = *b;
  *b = old + 1;
  // end exercise
}
"""
TOML = """shapes = ["1", "256", "257"]

[[exercise]]
name = "first"
file = "versions/sum.hip"
versions = ["naive"]
owner = { block = "i // 16", thread = "i % 16" }
blank = "return 0;"
hints = ["one", "two", "three"]

[[exercise.mistake]]
name = "one too few"
find = "a + 1"
replace = "a"

[[exercise]]
name = "second"
file = "versions/sum.hip"
versions = ["in_place"]
hints = ["four", "five", "six"]
"""


@pytest.fixture
def course(tmp_path: Path) -> exercises.Course:
    folder = tmp_path / "stage1_vector" / "01_sum"
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "sum.hip").write_text(TEXT)
    (folder / "sum.cpp").touch()
    (folder / "exercise.toml").write_text(TOML)
    (folder / "README.md").write_text("# 1.1 sum\n\nTwo vectors\nbecome one.\n\nMore.\n")
    return exercises.load(steps.discover(tmp_path)[0])


@pytest.fixture
def workspace(course, tmp_path: Path, monkeypatch) -> Workspace:
    monkeypatch.delenv("COURSE_WORKSPACE", raising=False)
    return Workspace(tmp_path)


def changed(course: exercises.Course, old: str, new: str, file: str = "exercise.toml") -> None:
    path = course.step.folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# ---- Regions, skeletons, mistakes --------------------------------------------------------------


def test_a_skeleton_differs_only_inside_the_regions(course):
    skeleton = course.skeleton("versions/sum.hip").splitlines()
    assert "  return 0;" in skeleton and "  return a + 1;" not in skeleton
    assert "  const int old = *b;" not in skeleton
    outside = [line for line in TEXT.splitlines()
               if line.strip() not in ("return a + 1;", "const int old = *b;", "*b = old + 1;")]
    assert [line for line in skeleton if line != "  return 0;"] == outside


def test_what_is_not_written_yet_is_known(course):
    def empty(text: str) -> list[str]:
        return [exercise.name for exercise in course.empty({"versions/sum.hip": text})]
    skeleton = course.skeleton("versions/sum.hip")
    assert empty(skeleton) == ["first", "second"] and empty(TEXT) == []
    assert empty(skeleton.replace("return 0;", "return  0;\n")) == ["first", "second"]
    assert empty(skeleton.replace("return 0;", "return a;")) == ["second"]
    assert empty(skeleton.replace("// end exercise", "", 1)) == []


def test_exercises_may_show_in_the_same_rows(course):
    first, second = course.exercises
    assert first.shares_versions(first) and not first.shares_versions(second)
    assert replace(first, versions=()).shares_versions(second)


def test_a_task_may_go_on_in_the_next_line(course):
    assert [e.region.task for e in course.exercises] == [
        "one more than a and no less (about 1 line)", "the same in place (about 2 lines)"]


def test_an_exercise_is_called_by_its_name_its_version_or_its_file(course):
    def named(name: str) -> list[str]:
        return [exercise.name for exercise in course.named(name)]
    assert named("second") == named("in_place") == ["second"]
    assert named("sum.hip") == named("sum") == named("somewhere/sum.hip") == ["first", "second"]
    with pytest.raises(CourseError, match=r"1.1 has no exercise 'third'; it has first \(naive\), second"):
        course.named("third")


def test_a_hint_for_a_version_is_for_what_is_not_filled_in(course, workspace, capsys):
    workspace.start(course, reset=False)
    learn.hint(course, workspace, "versions/sum.hip")
    assert "1.1 first: " in capsys.readouterr().out
    path = workspace.file(course.step, "versions/sum.hip")
    path.write_text(path.read_text().replace("return 0;", "return a + 1;"))
    learn.hint(course, workspace, "versions/sum.hip")
    assert "1.1 second: " in capsys.readouterr().out
    learn.hint(course, workspace, "naive")
    assert "1.1 first: " in capsys.readouterr().out


def test_a_mistake_is_one_change_in_its_region(course):
    wrong = course.with_mistake(course.exercises[0], course.exercises[0].mistakes[0])
    assert wrong == TEXT.replace("return a + 1;", "return a;")


def test_a_mistake_that_fits_nowhere_is_named(course):
    changed(course, 'find = "a + 1"', 'find = "b + 1"')
    again = exercises.load(course.step)
    with pytest.raises(CourseError, match="occurs 0 times in 'first'"):
        again.with_mistake(again.exercises[0], again.exercises[0].mistakes[0])


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('hints = ["one", "two", "three"]', 'hints = ["one"]', "1 hints, not 3"),
        ('file = "versions/sum.hip"', 'file = "other.hip"', "there is no other.hip"),
        ('name = "second"', 'name = "first"', "the same name"),
        ('versions = ["naive"]', 'version = ["naive"]', "'version' that means nothing"),
        ('versions = ["naive"]', 'versions = "naive"', "'versions' is not a list"),
        ('name = "one too few"\n', "", "needs name, find and replace"),
        ("shapes = [", "shapes = {", "exercise.toml"),
    ])
def test_a_wrong_declaration_is_one_line(course, old, new, word):
    changed(course, old, new)
    with pytest.raises(CourseError, match=word):
        exercises.load(course.step)


def test_regions_and_exercises_must_be_as_many(course):
    changed(course, "  // end exercise\n}\ninline void", "}\ninline void", "versions/sum.hip")
    with pytest.raises(CourseError, match="no `// end exercise`"):
        exercises.load(course.step)
    (course.step.folder / "versions/sum.hip").write_text(TEXT.split("inline void second")[0])
    with pytest.raises(CourseError, match="fewer regions than exercises"):
        exercises.load(course.step)
    (course.step.folder / "versions/sum.hip").write_text(TEXT + TEXT)
    with pytest.raises(CourseError, match="more regions than exercises"):
        exercises.load(course.step)


def test_every_exercise_of_the_course_is_well_formed():
    """Each mistake fits its region, each skeleton differs from the solution."""
    for course in learn.all_courses(ROOT):
        for exercise in course.exercises:
            assert all(len(hint) > 20 for hint in exercise.hints), (course.step, exercise.name)
            for mistake in exercise.mistakes:
                assert course.with_mistake(exercise, mistake) != course.solution(exercise.file)
        for file in course.files:
            assert course.skeleton(file) != course.solution(file)


# ---- What failures share -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "passing", "names", "shared"),
    [
        (["257", "1", "1000"], ["256", "512"], ["n"], "n is no multiple of 16"),
        (["257", "1"], ["256", "1000"], ["n"], "n is no multiple of 4"),
        (["300", "260"], ["256", "512"], ["n"], "n is no multiple of 16"),
        (["17x32", "33x64"], ["16x32", "32x17"], ["M", "K"], "M is no multiple of 4"),
        (["17x32", "32x17"], ["16x32", "32x64"], ["M", "K"], "M or K is no multiple of 4"),
        (["1024", "4096"], ["256", "512"], ["n"], "n is more than 512"),
        (["1", "2"], ["256", "512", "7"], ["n"], "n is less than 7"),
        (["1", "256"], [], ["n"], "every shape fails"),
        (["3x2", "4x5"], ["1x1"], ["B", "T"], ""),  # all but one fail: they share much by chance
        (["256", "1"], ["512", "3"], ["n"], ""),
    ])
def test_what_failing_shapes_share(failing, passing, names, shared):
    assert check.common_property(failing, passing, names) == shared


def outcome(status: str = "ok", version: str = "naive", **more) -> Outcome:
    return Outcome(version, "n=257 float32", status, **more)


PLAIN = check.PLAIN
REVERSED, WIDE, EXACT = (replace(PLAIN, order="reverse"), replace(PLAIN, wave="64", order="random:7"),
                         replace(PLAIN, wave="64", order="random:7", guard="exact"))


@pytest.mark.parametrize(
    ("failing", "passing", "cause", "words"),
    [
        ([WIDE], [PLAIN, REVERSED], "wave", "only with waves of 64"),
        ([WIDE], [PLAIN, REVERSED], "order", "only where threads or blocks run in another order"),
        ([EXACT], [PLAIN, REVERSED], "guard", "only where the first byte before or behind a buffer"),
        ([REVERSED], [PLAIN, WIDE], "order", "only where threads or blocks run in another order"),
        ([REVERSED], [PLAIN, WIDE], None, ""),  # neither alone
        ([PLAIN, WIDE], [REVERSED], "wave", ""),  # not right in the plain setting
    ])
def test_what_alone_makes_a_run_fail(failing, passing, cause, words):
    """Each suspect is tried by itself; only one that fails then is named."""
    runs = [Run("257", setting, (outcome("wrong" if setting in failing else "ok"),))
            for setting in (*failing, *passing)]

    def again(shape: str, setting: check.Setting) -> Run:
        changed = [what for what in ("wave", "order", "guard")
                   if getattr(setting, what) != getattr(PLAIN, what)]
        assert shape == "257" and len(changed) == 1
        return Run(shape, setting, (outcome("wrong" if changed == [cause] else "ok"),))

    found = check.what_alone_fails(runs, again)
    assert found.startswith(words) and bool(found) == bool(words)


def failing(index: int, fault: str = "", shapes: tuple[str, ...] = ("1", "256", "257")) -> list[Run]:
    return [Run(shape, PLAIN, (outcome("wrong", failed=1, index=index),), fault)
            for shape in shapes]


def test_a_failure_is_recognised_by_its_rows_and_places():
    known = {"a": fingerprints.of(failing(0)), "b": fingerprints.of(failing(5)),
             "c": fingerprints.of(failing(0, "barrier"))}
    assert fingerprints.recognise(failing(5), known) == ["b"]
    assert fingerprints.recognise(failing(0, "barrier"), known) == ["c"]
    right = [replace(run, outcomes=(outcome(),)) for run in failing(0)]
    assert fingerprints.recognise(right, known) == []


def test_a_mistake_that_fails_in_other_runs_is_not_named():
    """Wrong in waves of 64 alone is no mistake that is wrong in every wave, however much the rest agrees."""
    settings = [PLAIN, REVERSED, WIDE]
    everywhere = [Run("257", setting, (outcome("wrong", failed=1),)) for setting in settings]
    wide_only = [Run("257", setting, (outcome("wrong" if setting == WIDE else "ok", failed=1),))
                 for setting in settings]
    known = {"everywhere": fingerprints.of(everywhere), "in waves of 64": fingerprints.of(wide_only)}
    assert fingerprints.recognise(wide_only, known) == ["in waves of 64"]
    del known["in waves of 64"]
    assert fingerprints.recognise(wide_only, known) == []


def test_fingerprints_survive_a_change_of_shapes():
    known = {"a": fingerprints.of(failing(0)), "b": fingerprints.of(failing(5))}
    others = ("256", "31", "257", "1", "4096")
    assert fingerprints.recognise(failing(5, shapes=others), known) == ["b"]
    # Two runs in common are too few, unless neither has more: one of them did not end.
    assert fingerprints.recognise(failing(5, shapes=("1", "256", "31")), known) == []
    assert fingerprints.likeness(fingerprints.of(failing(5)[:2]), known["b"]) is None
    hung = fingerprints.of(failing(0, "timeout")[:1])
    assert fingerprints.likeness(hung, dict(hung)) == 1
    assert fingerprints.likeness({}, {}) is None


def test_the_thread_that_is_seen_first_is_no_part_of_a_fingerprint():
    def said(words: str) -> dict[str, str]:
        return fingerprints.of([Run("1", PLAIN, (), "outside", words)])

    first = said("kernel sum: block (3,0,0), thread (255,0,0): reads 4 bytes past the end")
    assert first == said("kernel sum: block (1,0,0), thread (17,0,0): reads just past the end")
    assert first != said("kernel other: block (3,0,0), thread (255,0,0): reads just past the end")


def test_fingerprints_are_kept_with_what_they_depend_on(course, tmp_path):
    path = tmp_path / "signatures.json"
    signatures = fingerprints.Signatures(path)
    first, second = course.exercises
    assert signatures.is_stale(course, first) and not signatures.is_stale(course, second)
    found = {"one too few": fingerprints.of(failing(0)), "hangs": fingerprints.of(failing(0, "timeout")[:1])}
    signatures.keep(course, first, found)
    signatures.save()
    signatures = fingerprints.Signatures(path)
    assert signatures.known(course, first) == found and signatures.known(course, second) == {}
    assert not signatures.is_stale(course, first)
    changed(course, 'shapes = ["1", "256", "257"]', 'shapes = ["1", "4096"]')
    again = exercises.load(course.step)
    assert not signatures.is_stale(again, again.exercises[0])
    for old, new, file in (('versions = ["naive"]', 'versions = ["other"]', "exercise.toml"),
                           ('replace = "a"', 'replace = "0"', "exercise.toml"),
                           ("return a + 1;", "return 1 + a + 1 - 1;", "versions/sum.hip")):
        changed(course, old, new, file)
        again = exercises.load(course.step)
        assert signatures.is_stale(again, again.exercises[0]), file
        signatures.keep(again, again.exercises[0], found)
    signatures.forget_others(replace(course, exercises=(second,)))
    assert signatures.known(course, first) == {}


def test_every_mistake_of_the_course_has_a_fingerprint():
    signatures = fingerprints.load(ROOT)
    for course in learn.all_courses(ROOT):
        for exercise in course.exercises:
            known = signatures.known(course, exercise)
            assert all(words for words in known.values()), (course.step.number, exercise.name)


def test_the_first_wrong_element_has_an_owner(course):
    run = Run("257", PLAIN, ())
    wrong = outcome("wrong", index=35)
    owner_of = verdict_words.owner_of
    assert owner_of(course.exercises[0], wrong, run) == ", which block 2, thread 3 computes"
    assert owner_of(course.exercises[1], wrong, run) == ""


# ---- The workspace -----------------------------------------------------------------------------


def test_start_never_overwrites(course, workspace, capsys):
    learn.start(course, workspace, reset=False)
    mine = workspace.file(course.step, "versions/sum.hip")
    assert mine.read_text() == course.skeleton("versions/sum.hip")
    said = capsys.readouterr().out
    assert "Two vectors become one." in said and "one more than a and no less" in said
    assert f"{os.path.relpath(mine)}:6" in said or f"{mine}:6" in said
    mine.write_text("my work")
    with pytest.raises(CourseError, match="--reset"):
        learn.start(course, workspace, reset=False)
    assert mine.read_text() == "my work"
    for _ in range(2):  # twice within a second: two copies
        learn.start(course, workspace, reset=True)
    kept = sorted(mine.parent.glob("sum.hip.*.old"))
    assert len(kept) == 2 and "my work" in [path.read_text() for path in kept]
    assert mine.read_text() == course.skeleton("versions/sum.hip")


def kept_as_it_was(workspace: Workspace) -> list[str]:
    return [path.read_text() for path in workspace.folder.glob("progress.json.*.broken")]


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "steps": []}', "[" * 5000,
                                    '{"schema": 1, "steps": {"1.1": []}}', "null", "\x00", '{"steps": 1e999}'])
def test_a_progress_file_of_which_nothing_can_be_read_is_kept_beside_a_new_one(workspace, capsys, broken):
    workspace.folder.mkdir()
    path = workspace.folder / "progress.json"
    path.write_text(broken)
    assert Progress(workspace).steps == {}
    assert "progress.json has been mended" in capsys.readouterr().err
    assert kept_as_it_was(workspace) == [broken]
    assert Progress(workspace).steps == {} and capsys.readouterr().err == ""


PASSED = {"state": "passed", "started": "2030-01-02T03:04:05", "passed": "2030-01-02T04:04:05",
          "hints": {"first": 2}, "files": {"versions/sum.hip": "0" * 64}, "newer": {"key": [1]},
          "devices": {"cuda: A": {"ms": 2.0, "date": "2030-01-02T04:04:05", "version": "naive",
                                  "of_limit": None, "of_vendor": 0.5, "medal": "gold"}}}


@pytest.mark.parametrize(("change", "left", "line"), [
    ({"state": 5}, {"state"}, "'1.1', 'state' cannot be 5"),
    ({"devices": "x"}, {"devices"}, "'1.1', 'devices' cannot be \"x\": it is an object"),
    ({"hints": {"first": 10 ** 30}}, {"hints"}, "'1.1', 'hints', 'first' cannot be 1000"),
    ({"hints": {"\ud800": 1}}, {"hints"}, "'1.1', 'hints', '\\ud800' is no name there"),
    ({"files": {"x" * 300: "0" * 64}}, {"files"}, "xxx…' is no name there"),
    ({"started": "yesterday"}, {"started"}, "'1.1', 'started' cannot be \"yesterday\""),
    ({"newer": "\ud800"}, {"newer"}, "'1.1', 'newer': half of a surrogate pair is no text"),
    ({"newer": float("inf")}, {"newer"}, "'1.1', 'newer': this number is not finite"),
    ({"devices": {"cuda: A": {"ms": -1}}}, {"devices"}, "'1.1', 'devices', 'cuda: A', 'ms' cannot be -1")])
def test_a_broken_entry_of_the_progress_is_left_out_and_named(workspace, capsys, change, left, line):
    workspace.folder.mkdir()
    text = json.dumps({"schema": 1, "steps": {"1.1": {**PASSED, **change}, "7.7": PASSED}})
    (workspace.folder / "progress.json").write_text(text)
    steps_read = Progress(workspace).steps
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and line in said[0], said
    assert kept_as_it_was(workspace) == [text]
    assert steps_read["7.7"] == PASSED
    assert {key: value for key, value in steps_read["1.1"].items() if key not in left} == {
        key: value for key, value in PASSED.items() if key not in left}
    assert Progress(workspace).steps == steps_read and capsys.readouterr().err == ""


def test_the_steps_of_a_progress_file_that_is_no_json_are_read_one_by_one(workspace, capsys):
    workspace.folder.mkdir()
    path = workspace.folder / "progress.json"
    text = json.dumps({"schema": 1, "steps": {"1.1": PASSED, "1.2": PASSED, "7.7": PASSED}})
    for broken in (text[:-30], text.replace('"1.1": {', '"1.1": {"x": ' + "[" * 5000 + ", "),
                   text.replace('"naive"', '"na\n"ive"', 1), text.replace('"steps"', '"stepz"'),
                   text.replace('"1.1"', '"1.2"')):
        path.write_text(broken)
        steps_read = Progress(workspace).steps
        assert {"1.2": "passed", "7.7": "passed"}.items() <= {
            number: record.get("state") for number, record in steps_read.items()}.items()
        assert steps_read["1.2"] == PASSED
        assert broken in kept_as_it_was(workspace)
        assert "has been mended" in capsys.readouterr().err


def test_a_progress_file_that_cannot_be_read_at_all_is_left_alone(workspace):
    (workspace.folder / "progress.json").mkdir(parents=True)
    with pytest.raises(CourseError, match="cannot be read: Is a directory"):
        Progress(workspace)


def test_hints_come_one_by_one_and_stay(course, workspace, capsys):
    learn.start(course, workspace, reset=False)
    capsys.readouterr()
    for level, words in enumerate((["one"], ["one", "two"], ["one", "two", "three"]), 1):
        learn.hint(course, workspace, None)
        said = capsys.readouterr().out
        assert [word for word in ("one", "two", "three") if f". {word}" in said] == words, level
    assert "--give-up" in said
    mine = workspace.file(course.step, "versions/sum.hip")
    mine.write_text(mine.read_text().replace("return 0;", "return a + 1;"))
    learn.hint(course, workspace, None)  # the first exercise is filled in
    assert ". four" in capsys.readouterr().out
    with pytest.raises(CourseError, match=r"it has first \(naive\), second"):
        learn.hint(course, workspace, "third")


def test_the_solution_is_shown_when_it_is_found_or_given_up(course, workspace, capsys):
    learn.start(course, workspace, reset=False)
    with pytest.raises(CourseError, match="--give-up"):
        learn.solution(course, workspace, give_up=False)
    capsys.readouterr()
    learn.solution(course, workspace, give_up=True)
    said = capsys.readouterr().out
    assert "-  return 0;" in said and "+  return a + 1;" in said
    progress = Progress(workspace)
    progress.passed(course.step, workspace.texts(course))
    progress.save()
    learn.solution(course, workspace, give_up=False)


def test_only_the_text_that_has_passed_counts_as_passed(course, workspace):
    learn.start(course, workspace, reset=False)
    progress = Progress(workspace)
    progress.passed(course.step, {"versions/sum.hip": "right"})
    progress.save()
    again = Progress(workspace)
    assert again.state(course.step) == "passed"
    assert again.is_passed_text(course.step, "versions/sum.hip", "right")
    assert not again.is_passed_text(course.step, "versions/sum.hip", "right, but changed since")


def test_progress_goes_to_another_machine_and_back(course, workspace, tmp_path, capsys, monkeypatch):
    learn.start(course, workspace, reset=False)
    mine = workspace.file(course.step, "versions/sum.hip")
    mine.write_text("my work")
    progress = Progress(workspace)
    progress.passed(course.step, {"versions/sum.hip": "my work"})
    progress.measured(course.step, "cpu: A", {"ms": 2.0})
    progress.measured(course.step, "cpu: A", {"ms": 3.0})  # slower: the best stays
    progress.save()
    exported = tmp_path / "progress.export"
    learn.export_progress(workspace, exported)
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path / "elsewhere"))
    other = Workspace(tmp_path)
    learn.import_progress(other, exported)
    assert other.file(course.step, "versions/sum.hip").read_text() == "my work"
    there = Progress(other)
    assert there.state(course.step) == "passed"
    assert there.steps["1.1"]["devices"]["cpu: A"]["ms"] == 2.0
    other.file(course.step, "versions/sum.hip").write_text("other work")
    learn.import_progress(other, exported)
    assert other.file(course.step, "versions/sum.hip").read_text() == "other work"
    assert "yours stays" in capsys.readouterr().err


def export(**more) -> str:
    return json.dumps({"schema": 1, "steps": {}, "files": {}, **more})


@pytest.mark.parametrize(("text", "line"), [
    ("{", "line 1 column 2"), ("[]", "not written by"), ('{"schema": 1, "steps": {}}', "not written by"),
    (export(schema=2), "'schema' cannot be 2"), ("[" * 5000, "nested too deeply"),
    (export(steps={"7.7": {"state": 5}}), "'steps', '7.7', 'state' cannot be 5"),
    (export(steps={"7.7": []}), "'steps', '7.7' cannot be []: it is an object"),
    (export(steps={"7.7": {"devices": "x"}}), "'devices' cannot be \"x\""),
    (export(steps={"../7": {}}), "'../7' is no name there"),
    (export(steps={"7.7": {"hints": {"\ud800": 1}}}), "'\\ud800' is no text"),
    (export(steps={"7.7": {"devices": {"cpu": {"ms": 10 ** 400}}}}), "is too large"),
    (export(files={"../../outside.h": "x"}), "is no name there"),
    (export(files={"/etc/outside.h": "x"}), "is no name there"),
    (export(files={"a/../b.h": "x"}), "is no name there"),
    (export(files={"run.sh": "x"}), "is no name there"),
    (export(files={"x" * 300 + ".h": "x"}), "is no name there"),
    (export(files={"\x1b[31m.h": "x"}), "'\\u001b[31m.h' is no name there"),
    (export(files={"a.h": "x", "b.h": "\ud800"}), "half of a surrogate pair"),
    (export(files={"a.h": "x", "b.h": 5}), "'b.h' cannot be 5"),
    (export(files={"a.h": "x", "a.h/b.h": "y"}), "cannot be both a file and a folder"),
    (export(files={"folder.h": "x"}), "cannot be both a file and a folder"),
    (export(files={"file.h/x.h": "x"}), "cannot be both a file and a folder")])
def test_a_wrong_import_is_one_line_and_touches_nothing(workspace, tmp_path, text, line):
    path = tmp_path / "export"
    path.write_text(text)
    (workspace.folder / "folder.h").mkdir(parents=True)
    (workspace.folder / "file.h").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CourseError) as refused:
        learn.import_progress(workspace, path)
    assert refused.value.code == USAGE and line in str(refused.value) and "\n" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_import_takes_nothing_away(workspace, tmp_path):
    workspace.folder.mkdir()
    here = {"1.1": {"state": "in progress", "hints": {"first": 3}, "started": "2030-01-01T00:00:00",
                    "devices": {"cuda: A": {"ms": 1.0}, "cuda: B": {"ms": 1.0}}}, "1.2": {"state": "passed"}}
    there = {"1.1": PASSED, "7.7": PASSED}
    (workspace.folder / "progress.json").write_text(json.dumps({"schema": 1, "steps": here}))
    (tmp_path / "export").write_text(export(steps=there))
    learn.import_progress(workspace, tmp_path / "export")
    now = Progress(workspace).steps
    assert now["1.2"] == here["1.2"] and now["7.7"] == PASSED
    assert now["1.1"] == {**PASSED, **here["1.1"], "state": "passed"}


# ---- watch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_inotify", [True, False])
@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_a_saved_file_is_noticed(tmp_path, use_inotify, how):
    folder = tmp_path / "stage1" / "01_sum"
    folder.mkdir(parents=True)
    path = folder / "sum.hip"
    path.write_text("old")
    changes = watch.Changes(tmp_path, use_inotify)
    assert changes.wait(None, seconds=0.05) == ([], "")

    def save() -> None:
        time.sleep(0.2)
        if how == "in place":
            path.write_text("new text")
        else:  # as most editors do
            (folder / "sum.hip.tmp").write_text("new text")
            os.replace(folder / "sum.hip.tmp", path)

    thread = threading.Thread(target=save)
    thread.start()
    assert changes.wait(None, seconds=10) == ([path], "")
    thread.join()
    assert changes.wait(None, seconds=0.05) == ([], "")
    changes.close()


def test_a_key_is_noticed(tmp_path):
    ours, theirs = pty.openpty()
    changes = watch.Changes(tmp_path)
    os.write(ours, b"h\n")
    assert changes.wait(theirs, seconds=10) == ([], "h")
    changes.close()
    os.close(ours)
    os.close(theirs)
