"""The learner's own files under workspace/, and what has been reached, in progress.json.

Nothing here is overwritten: a file that is begun anew is kept under a dated name, and a progress
file that can't be read is moved aside.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import USAGE, CourseError
from .exercises import Course
from .steps import Step
from .terminal import warn

SCHEMA = 1
NAME = "progress.json"
ENDINGS = (".hip", ".h")  # of a learner's files: versions, and headers of steps that have none


def _now() -> str:
    return datetime.datetime.now().replace(microsecond=0).isoformat()


@dataclass(frozen=True)
class Workspace:
    """The folder `workspace`, or another that is laid out as the repository is."""

    root: Path  # the repository
    elsewhere: Path | None = None

    @property
    def folder(self) -> Path:
        return self.elsewhere or Path(os.environ.get("COURSE_WORKSPACE") or self.root / "workspace")

    def file(self, step: Step, name: str) -> Path:
        return self.folder / step.folder.parent.name / step.folder.name / name

    def started(self, course: Course) -> bool:
        return any(self.file(course.step, name).is_file() for name in course.files)

    def all_files(self) -> list[Path]:
        """Every file of a learner, of all steps."""
        return sorted(path for path in self.folder.rglob("*") if path.suffix in ENDINGS and path.is_file())

    def texts(self, course: Course) -> dict[str, str]:
        """The learner's texts of a step's files; the solution's where one is not there."""
        texts = {}
        for name in course.files:
            path = self.file(course.step, name)
            texts[name] = (path.read_text(encoding="utf-8", errors="replace") if path.is_file()
                           else course.solution(name))
        return texts

    def files(self, course: Course) -> dict[str, str]:
        """texts(), but without what the learner does not have where each file is compiled alone."""
        return {name: text for name, text in self.texts(course).items()
                if not course.has_versions or self.file(course.step, name).is_file()}

    def start(self, course: Course, reset: bool) -> list[Path]:
        """Writes the skeletons; files that are there stay as they are, or are kept under a dated
        name. Returns what was kept. Raises CourseError(USAGE) where work would be overwritten."""
        there = [path for name in course.files if (path := self.file(course.step, name)).is_file()]
        if there and not reset:
            raise CourseError(
                f"{_shown(there[0])} is there already: go on with it, or `scripts/course start "
                f"{course.step.number} --reset` begins anew and keeps a dated copy", USAGE)
        kept = []
        for path in there:
            kept.append(_put_aside(path, "old"))
        for name in course.files:
            path = self.file(course.step, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, course.skeleton(name))
        return kept


def _shown(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def _put_aside(path: Path, why: str) -> Path:
    """Renames dot.h to dot.h.20300102-030405.old, or to a name like it that is free."""
    stamp = re.sub(r"\D", "", _now())
    more = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (path.with_name(f"{path.name}.{stamp[:8]}-{stamp[8:]}{word}.{why}") for word in more)
    free = next(name for name in names if not name.exists())
    os.replace(path, free)
    return free


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


# ---- Progress ----------------------------------------------------------------------------------


class Progress:
    """What the learner has reached, step by step and device by device.

        {"schema": 1, "steps": {"1.3": {"state": "passed", "hints": {"block_sum_tree": 2},
         "devices": {"cpu: AMD EPYC": {"date": ..., "version": "two_pass", "ms": 1.2,
         "of_limit": 0.8, "of_solution": 0.97, "of_vendor": null, "medal": "gold"}},
         "files": {"dot.h": "sha256..."}}}}
    """

    def __init__(self, workspace: Workspace):
        self.path = workspace.folder / NAME
        self.steps: dict[str, dict] = {}
        if not self.path.is_file():
            return
        try:
            self.steps = read_progress(self.path)
        except ValueError as error:
            aside = _put_aside(self.path, "broken")
            warn(f"{self.path.name} could not be read ({error}): it is kept as {aside.name}, and a "
                 "new one begins")

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {"schema": SCHEMA, "steps": self.steps}
        _write(self.path, json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n")

    def of(self, step: Step) -> dict:
        return self.steps.setdefault(step.number, {})

    def state(self, step: Step) -> str:
        """"not started", "in progress" or "passed"."""
        return self.steps.get(step.number, {}).get("state", "not started")

    def begin(self, step: Step) -> None:
        record = self.of(step)
        record.setdefault("started", _now())
        record["state"] = "in progress"

    def passed(self, step: Step, texts: dict[str, str]) -> None:
        record = self.of(step)
        record["state"] = "passed"
        record.setdefault("passed", _now())
        record["files"] = {name: digest(text) for name, text in texts.items()}

    def measured(self, step: Step, device: str, figures: dict) -> None:
        devices = self.of(step).setdefault("devices", {})
        before = devices.get(device)
        if not before or figures["ms"] <= before.get("ms", float("inf")):
            devices[device] = {"date": _now(), **figures}

    def hint(self, step: Step, exercise: str) -> int:
        """The level of the next hint of an exercise, counted from 1."""
        hints = self.of(step).setdefault("hints", {})
        hints[exercise] = hints.get(exercise, 0) + 1
        return hints[exercise]

    def is_passed_text(self, step: Step, name: str, text: str) -> bool:
        """Whether this very text of the file has passed its check."""
        record = self.steps.get(step.number, {})
        return record.get("files", {}).get(name) == digest(text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_progress(path: Path) -> dict[str, dict]:
    """The steps of a progress file. Raises ValueError that says what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    steps = record.get("steps")
    if not isinstance(steps, dict) or not all(isinstance(value, dict) for value in steps.values()):
        raise ValueError("'steps' is not an object of objects")
    for number, step in steps.items():
        for key, kind in (("devices", dict), ("files", dict), ("hints", dict), ("state", str)):
            if key in step and not isinstance(step[key], kind):
                raise ValueError(f"'{key}' of step {number} is not of the right kind")
    return steps
