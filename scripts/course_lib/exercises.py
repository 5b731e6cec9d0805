"""Exercises: regions of a step's version files, declared with their hints and known mistakes beside the
step.

In a file the lines between `// exercise: <what to do> (about N lines)` and `// end exercise` are an
exercise. `exercise.toml` in the step's folder says the rest, an entry per region in the order of the
files:

    shapes = ["1", "257", "1000"]     # what `check` runs: --size of the step's program
    arguments = []                    # further words for its command line
    aligned = true                    # optional: kernels rely on HIP's alignment of whole buffers
    optimized = false                 # optional: `check` compiles without any optimization, and does not
                                      # look for what is not aligned as its type asks
    races = { size = "300" }          # optional: the run under ThreadSanitizer; may have `arguments`, too.
                                      # Or { none = "why there can be no race" }: there is no such run

    [[exercise]]
    name = "block_sum_tree"           # the region's function or kernel
    file = "versions/shared_tree.hip"
    versions = ["shared_tree"]        # the rows of the program's table that it shows in
    owner = { block = "i // 256", thread = "i % 256" }   # optional: who computes element i
    blank = "return 0;"               # optional: what a skeleton needs to compile
    hints = ["where to look", "how it goes", "nearly the lines"]

    [[exercise.mistake]]
    name = "a missing barrier after the load"
    find = "__syncthreads();  // all are in shared memory"     # occurs once in the region
    replace = ""
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args, get_origin

from . import documents
from .documents import quoted
from .errors import FAILED, USAGE, CourseError
from .steps import Step

HINTS = 3  # of each exercise

BEGIN = re.compile(r"^(\s*)// exercise: (.*)$")
END = re.compile(r"^\s*// end exercise\s*$")
COMMENT = re.compile(r"^\s*// ?(.*)$")


@dataclass(frozen=True)
class Region:
    """Where an exercise stands in a file: lines[first:last] are what the learner writes."""

    task: str  # "the tree above (about 6 lines)"
    first: int
    last: int
    indent: str


@dataclass(frozen=True)
class Mistake:
    """A known way to get an exercise wrong: a patch on the solution."""

    name: str
    find: str
    replace: str


@dataclass(frozen=True)
class Exercise:
    name: str
    file: str
    region: Region
    versions: tuple[str, ...]
    hints: tuple[str, ...]
    blank: str = ""
    owner: dict[str, str] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()

    def shares_versions(self, other: Exercise) -> bool:
        """Whether both show in the same row of the program's table. No versions are all."""
        return (not self.versions or not other.versions
                or not set(self.versions).isdisjoint(other.versions))


@dataclass(frozen=True)
class RaceRun:
    """What the step's program is told where ThreadSanitizer looks for races."""

    size: str
    arguments: tuple[str, ...]
    none: str = ""  # why there is nothing to look for; then nobody looks


