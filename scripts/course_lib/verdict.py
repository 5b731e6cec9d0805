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

import re
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable

from . import check, compiling, device_code, races, step_tests
from .build import Build, build_root
from .exercises import Course, Exercise

# The settings of the step's tests, which choose shapes and alignments themselves. In the second one a kernel
# that goes round over its items does so at nearly every size.
TEST_SETTINGS = (check.Setting("32", "reverse", "end"), check.Setting("64", "waves", "begin", "2"))


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
    failures: list[step_tests.Failure] = field(default_factory=list)  # of the step's tests
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
    looked_for_races: bool = True  # else `words` say why not


# judge() calls it at the end of each phase: "build", "correctness", "safety".
OnPhase = Callable[[str, Verdict], None]


class Judge:
    """Judges texts of one step's files. What it compiles it keeps in `folder`."""

    def __init__(self, course: Course, cpu: Build, folder: Path | None = None):
        self.course, self.cpu = course, cpu
        self.folder = (folder or build_root(cpu.root) / "check") / course.step.name
        # Nobody stops it, and what it waits for concerns nobody: of several steps at once, one builds.
        self._detector = races.Detector(course, cpu, lambda _: None, folder=self.folder / "races")

    def judge(self, files: dict[str, str], named: dict[str, str],
              on_phase: OnPhase = lambda phase, verdict: None) -> Verdict:
        """`files` are the learner's texts by their names in the step's folder, `named` the paths that the
        learner knows them by."""
        verdict = Verdict(empty=self.course.empty(files))
        verdict.written = [exercise for exercise in self.course.exercises
                           if exercise.file in files and exercise not in verdict.empty]
        if not verdict.written:
            return verdict
        texts = self.course.filled(files, verdict.written)
        compiler, tests = self._compiler(), self._compiler()
        detector = races.Detector(self.course, self.cpu, behind=True)
        with ThreadPoolExecutor(4) as pool:
            program = pool.submit(compiler.compile, texts, named, fast=True)
            device = pool.submit(device_code.problems, self.course, self.cpu, texts, named)
            test = pool.submit(self._compile_tests, tests, program, texts, named)
            looked = pool.submit(self._look, detector, program, texts, named, verdict.written)
            try:
                verdict.compiled = program.result()
                if verdict.compiled.program is not None:
                    verdict.device, verdict.device_by = device.result()
                    verdict.device += device_code.too_much_shared_memory(verdict.compiled.program)
                on_phase("build", verdict)
                if verdict.compiled.program is None or verdict.device:
                    return verdict
                self._run(verdict, files, named)
                endless = _is_endless(verdict)
                if endless:  # under ThreadSanitizer, too
                    tests.stop()
                    detector.stop()
                if not verdict.wrong:
                    self._run_tests(verdict, test.result(), files, named)
                on_phase("correctness", verdict)
                suspect = None if endless else self._suspect(verdict, named)
                if suspect:
                    tests.stop()
                    is_taken = detector.suspect(list(suspect[0]), suspect[1])
                    verdict.races = looked.result()
                    if is_taken and not verdict.race and not verdict.races.run:  # it came too late
                        verdict.races = detector.look(texts, named, [])
                elif not verdict.wrong:
                    verdict.races = looked.result()
                    verdict.wrong = self._racing(verdict, files, named)
                on_phase("safety", verdict)
            finally:
                for part in (compiler, tests, detector):
                    part.stop()
        return verdict

    def refusal(self, files: dict[str, str], versions: list[str]) -> Refusal:
        """The first thing that refuses texts of any of the step's files, one phase after the other: for
        texts that nobody waits for. `versions` are the rows of the program's table in which they show;
        none: all."""
        compiler = self._compiler()
        compiled = compiler.compile(files, {}, fast=True)
        if compiled.program is None:
            return Refusal("compile", compiled.refusal or compiled.messages.strip().partition("\n")[0])
        lines, _ = device_code.problems(self.course, self.cpu, files, {})
        lines += device_code.too_much_shared_memory(compiled.program)
        if lines:
            return Refusal("device", lines[0])
        for run in check.run_all(compiled.program, self.course, versions, False, {}, 1,
                                 to_first_failure=True):
            if not run.ok:
                return Refusal(run.fault or "runs", run.words())
        return self.refusal_beyond_runs(compiled, files, versions)

    def refusal_beyond_runs(self, compiled: compiling.Compiled, files: dict[str, str],
                            versions: list[str]) -> Refusal:
        """The same for texts whose program is right in all its runs."""
        refusal = self.refusal_by_tests(files, versions)
        if refusal.reason:
            return refusal
        lines, _ = device_code.problems(self.course, self.cpu, files, {})
        lines += device_code.too_much_shared_memory(compiled.program)
        if lines:
            return Refusal("device", lines[0])
        looked = self._detector.look(files, {}, versions)
        if looked.race:
            return Refusal("race", looked.race.words())
        return Refusal("", looked.why, looked.looked)

    def refusal_by_tests(self, files: dict[str, str], versions: list[str]) -> Refusal:
        """The same, by the step's tests alone."""
        test = self._compiler().compile(files, {}, fast=True, what="test")
        if test.program is None:
            return Refusal("compile", test.refusal or test.messages.strip().partition("\n")[0])
        for setting in TEST_SETTINGS:
            for failure in step_tests.run(test.program, {}, setting, versions):
                return Refusal(failure.fault or "tests", step_tests.words_of(failure))
        return Refusal("")

    def _compiler(self) -> compiling.Compiler:
        return compiling.Compiler(self.cpu, self.course, self.folder)

    def _compile_tests(self, compiler: compiling.Compiler, program: Future, texts: dict[str, str],
                       named: dict[str, str]) -> compiling.Compiled:
        """After the program, with which it shares the object files of the versions."""
        program.result()
        return compiler.compile(texts, named, fast=True, what="test")

    def _look(self, detector: races.Detector, program: Future, texts: dict[str, str], named: dict[str, str],
              written: list[Exercise]) -> races.Result:
        """At once; a file of many kernels after the program, whose compilation would take longer beside it."""
        if not self.course.optimized:
            program.result()
        return detector.look(texts, named, _versions_of(written))

    # ---- The program's runs --------------------------------------------------------------------------

    def _run(self, verdict: Verdict, files: dict[str, str], named: dict[str, str]) -> None:
        """Each set of versions by itself, as the fingerprints of the known mistakes were made."""
        program, places = verdict.compiled.program, verdict.compiled.places(named)
        run_written(verdict, self.course, places, on_gpu=False)
        verdict.wrong = self._told_apart(verdict, files, named)
        for exercise in verdict.wrong:
            def again(shape: str, setting: check.Setting, versions=exercise.versions) -> check.Run:
                return check.run_one(program, self.course, list(versions), shape, setting, places)

            runs = verdict.runs[exercise.versions]
            if not any(run.fault in check.ENDLESS for run in runs):
                verdict.only[exercise.name] = check.what_alone_fails(runs, again)

    def _told_apart(self, verdict: Verdict, files: dict[str, str], named: dict[str, str]) -> list[Exercise]:
        """The wrong exercises, without those that share a row only with one that is wrong by itself."""
        def fails(exercise: Exercise, compiled: compiling.Compiled) -> bool:
            return any(not check.run_one(compiled.program, self.course, list(exercise.versions), run.shape,
                                         run.setting, compiled.places(named)).ok
                       for run in verdict.runs[exercise.versions] if not run.ok)

        def shares(exercise: Exercise, others: list[Exercise]) -> bool:
            return any(other is not exercise and other.shares_versions(exercise) for other in others)

        in_one_row = [exercise for exercise in verdict.wrong if shares(exercise, verdict.wrong)]
        endless = [run.message for exercise in in_one_row for run in verdict.runs[exercise.versions]
                   if run.fault in check.ENDLESS]
        # What does not end names its kernel, and is not begun once more.
        alone = [exercise for exercise in in_one_row
                 if any(re.search(rf"\b{exercise.name}\b", message) for message in endless)]
        alone = alone or self._wrong_alone(in_one_row, files, named, "program", fails)
        return [exercise for exercise in verdict.wrong if exercise in alone or not shares(exercise, alone)]

    def _wrong_alone(self, suspects: list[Exercise], files: dict[str, str], named: dict[str, str], what: str,
                     fails: Callable[[Exercise, compiling.Compiled], bool]) -> list[Exercise]:
        """The exercises that fail where all others are the repository's own."""
        compiler = self._compiler()
        found = []
        for exercise in suspects:
            compiled = compiler.compile(self.course.filled(files, [exercise]), named, fast=True, what=what)
            if compiled.program is None or fails(exercise, compiled):
                found.append(exercise)
        return found

    # ---- The step's tests ----------------------------------------------------------------------------

    def _run_tests(self, verdict: Verdict, compiled: compiling.Compiled, files: dict[str, str],
                   named: dict[str, str]) -> None:
        verdict.failures = self._failures(compiled, verdict.written, named)
        if not verdict.failures:
            return
        verdict.wrong = verdict.written
        if len(verdict.written) > 1:
            verdict.wrong = self._wrong_alone(
                verdict.written, files, named, "test",
                lambda exercise, alone: bool(self._failures(alone, [exercise], named))) or verdict.written

    def _failures(self, compiled: compiling.Compiled, written: list[Exercise],
                  named: dict[str, str]) -> list[step_tests.Failure]:
        """Of the first setting that has any. The settings run beside each other."""
        with ThreadPoolExecutor(len(TEST_SETTINGS)) as pool:
            found = list(pool.map(lambda setting: step_tests.run(compiled.program, compiled.places(named),
                                                                 setting, _versions_of(written)),
                                  TEST_SETTINGS))
        first = next(filter(None, found), [])
        only = "" if all(found) else TEST_SETTINGS[found.index(first)].described()
        return [replace(failure, only=only) for failure in first]

    # ---- Races ---------------------------------------------------------------------------------------

    def _suspect(self, verdict: Verdict, named: dict[str, str]) -> tuple[tuple[str, ...], check.Run] | None:
        """The versions and the run of a failure that a race would explain: of the smallest shape, or of the largest."""
        program, places = verdict.compiled.program, verdict.compiled.places(named)
        for exercise in verdict.wrong:
            suspects = races.suspects(verdict.runs[exercise.versions])
            for run in dict.fromkeys([*suspects[:1], *suspects[-1:]]):
                def again(setting: check.Setting, versions=exercise.versions, shape=run.shape) -> check.Run:
                    return check.run_one(program, self.course, list(versions), shape, setting, places)

                if races.depends_on_order(run, again):
                    return exercise.versions, run
        return None

    def _racing(self, verdict: Verdict, files: dict[str, str], named: dict[str, str]) -> list[Exercise]:
        """The exercises in whose lines the race is; all of the file where it is in none."""
        if not verdict.race:
            return []
        found = []
        for access in (verdict.race.first, verdict.race.second):
            path, _, line = access.place.rpartition(":")
            own = [exercise for exercise in verdict.written if named.get(exercise.file) == path]
            inside = [exercise for exercise in own
                      if self.course.holds(exercise, files[exercise.file], int(line))]
            found += inside or own
        return [exercise for exercise in verdict.written if exercise in found] or verdict.written


def run_written(verdict: Verdict, course: Course, places: dict[str, str], on_gpu: bool) -> None:
    """Runs the program for what is written, and says which exercises are wrong."""
    for versions in dict.fromkeys(exercise.versions for exercise in verdict.written):
        verdict.runs[versions] = check.run_all(verdict.compiled.program, course, list(versions), on_gpu, places)
    verdict.wrong = [exercise for exercise in verdict.written
                     if not all(run.ok for run in verdict.runs[exercise.versions])]


def _is_endless(verdict: Verdict) -> bool:
    return any(run.fault in check.ENDLESS for runs in verdict.runs.values() for run in runs)


def _versions_of(written: list[Exercise]) -> list[str]:
    """The rows of the program's table in which any of them shows; none: all."""
    if not all(exercise.versions for exercise in written):
        return []
    return list(dict.fromkeys(version for exercise in written for version in exercise.versions))
