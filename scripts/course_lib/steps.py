"""The steps: found in the folders stageN_x/NN_name, named on the command line in several ways."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import USAGE, CourseError


# Trainings that take minutes on the CPU backend for each version, and the one that `course run` shows
# there: none is faster there than it.
LONG_TRAININGS = {"train_cnn": "graph", "train_shakespeare": "graph"}

VERSION_SUFFIXES = (".hip", ".cpp")


@dataclass(frozen=True)
class Step:
    number: str  # "1.1": stage and place in it
    name: str  # "vector_add": also the program and the CMake target
    folder: Path

    @property
    def stage(self) -> int:
        return int(self.number.split(".")[0])

    @property
    def order(self) -> tuple[int, int]:
        stage, place = self.number.split(".")
        return int(stage), int(place)

    def versions(self) -> list[str]:
        """The names of its version files, in the order of the contract's kVersions where that has
        them; those that it leaves out come last."""
        names = sorted(self.version_files())
        contract = self.folder / f"{self.name}.h"
        text = contract.read_text(encoding="utf-8") if contract.is_file() else ""
        listed = re.findall(r'\{\s*"(\w+)"', text.partition("kVersions")[2])
        return sorted(names, key=lambda name: listed.index(name) if name in listed else len(listed))

    def version_files(self) -> dict[str, Path]:
        """The files of versions/ by their versions' names: kernels, or plain C++ where a version has none."""
        return {path.stem: path for path in (self.folder / "versions").glob("*.*")
                if path.suffix in VERSION_SUFFIXES}

    @property
    def has_test(self) -> bool:
        return (self.folder / f"{self.name}_test.cpp").is_file()


@dataclass(frozen=True)
class RoadmapRow:
    """A row of the roadmap table in README.md: | 1.1 | `vector_add` | summary | state |"""

    number: str
    name: str
    summary: str


def discover(root: Path) -> list[Step]:
    """Every folder stageN_x/NN_name that holds name's program, in the roadmap's order."""
    steps = []
    for folder in root.glob("stage*/*"):
        stage = re.fullmatch(r"stage(\d+)_\w+", folder.parent.name)
        step = re.fullmatch(r"(\d\d)_(\w+)", folder.name)
        if stage and step and (folder / f"{step[2]}.cpp").is_file():
            steps.append(Step(f"{int(stage[1])}.{int(step[1])}", step[2], folder))
    return sorted(steps, key=lambda step: step.order)


def roadmap(root: Path) -> list[RoadmapRow]:
    """The rows of README.md's roadmap. Empty where there is no README."""
    readme = root / "README.md"
    if not readme.is_file():
        return []
    row = re.compile(r"^\|\s*(\d+\.\d+)\s*\|\s*\[?`(\w+)`[^|]*\|\s*([^|]*?)\s*\|", re.MULTILINE)
    return [RoadmapRow(*match) for match in row.findall(readme.read_text(encoding="utf-8"))]


def resolve(root: Path, steps: list[Step], words: list[str]) -> list[Step]:
    """The steps meant by `words`, in the roadmap's order; no word means all of them.

    A word is a step (1.1, vector_add, 01_vector_add), a stage (1, stage1, stage1_vector) or a path
    to one of their folders or files. Raises CourseError(USAGE) with the nearest name otherwise.
    """
    chosen = {step for word in words for step in _resolve_one(root, steps, word)}
    return [step for step in steps if not words or step in chosen]


def _resolve_one(root: Path, steps: list[Step], word: str) -> list[Step]:
    path = Path(os.path.abspath(word))  # as typed: relative to where the learner stands
    if path.exists() and root in path.parents:
        inside = [s for s in steps if s.folder == path or s.folder in path.parents]
        below = [s for s in steps if path in s.folder.parents]
        if inside or below:
            return inside or below
    plain = word.rstrip("/")
    by_name = [s for s in steps if plain in (s.number, s.name, s.folder.name)]
    if by_name:
        return by_name
    stage = re.fullmatch(r"(?:stage)?(\d+)", plain)
    by_stage = [
        s
        for s in steps
        if s.folder.parent.name == plain or (stage and s.stage == int(stage[1]))
    ]
    if by_stage:
        return by_stage
    raise CourseError(_unknown(root, steps, plain), USAGE)


def _unknown(root: Path, steps: list[Step], word: str) -> str:
    for row in roadmap(root):
        if word in (row.number, row.name):
            return f"step {row.number} ({row.name}) is planned and not there yet"
    known = {name: s for s in steps for name in (s.name, s.number, s.folder.name)}
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if near:
        step = known[near[0]]
        hint = f"did you mean {step.name} ({step.number})?"
    else:
        hint = "see `scripts/course list`"
    return f"unknown step '{word}': {hint}"