@dataclass(frozen=True)
class Course:
    """What a step asks of its learner."""

    step: Step
    shapes: tuple[str, ...]
    arguments: tuple[str, ...]
    exercises: tuple[Exercise, ...]
    races: RaceRun = RaceRun("", ())
    aligned: bool = False  # kernels rely on the alignment of whole buffers
    optimized: bool = True  # else a check compiles as little as it can: many kernels, and little for them to do

    @property
    def files(self) -> list[str]:
        """The files that hold exercises, in the order of exercise.toml."""
        return list(dict.fromkeys(exercise.file for exercise in self.exercises))

    def has_kernels(self, versions: Sequence[str] = ()) -> bool:
        """Whether an exercise that shows in one of these versions (none: in any) is in a file of kernels."""
        files = [file for version in versions for file in self.files_of(version)] or self.files
        return any(file.endswith(".hip") for file in files)

    def files_of(self, version: str) -> list[str]:
        """The files whose exercises show in a row of the program's table."""
        return list(dict.fromkeys(exercise.file for exercise in self.exercises
                                  if not exercise.versions or version in exercise.versions))

    def named(self, name: str) -> list[Exercise]:
        """The exercises that a name means: one by its own, or all that show in a version, by which the
        messages of `check` call them, or that stand in a file. Raises CourseError(USAGE) where it means
        none."""
        plain = name.rpartition("/")[2]
        for matches in (lambda e: e.name == name, lambda e: name in e.versions,
                        lambda e: plain in (Path(e.file).name, Path(e.file).stem)):
            found = [exercise for exercise in self.exercises if matches(exercise)]
            if found:
                return found
        lines = [e.name + (f" ({', '.join(e.versions)})" if e.versions else "") for e in self.exercises]
        raise CourseError(f"{self.step.number} has no exercise '{name}'; it has {', '.join(lines)}", USAGE)

    @property
    def versions(self) -> list[str]:
        """The rows of the program's table that any exercise shows in; none: all."""
        return self.versions_in(self.files)

    def versions_in(self, files: list[str]) -> list[str]:
        """Those that an exercise of these files shows in; none: all."""
        chosen = [exercise for exercise in self.exercises if exercise.file in files]
        if not all(exercise.versions for exercise in chosen):
            return []
        return list(dict.fromkeys(v for exercise in chosen for v in exercise.versions))

    def solution(self, file: str) -> str:
        return documents.text_for_user(self.step.folder / file)

    def skeleton(self, file: str) -> str:
        """The file with its regions emptied, and nothing else changed."""
        return self.emptied(file, self.solution(file), list(self.exercises))

    def emptied(self, file: str, text: str, some: list[Exercise]) -> str:
        """A text of the file, in which the regions of some exercises are emptied."""
        lines = text.splitlines(keepends=True)
        for exercise, place in reversed(self._places(file, text)):
            if exercise in some:
                body = [f"{place.indent}{line}\n" for line in exercise.blank.splitlines()]
                lines[place.first : place.last] = body
        return "".join(lines)

    def empty(self, texts: dict[str, str]) -> list[Exercise]:
        """Those that nothing has been written into yet. Where the marks of a file are gone: none."""
        found: list[Exercise] = []
        for file, text in texts.items():
            lines = text.splitlines()
            found += [exercise for exercise, place in self._places(file, text)
                      if " ".join(lines[place.first : place.last]).split() == exercise.blank.split()]
        return found

    def filled(self, texts: dict[str, str], written: list[Exercise]) -> dict[str, str]:
        """The texts with the repository's lines in all regions but those of `written`; without the files
        in which nothing is written. A file whose marks are gone stays as it is."""
        found = {}
        for file, text in texts.items():
            if not any(exercise.file == file for exercise in written):
                continue
            lines, solution = text.splitlines(keepends=True), self.solution(file).splitlines(keepends=True)
            for exercise, place in reversed(self._places(file, text)):
                if exercise not in written:
                    region = exercise.region
                    lines[place.first : place.last] = solution[region.first : region.last]
            found[file] = "".join(lines)
        return found

    def holds(self, exercise: Exercise, text: str, line: int) -> bool:
        """Whether a line of a learner's file, counted from 1, is in the region of the exercise."""
        return any(own is exercise and place.first < line <= place.last
                   for own, place in self._places(exercise.file, text))

    def _places(self, file: str, text: str) -> list[tuple[Exercise, Region]]:
        """Where the exercises of a file stand in a learner's text; none, where its marks are gone."""
        own = [exercise for exercise in self.exercises if exercise.file == file]
        try:
            places = regions(text, file)
        except CourseError:
            return []
        return list(zip(own, places)) if len(places) == len(own) else []

    def with_mistake(self, exercise: Exercise, mistake: Mistake) -> str:
        """The solution with one mistake in one region."""
        lines = self.solution(exercise.file).splitlines(keepends=True)
        region = exercise.region
        body = "".join(lines[region.first : region.last])
        if body.count(mistake.find) != 1:
            raise CourseError(
                f"{self.step.folder.name}/exercise.toml: '{mistake.find}' of the mistake "
                f"'{mistake.name}' occurs {body.count(mistake.find)} times in '{exercise.name}', "
                "not once", FAILED)
        lines[region.first : region.last] = [body.replace(mistake.find, mistake.replace)]
        return "".join(lines)


def regions(text: str, name: str) -> list[Region]:
    """The exercises of a file, in order. Raises CourseError(FAILED) where one is not closed."""
    lines = text.splitlines()
    found: list[Region] = []
    at = 0
    while at < len(lines):
        begin = BEGIN.match(lines[at])
        if not begin:
            at += 1
            continue
        opened, task = at + 1, begin[2]
        at += 1
        # A task of several lines goes on as a comment until it has said how long the solution is.
        while not task.endswith(" lines)") and not task.endswith(" line)"):
            more = COMMENT.match(lines[at]) if at < len(lines) else None
            if more is None:
                break
            task += " " + more[1]
            at += 1
        first = at
        while at < len(lines) and not END.match(lines[at]):
            if BEGIN.match(lines[at]):
                break
            at += 1
        if at == len(lines) or not END.match(lines[at]):
            raise CourseError(f"{name}:{opened}: this exercise has no `// end exercise`", FAILED)
        found.append(Region(task, first, at, begin[1]))
    return found


