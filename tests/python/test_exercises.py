"""Exercises: what a skeleton is, what failures share, and what a check says of them.

Nothing is compiled here; scripts/exercises.py holds the real exercises to the rules of the course.
"""

from __future__ import annotations

import os
import pty
import threading
import time
from dataclasses import replace

import pytest
from conftest import ROOT, STEP_TEXT, changed
from course_lib import check, exercises, fingerprints, learn, verdict_words, watch
from course_lib.check import Outcome, Run
from course_lib.errors import CourseError


# ---- Regions, skeletons, mistakes --------------------------------------------------------------


def test_a_skeleton_differs_only_inside_the_regions(course):
    skeleton = course.skeleton("versions/sum.hip").splitlines()
    assert "  return 0;" in skeleton and "  return a + 1;" not in skeleton
    assert "  const int old = *b;" not in skeleton
    outside = [line for line in STEP_TEXT.splitlines()
               if line.strip() not in ("return a + 1;", "const int old = *b;", "*b = old + 1;")]
    assert [line for line in skeleton if line != "  return 0;"] == outside


def test_what_is_not_written_yet_is_known(course):
    def empty(text: str) -> list[str]:
        return [exercise.name for exercise in course.empty({"versions/sum.hip": text})]
    skeleton = course.skeleton("versions/sum.hip")
    assert empty(skeleton) == ["first", "second"] and empty(STEP_TEXT) == []
    assert empty(skeleton.replace("return 0;", "return  0;\n")) == ["first", "second"]
    assert empty(skeleton.replace("return 0;", "return a;")) == ["second"]
    assert empty(skeleton.replace("// end exercise", "", 1)) == []


def test_exercises_in_plain_cpp_run_in_two_settings_and_kernels_in_all(course):
    first, second = course.exercises
    assert check.settings_of(course) == check.SETTINGS
    mixed = replace(course, exercises=(replace(first, file="versions/sum.cpp", versions=("one",)),
                                       replace(second, versions=("two",))))
    assert check.settings_of(mixed, ["one"]) == check.HOST_SETTINGS
    assert check.settings_of(mixed, ["two"]) == check.settings_of(mixed) == check.SETTINGS


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
    assert wrong == STEP_TEXT.replace("return a + 1;", "return a;")


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
    (course.step.folder / "versions/sum.hip").write_text(STEP_TEXT.split("inline void second")[0])
    with pytest.raises(CourseError, match="fewer regions than exercises"):
        exercises.load(course.step)
    (course.step.folder / "versions/sum.hip").write_text(STEP_TEXT + STEP_TEXT)
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
