"""The learner's own files under workspace/, and what has been reached, in progress.json.

Nothing here is lost: a file that is begun anew is kept under a dated name, and so is a progress file
that was broken and is mended.
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

from . import documents, progress_file
from .errors import USAGE, CourseError
from .exercises import Course
from .progress_file import ENDINGS
from .steps import Step
from .terminal import warn

NAME = "progress.json"
MOST_PROBLEMS = 10  # of a broken file that are named


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
        """texts(), but only of what the learner has: each file is compiled alone."""
        return {name: text for name, text in self.texts(course).items()
                if self.file(course.step, name).is_file()}

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
            write_text(path, course.skeleton(name))
        return kept


def _shown(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def _free_name(path: Path, why: str) -> Path:
    """For dot.h dot.h.20300102-030405.old, or a name like it that is free."""
    stamp = re.sub(r"\D", "", _now())
    more = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (path.with_name(f"{path.name}.{stamp[:8]}-{stamp[8:]}{word}.{why}") for word in more)
    return next(name for name in names if not name.exists())


def _put_aside(path: Path, why: str) -> Path:
    free = _free_name(path, why)
    os.replace(path, free)
    return free


def write_text(path: Path, text: str) -> None:
    """Writes a learner's file, or the progress, whole or not at all. Raises CourseError(USAGE) where a
    folder is in its place."""
    if path.is_dir():
        raise CourseError(f"{_shown(path)} is a folder: move it away, it is in the place of a file", USAGE)
    documents.write(path, text.encode())


# ---- Progress ----------------------------------------------------------------------------------


class Progress:
    """What the learner has reached, step by step and device by device, as progress_file.py lays it out.

    A file that is broken is mended as it is read: what was left out is named, and the file as it was is
    kept beside it. Raises CourseError(USAGE) where there is something that cannot be read at all.
    """

    def __init__(self, workspace: Workspace):
        self.path = workspace.folder / NAME
        self.steps: dict[str, dict] = {}
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise CourseError(f"{_shown(self.path)} cannot be read: {error.strerror}", USAGE) from None
        self.steps, problems = progress_file.read(data)
        if problems:
            self._keep_mended(data, problems)

    def _keep_mended(self, data: bytes, problems: list[str]) -> None:
        aside = _free_name(self.path, "broken")
        documents.write(aside, data)  # a copy: without it nothing of the file is touched
        self.save()
        for problem in problems[:MOST_PROBLEMS]:
            warn(f"{NAME}: {problem}")
        if len(problems) > MOST_PROBLEMS:
            warn(f"{NAME}: {len(problems) - MOST_PROBLEMS} more like these")
        warn(f"{NAME} has been mended: what is named above was left out; the file as it was is {aside.name}")

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {"schema": progress_file.SCHEMA, "steps": self.steps}
        write_text(self.path, json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n")

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
