"""Judges what a learner wrote on the CPU backend: exercise by exercise right, wrong or still empty.

A pass means that each of these found nothing:

    device    the file is code that a GPU's compiler takes (device_code.py)
    runs      the step's program is right at all shapes, in several settings (check.py)
    tests     the step's own tests pass, in two settings (step_tests.py)
    race      ThreadSanitizer has seen every version run (races.py)

What takes long begins at once, in threads beside the rest, and is dropped as soon as something fails. An
empty exercise is not judged: it is compiled as the repository has it.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from . import check, compiling, device_code, races, step_tests
from .build import Build, build_root
from .exercises import Course, Exercise

# The settings of the step's tests, which choose shapes, alignments and guards themselves.
TEST_SETTINGS = (check.Setting("32", "reverse", "end"), check.Setting("64", "waves", "exact"))
NOWHERE = "0 elements"


@dataclass
class Verdict:
    """What was found. Where nothing is wrong, what is not empty is right."""

    written: list[Exercise] = field(default_factory=list)
    empty: list[Exercise] = field(default_factory=list)
    wrong: list[Exercise] = field(default_factory=list)
    compiled: compiling.Compiled | None = None  # with its messages; None: nothing is written yet
    device: list[str] = field(default_factory=list)  # lines that say what no GPU's compiler takes
    device_by: str = ""  # who said so
    runs: dict[tuple[str, ...], list[check.Run]] = field(default_factory=dict)  # by exercises' versions
    only: dict[str, str] = field(default_factory=dict)  # exercise -> what alone makes it fail
    tested: int = 0  # cases of the step's tests that were run
    failures: list[step_tests.Failure] = field(default_factory=list)  # of those
    races: races.Result | None = None  # None: nobody looked

    @property
    def race(self) -> races.Race | None:
        return self.races.race if self.races else None

    @property
    def ok(self) -> bool:
        """Whether all that is written is right."""
        return bool(self.compiled and self.compiled.program and self.written
                    and not (self.device or self.wrong or self.failures or self.race))

    @property
    def right(self) -> list[Exercise]:
        return [exercise for exercise in self.written if exercise not in self.wrong]


@dataclass(frozen=True)
class Refusal:
    """The first thing that refuses a text."""

    reason: str  # "" where it passes; "compile", "device", "runs", "tests", "race", or a fault of check.py
    words: str = ""  # a line


# judge() calls it at the end of each phase: "build", "correctness", "safety".
OnPhase = Callable[[str, Verdict], None]


class Judge:
    """Judges texts of one step's files. What it compiles it keeps in `folder`."""

    def __init__(self, course: Course, cpu: Build, folder: Path | None = None):
        self.course, self.cpu = course, cpu
        self.folder = (folder or build_root(cpu.root) / "check") / course.step.name
        self.detector = races.Detector(course, cpu, self.folder.parent)

    def judge(self, files: dict[str, str], named: dict[str, str],
              on_phase: OnPhase = lambda phase, verdict: None) -> Verdict:
        """`files` are the learner's texts by their names in the step's folder, `named` the paths that the
        learner knows them by."""
        verdict = Verdict(empty=self.course.empty(files))
        verdict.written = [exercise for exercise in self.course.exercises
                           if exercise.file in files and exercise not in verdict.empty]
        texts = self.course.filled(files, verdict.written)
        if not verdict.written:
            return verdict
        compiler, tests = self._compiler(), self._compiler()
        detector = self.detector
        with ThreadPoolExecutor(4) as pool:
            program = pool.submit(compiler.compile, texts, named, fast=True)
            device = pool.submit(device_code.problems, self.course, self.cpu, texts, named)
            watched = pool.submit(detector.prepare, texts, named)
            tested = pool.submit(self._compile_tests, tests, program, texts, named)
            try:
                verdict.compiled = program.result()
                if verdict.compiled.program is not None:
                    verdict.device, verdict.device_by = device.result()
                on_phase("build", verdict)
                if verdict.compiled.program is None or verdict.device:
                    return verdict
                self._run(verdict, named)
                if not verdict.wrong:
                    self._run_tests(verdict, tested.result(), files, named)
                on_phase("correctness", verdict)
                if not verdict.wrong or self._may_race(verdict):
                    verdict.races = self._look_for_races(verdict, watched, files, named)
                on_phase("safety", verdict)
            finally:
                tests.stop()
                detector.stop()
        return verdict

    def refusal(self, files: dict[str, str], versions: list[str]) -> Refusal:
        """The first thing that refuses the texts, one phase after the other: for texts that nobody waits
        for, of any of the step's files. `versions` are the rows of the program's table in which they
        show; none: all."""
        compiler = self._compiler()
        compiled = compiler.compile(files, {}, fast=True)
        if compiled.program is None:
            return Refusal("compile", compiled.refusal or compiled.messages.strip().partition("\n")[0])
        lines, _ = device_code.problems(self.course, self.cpu, files, {})
        if lines:
            return Refusal("device", lines[0])
        runs = check.run_all(compiled.program, self.course, versions, False, {}, 1, to_first_failure=True)
        for run in runs:
            if not run.ok:
                return Refusal(run.fault or "runs", check.words_of(run))
        test = compiler.compile(files, {}, fast=True, what="test")
        for setting in TEST_SETTINGS:
            for failure in step_tests.run(test.program, self.course, {}, setting, versions).failures:
                return Refusal(failure.fault or "tests", step_tests.words_of(failure))
        self.detector.prepare(files, {})
        result = self.detector.look(versions)
        return Refusal("race", result.race.words()) if result.race else Refusal("")

    def _compiler(self) -> compiling.Compiler:
        return compiling.of(self.cpu, self.course, self.folder)

    def _compile_tests(self, compiler: compiling.Compiler, program: Future, texts: dict[str, str],
                       named: dict[str, str]) -> compiling.Compiled | None:
        """None where the program is refused. Versions are compiled once: for the program."""
        if self.course.has_versions and program.result().program is None:
            return None
        return compiler.compile(texts, named, fast=True, what="test")

    # ---- The program's runs --------------------------------------------------------------------------

    def _run(self, verdict: Verdict, named: dict[str, str]) -> None:
        """Each set of versions by itself, as the fingerprints of the known mistakes were made."""
        compiled = verdict.compiled
        places = compiled.places(named)
        for versions in dict.fromkeys(exercise.versions for exercise in verdict.written):
            verdict.runs[versions] = check.run_all(compiled.program, self.course, list(versions), False,
                                                   places)
        verdict.wrong = [exercise for exercise in verdict.written
                         if not all(run.ok for run in verdict.runs[exercise.versions])]
        for exercise in verdict.wrong:
            def again(shape: str, setting: check.Setting, versions=exercise.versions) -> check.Run:
                return check.run_one(compiled.program, self.course, list(versions), shape, setting, places)

            runs = verdict.runs[exercise.versions]
            if not any(run.fault in check.ENDLESS for run in runs):
                verdict.only[exercise.name] = check.what_alone_fails(runs, again)

    # ---- The step's tests ----------------------------------------------------------------------------

    def _run_tests(self, verdict: Verdict, compiled: compiling.Compiled, files: dict[str, str],
                   named: dict[str, str]) -> None:
        verdict.tested, verdict.failures = self._failures(compiled, verdict.written, named)
        if verdict.failures:
            verdict.wrong = self._culprits(verdict, files, named)

    def _failures(self, compiled: compiling.Compiled, written: list[Exercise], named: dict[str, str],
                  ) -> tuple[int, list[step_tests.Failure]]:
        """How many cases were run for these exercises, and the failures of the first setting that has any."""
        rows = [version for exercise in written for version in exercise.versions]
        versions = list(dict.fromkeys(rows)) if all(exercise.versions for exercise in written) else []
        for setting in TEST_SETTINGS:
            done = step_tests.run(compiled.program, self.course, compiled.places(named), setting, versions)
            if done.failures:
                break
        return done.cases, done.failures

    def _culprits(self, verdict: Verdict, files: dict[str, str], named: dict[str, str]) -> list[Exercise]:
        """The exercises that fail the tests where all others are the repository's own; all, where it takes
        several of them."""
        if len(verdict.written) == 1:
            return verdict.written
        found = []
        compiler = self._compiler()
        for exercise in verdict.written:
            compiled = compiler.compile(self.course.filled(files, [exercise]), named, fast=True, what="test")
            if compiled.program is None or self._failures(compiled, [exercise], named)[1]:
                found.append(exercise)
        return found or verdict.written

    # ---- Races ---------------------------------------------------------------------------------------

    def _may_race(self, verdict: Verdict) -> bool:
        """Whether a race would explain a failure: what is known to be wrong otherwise need not be shown
        to ThreadSanitizer, which takes long."""
        return any(races.suspects(verdict.runs[exercise.versions]) for exercise in verdict.wrong)

    def _look_for_races(self, verdict: Verdict, prepared: Future, files: dict[str, str],
                        named: dict[str, str]) -> races.Result:
        prepared.result()
        ...
