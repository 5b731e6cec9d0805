"""How long checks take (scripts/exercises.py --times): with checks that only say what they are told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import ROOT
from course_lib import check_times, exercises, steps
from course_lib.errors import CourseError
from course_lib.exercises import Course

RIGHT = "build ok\nsafety       ok   no access outside a buffer; ThreadSanitizer found no race\n"
WRONG = "correctness  FAILED   3 of 28 runs\n"


@pytest.fixture
def course() -> Course:
    return exercises.load(next(step for step in steps.discover(ROOT) if step.name == "vector_add"))


@pytest.fixture
def checks(course: Course, monkeypatch) -> list[dict[str, str]]:
    """The texts that were checked. What differs from the solution where something is written is refused."""
    seen: list[dict[str, str]] = []

    def check(watch: check_times.Stopwatch) -> str:
        texts = {name: watch._workspace.file(course.step, name).read_text() for name in course.files}
        seen.append(texts)
        time.sleep(0.01)
        written = [exercise for exercise in course.exercises if exercise not in course.empty(texts)]
        filled = course.filled(texts, written)
        return RIGHT if all(text.startswith(course.solution(name)) for name, text in filled.items()) else WRONG

    monkeypatch.setattr(check_times.Stopwatch, "_check", check)
    return seen


def test_every_exercise_is_checked_alone_right_and_wrong_and_then_all_of_them(course, checks, capsys):
    assert check_times.of_all(ROOT, [course]) == 0
    texts = checks[1:]  # behind the one that builds
    count = len(course.exercises)
    assert len(texts) == 2 * count + 1
    for number, exercise in enumerate(course.exercises):
        for written in texts[2 * number:2 * number + 2]:
            assert course.empty(written) == [other for other in course.exercises if other is not exercise]
    assert not course.empty(texts[-1])
    endings = [text[max(course.files)].splitlines()[-1] for text in checks]
    assert len(set(endings)) == len(endings)  # no text is known
    said = capsys.readouterr().out
    assert "passes  median 0.0 s (bar 6), worst 0.0 s (bar 15): 1.1 " in said
    assert said.count(f"{count} checks: held") == 2 and "fails   median 0.0 s (bar 3)" in said
    assert "all written at once: median 0.0 s" in said


def test_a_bar_that_is_not_held_is_said(course, checks, monkeypatch, capsys):
    monkeypatch.setattr(check_times, "BARS", {"passes": (9.0, 9.0), "fails": (9.0, 0.001)})
    assert check_times.of_all(ROOT, [course]) == 1
    said = capsys.readouterr().out
    assert "passes" in said and ": held" in said and ": above" in said


@pytest.mark.parametrize(("always", "finding"), [
    (WRONG, "does not fit 'passes'"),
    (RIGHT, "does not fit 'fails'"),
    (RIGHT.replace("ThreadSanitizer found no race", "nobody looked for races: none here"),
     "ThreadSanitizer has not looked"),
])
def test_what_does_not_do_what_it_should_is_no_time(course, checks, monkeypatch, capsys, always, finding):
    monkeypatch.setattr(check_times.Stopwatch, "_check", lambda self: always)
    with pytest.raises(CourseError, match="has not done what it should"):
        check_times.of_all(ROOT, [course])
    assert finding in capsys.readouterr().out


def test_an_exercise_is_emptied_and_its_neighbours_are_not(course):
    file = course.files[0]
    first, second = [exercise for exercise in course.exercises if exercise.file == file][:2]
    text = course.emptied(file, course.solution(file), [first])
    assert course.empty({file: text}) == [first]
    assert second.name in text and Path(file).suffix == ".hip"