def has_exercises(step: Step) -> bool:
    return (step.folder / "exercise.toml").is_file()


def _is_of(value: object, kind: type) -> bool:
    """Whether it is of this type: str, dict, or list[str] and the like."""
    if not isinstance(value, get_origin(kind) or kind):
        return False
    inner = get_args(kind)
    items = value.values() if isinstance(value, dict) else value
    return not inner or all(isinstance(one, inner[-1]) for one in items)


def load(step: Step) -> Course:
    """What the step's exercise.toml declares. Raises CourseError: USAGE where the step has none,
    FAILED where it and the files don't agree."""
    path = step.folder / "exercise.toml"
    if not path.is_file():
        raise CourseError(f"step {step.number} ({step.name}) has no exercises for "
                          "`scripts/course start`: its README.md says what to try there", USAGE)
    try:
        declared = documents.read_toml(path)
    except ValueError as error:
        raise CourseError(str(error), FAILED) from None

    def wrong(what: str) -> CourseError:
        return CourseError(f"{path.parent.name}/exercise.toml: {what}", FAILED)

    def taken(record: dict, keys: dict[str, type], place: str) -> None:
        for key, value in record.items():
            if key not in keys:
                raise wrong(f"{place} has a key {quoted(key)} that means nothing")
            if not _is_of(value, keys[key]):
                raise wrong(f"{place}: '{key}' is not a {getattr(keys[key], '__name__', keys[key])}")

    taken(declared, {"shapes": list[str], "arguments": list[str], "aligned": bool, "optimized": bool, "races": dict,
                     "exercise": list[dict]}, "the file")
    taken(declared.get("races", {}), {"size": str, "arguments": list[str], "none": str}, "'races'")
    found = {}
    exercises = []
    for entry in declared.get("exercise", []):
        place = f"exercise {quoted(str(entry.get('name', '?')))}"
        taken(entry, {"name": str, "file": str, "versions": list[str], "owner": dict[str, str], "blank": str,
                      "hints": list[str], "mistake": list[dict]}, place)
        for key in ("name", "file", "hints"):
            if key not in entry:
                raise wrong(f"{place} has no '{key}'")
        if len(entry["hints"]) != HINTS:
            raise wrong(f"{place} has {len(entry['hints'])} hints, not {HINTS}")
        file = entry["file"]
        if not documents.is_path(file) or not (step.folder / file).is_file():
            raise wrong(f"{place}: there is no {quoted(file)[1:-1]}")
        if not file.startswith("versions/"):
            raise wrong(f"{place}: {file} is no file of versions/, of which each is compiled alone")
        if file not in found:
            found[file] = iter(regions(documents.text_for_user(step.folder / file), file))
        region = next(found[file], None)
        if region is None:
            raise wrong(f"{file} has fewer regions than exercises: nothing for {quoted(entry['name'])}")
        mistakes = []
        for mistake in entry.get("mistake", []):
            taken(mistake, {"name": str, "find": str, "replace": str}, f"a mistake of {place}")
            if {"name", "find", "replace"} - mistake.keys():
                raise wrong(f"a mistake of {place} needs name, find and replace")
            mistakes.append(Mistake(**mistake))
        exercises.append(Exercise(
            entry["name"], file, region, tuple(entry.get("versions", [])), tuple(entry["hints"]),
            entry.get("blank", ""), entry.get("owner", {}), tuple(mistakes)))
    for file, left in found.items():
        if next(left, None) is not None:
            raise wrong(f"{file} has more regions than exercises")
    names = [exercise.name for exercise in exercises]
    if len(set(names)) != len(names):
        raise wrong("two exercises have the same name")
    if not exercises:
        raise wrong("no [[exercise]]")
    shapes, arguments = tuple(declared.get("shapes", [])), tuple(declared.get("arguments", []))
    races = declared.get("races", {})
    return Course(step, shapes, arguments, tuple(exercises),
                  RaceRun(races.get("size", shapes[0] if shapes else ""),
                          tuple(races.get("arguments", arguments)), races.get("none", "")), declared.get("aligned", False),
                  declared.get("optimized", True))
