"""A judge for scripts/mutants.py that runs the step's program and nothing else: until there is verdict.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import check, compiling
from .build import Build
from .exercises import Course


@dataclass(frozen=True)
class Refusal:
    reason: str  # "" where the text passes
    words: str = ""


class Judge:
    def __init__(self, course: Course, cpu: Build, folder: Path):
        self.course = course
        self.compiler = compiling.of(cpu, course, folder / course.step.name)

    def refusal(self, files: dict[str, str], versions: list[str]) -> Refusal:
        if self.course.has_versions:  # it knows the files that have exercises
            for file in files:
                self.compiler._sources.setdefault(
                    file, self.compiler.command_of(self.course.step.folder / file))
        compiled = self.compiler.compile(files, {}, fast=True)
        if compiled.program is None:
            error = next((line for line in compiled.messages.splitlines() if "error" in line), "")
            return Refusal("compile", compiled.refusal or error)
        runs = check.run_all(compiled.program, self.course, versions, False, {}, at_a_time=1,
                             to_first_failure=True)
        for run in runs:
            if not run.ok:
                wrong = ", ".join(o.version for o in run.outcomes if o.status != "ok")
                words = run.message.partition("\n")[0] or wrong
                return Refusal(run.fault or "runs", f"{words} at {run.shape}")
        return Refusal("")
