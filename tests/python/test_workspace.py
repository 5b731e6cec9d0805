"""The workspace: no work of a learner's is ever lost, hints come one by one, and progress travels."""

from __future__ import annotations

import json
import os

import pytest
from course_lib import learn
from course_lib.errors import USAGE, CourseError
from course_lib.workspace import Progress, Workspace


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


def test_of_an_entry_that_is_there_twice_and_broken_once_nothing_is_lost(workspace, capsys):
    workspace.folder.mkdir()
    record = {**PASSED, "hints": {"first": 2, "second": 1}}
    del record["newer"]  # in a broken record only this course's own names are looked for
    text = json.dumps({"schema": 1, "steps": {"1.1": record}})
    broken = text.replace('"1.1": {', '"1.1": {"hints": {"first": @, "second": 3}, ')
    (workspace.folder / "progress.json").write_text(broken)
    assert Progress(workspace).steps == {"1.1": {**record, "hints": {"first": 2, "second": 3}}}
    assert kept_as_it_was(workspace) == [broken] and "'hints' cannot be read" in capsys.readouterr().err


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
