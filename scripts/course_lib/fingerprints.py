"""Fingerprints of known mistakes: which rows of which runs fail, and in which way.

A fingerprint holds a word `coarse.fine` for each run, by the run's shape and setting: which rows were wrong
in which way; where, and how often. Two fingerprints are compared in the
runs that both have, so that a shape more or less in exercise.toml leaves the known ones valid.

scripts/exercises.py derives them and keeps them in signatures.json, which nobody edits by hand:

    step -> exercise -> {"digest": "...", "runs": ["1 32 forward end", ...],
                         "mistakes": {name: "word word ..."}}    # a word for each of the runs

The words of a mistake end early where a run did not end: no other is begun after it. The digest is that
of all that a fingerprint depends on: the exercise's solution, versions, arguments and mistakes.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from . import documents
from .check import Run, Setting
from .documents import is_list_of_texts, quoted, require
from .errors import FAILED, CourseError
from .exercises import Course, Exercise

LIKENESS = 0.85  # from here on a failure is said to look like a known mistake
SAME_RUNS = 0.95  # share of the runs in which the same rows must fail in the same way
LEAST_RUNS = 3  # that two fingerprints must share to be compared

Words = dict[str, str]  # run -> its word


def of(runs: list[Run]) -> Words:
    """The fingerprint of what these runs have shown."""

    def short(*parts) -> str:
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:5]

    words = {}
    for run in runs:
        coarse = [run.fault, *((o.version, o.problem, o.status) for o in run.outcomes)]
        # Which of the threads that go wrong is seen first is chance; its kernel is not.
        kernel = re.search(r"kernel (\w+)", run.message) if run.fault else None
        fine = [kernel and kernel[1], *((o.failed, o.index) for o in run.outcomes
                                        if o.status != "ok")]
        words[key_of(run.shape, run.setting)] = f"{short(*coarse)}.{short(*fine)}"
    return words


def key_of(shape: str, setting: Setting) -> str:
    return f"{shape or 'default'} {setting.wave} {setting.order} {setting.guard}"


def likeness(a: Words, b: Words) -> float | None:
    """1: the same rows of the same runs fail in the same places; 0: other rows or other runs fail, which
    the general words describe better; None: they share too few runs to be compared. Fingerprints of the
    same few runs, of which one did not end, can be."""
    shared = a.keys() & b.keys()
    if not shared or (len(shared) < LEAST_RUNS and a.keys() != b.keys()):
        return None
    same_rows = sum(a[key].split(".")[0] == b[key].split(".")[0] for key in shared)
    same = sum(a[key] == b[key] for key in shared)
    if same_rows < SAME_RUNS * len(shared):
        return 0.0
    return (0.6 * same_rows + 0.4 * same) / len(shared)


def recognise(runs: list[Run], known: dict[str, Words]) -> list[str]:
    """The names of the known mistakes that these runs look like most: none, one, or a few that
    can't be told apart."""
    seen = of(runs)
    scores = {name: likeness(seen, words) or 0.0 for name, words in known.items()}
    best = max(scores.values(), default=0.0)
    return [name for name, score in scores.items() if score == best] if best >= LIKENESS else []


def digest(course: Course, exercise: Exercise) -> str:
    """Of what the fingerprints of an exercise's mistakes depend on. The shapes are no part of it."""
    lines = course.solution(exercise.file).splitlines()
    region = [line.strip() for line in lines[exercise.region.first:exercise.region.last]]
    mistakes = [(mistake.name, mistake.find, mistake.replace) for mistake in exercise.mistakes]
    parts = [region, exercise.versions, course.arguments, mistakes]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


# ---- The file ----------------------------------------------------------------------------------


def _validate(contents: object) -> None:
    """Raises ValueError where this is not laid out as signatures.json is."""
    require(contents, {}, "what it holds")
    for number, exercises in contents.items():
        require(exercises, {}, quoted(number))
        for name, record in exercises.items():
            place = f"{quoted(number)}, {quoted(name)}"
            require(record, {"digest": str, "runs": is_list_of_texts, "mistakes": dict}, place)
            require(record["mistakes"], dict.fromkeys(record["mistakes"], str), f"{place}, mistakes")


class Signatures:
    """What signatures.json holds."""

    def __init__(self, path: Path):
        self.path = path
        self._steps: dict[str, dict] = {}
        if path.is_file():
            try:
                self._steps = documents.load(path, _validate)
            except ValueError as error:
                raise CourseError(str(error), FAILED) from None

    def known(self, course: Course, exercise: Exercise) -> dict[str, Words]:
        """mistake -> fingerprint; empty where none was derived."""
        record = self._steps.get(course.step.number, {}).get(exercise.name)
        if record is None:
            return {}
        return {name: dict(zip(record["runs"], words.split()))
                for name, words in record["mistakes"].items()}

    def is_stale(self, course: Course, exercise: Exercise) -> bool:
        """Whether the exercise has changed since its fingerprints were derived, or has none."""
        record = self._steps.get(course.step.number, {}).get(exercise.name)
        if record is None:
            return bool(exercise.mistakes)
        return record["digest"] != digest(course, exercise)

    def keep(self, course: Course, exercise: Exercise, found: dict[str, Words]) -> None:
        """Replaces what is known of an exercise."""
        runs = max(found.values(), key=len, default={})
        record = {"digest": digest(course, exercise), "runs": list(runs),
                  "mistakes": {name: " ".join(words.values()) for name, words in found.items()}}
        self._steps.setdefault(course.step.number, {})[exercise.name] = record

    def forget_others(self, course: Course) -> None:
        """Drops the exercises that the step no longer has."""
        names = {exercise.name for exercise in course.exercises}
        step = self._steps.get(course.step.number, {})
        self._steps[course.step.number] = {name: record for name, record in step.items() if name in names}

    def save(self) -> None:
        text = json.dumps(dict(sorted(self._steps.items())), indent=0, sort_keys=True)
        # The runs of an exercise stand in a line.
        text = re.sub(r"\[\n([^\]]*)\n\]", lambda match: f"[{match[1]}]".replace("\n", " "), text)
        self.path.write_text(text + "\n", encoding="utf-8")


def load(root: Path) -> Signatures:
    return Signatures(root / "scripts" / "course_lib" / "signatures.json")
