"""How long `course check` takes: a pass and a failure of every exercise, each by the command itself.

An exercise is written alone, as the solution has it or with its first known mistake, while the others of its
step are still empty; at the end all of them are written. Every text has a line of its own, so that nothing is
known of it. What a check builds once for a step is there before anything is timed.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import FAILED, CourseError
from .exercises import Course, Exercise
from .terminal import Column, format_table, say
from .workspace import Workspace

# Seconds on two idle cores: of the median over all exercises, one at a time, and of the worst.
BARS = {"passes": (6.0, 15.0), "fails": (3.0, 6.0)}
TIMEOUT = 600.0
WHOLE = "all of them"


@dataclass(frozen=True)
class Taken:
    """One check."""

    step: str
    exercise: str
    what: str  # "passes" or "fails"
    seconds: float
    processor: float  # seconds of all processors together
    finding: str = ""  # it has not done what it should


class Stopwatch:
    """Checks texts of a step as a learner's, in a workspace of its own."""

    def __init__(self, root: Path, course: Course, folder: Path):
        self.root, self.course = root, course
        self._workspace = Workspace(root, folder)
        self._number = 0

    def take(self, name: str, what: str, texts: dict[str, str]) -> Taken:
        step = self.course.step
        self._number += 1
        for file, text in texts.items():
            path = self._workspace.file(step, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}// {os.getpid()}.{self._number}\n", encoding="utf-8")
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        said = self._check()
        seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        failed = "FAILED" in said or "\nsafety       ok" not in said
        finding = "" if failed == (what == "fails") else f"{step.number} {name} does not fit '{what}':\n{said}"
        if what == "passes" and "nobody looked for races" in said:
            finding = f"{step.number} {name}: ThreadSanitizer has not looked:\n{said}"
        return Taken(step.number, name, what, seconds, processor, finding)

    def _check(self) -> str:
        command = [sys.executable, str(self.root / "scripts" / "course"), "check", self.course.step.number,
                   "--backend", "cpu", "--no-setup"]
        environment = {**os.environ, "COURSE_WORKSPACE": str(self._workspace.folder), "NO_COLOR": "1"}
        done = subprocess.run(command, env=environment, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT)
        return done.stdout + done.stderr


def with_text_of(course: Course, exercise: Exercise, text: str) -> dict[str, str]:
    """Skeletons of all files, but for `text`, in which one exercise is written and the others of its file
    are not."""
    files = {file: course.skeleton(file) for file in course.files}
    others = [other for other in course.exercises if other.file == exercise.file and other is not exercise]
    files[exercise.file] = course.emptied(exercise.file, text, others)
    return files


def of_step(root: Path, course: Course) -> list[Taken]:
    """Every exercise of a step, and all of them together."""
    solution = {file: course.solution(file) for file in course.files}
    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch(root, course, Path(folder))
        watch.take(WHOLE, "passes", solution)  # what is built once is built now
        taken = []
        for exercise in course.exercises:
            texts = with_text_of(course, exercise, course.solution(exercise.file))
            taken.append(watch.take(exercise.name, "passes", texts))
            if exercise.mistakes:
                wrong = course.with_mistake(exercise, exercise.mistakes[0])
                taken.append(watch.take(exercise.name, "fails", with_text_of(course, exercise, wrong)))
        return [*taken, watch.take(WHOLE, "passes", solution)]


def of_all(root: Path, courses: list[Course]) -> int:
    """Times the checks of all steps, prints them, and says whether the bars are held."""
    taken: list[Taken] = []
    for course in courses:
        taken += of_step(root, course)
        say_step(course, [one for one in taken if one.step == course.step.number])
    for one in taken:
        if one.finding:
            say(one.finding, "red")
    above = False
    for what, (median_bar, worst_bar) in BARS.items():
        some = [one for one in taken if one.what == what and one.exercise != WHOLE]
        if not some:
            continue
        median = statistics.median(one.seconds for one in some)
        worst = max(some, key=lambda one: one.seconds)
        is_held = median <= median_bar and worst.seconds <= worst_bar
        above = above or not is_held
        say(f"{what:6}  median {median:.1f} s (bar {median_bar:.0f}), worst {worst.seconds:.1f} s (bar "
            f"{worst_bar:.0f}): {worst.step} {worst.exercise}; {len(some)} checks: "
            f"{'held' if is_held else 'above'}", "" if is_held else "red")
    whole = [one.seconds for one in taken if one.exercise == WHOLE]
    say(f"a step's exercises, all written at once: median {statistics.median(whole):.1f} s, "
        f"worst {max(whole):.1f} s")
    if any(one.finding for one in taken):
        raise CourseError("a check has not done what it should", FAILED)
    return FAILED if above else 0


def say_step(course: Course, taken: list[Taken]) -> None:
    def shown(name: str, what: str) -> list[str]:
        one = next((one for one in taken if (one.exercise, one.what) == (name, what)), None)
        return [f"{one.seconds:.1f}", f"{one.processor:.1f}"] if one else ["", ""]

    names = list(dict.fromkeys(one.exercise for one in taken))
    columns = [Column(f"{course.step.number} {course.step.name}"), Column("pass s", right=True),
               Column("processors' s", right=True), Column("failure s", right=True),
               Column("processors' s", right=True)]
    for line in format_table(columns, [[name, *shown(name, "passes"), *shown(name, "fails")] for name in names], 100):
        say(line)
