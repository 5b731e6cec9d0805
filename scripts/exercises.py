#!/usr/bin/env python3
"""Holds every exercise to the rules of the course, on the CPU backend, as `course check` does.

    scripts/exercises.py [STEP...]            check: every skeleton compiles and fails, every solution
                                              passes, every known mistake fails and is recognised
    scripts/exercises.py --write [STEP...]    the same, and derive the fingerprints anew of exercises
                                              that have changed; with --all, of every one

    scripts/exercises.py --share 2/3          of the mistakes only every third, from the second on, and the
                                              solutions and skeletons of every third step
    scripts/exercises.py --times [STEP...]    how long `course check` takes with each exercise, right and
                                              wrong; for a machine that has nothing else to do

A fingerprint says which rows of which runs fail, and where (course_lib/fingerprints.py). They are kept
in course_lib/signatures.json, which nobody edits by hand. Exits 1 where a rule is broken, or where
fewer than 80% of the mistakes are called by their name; with --times where a bar is not held.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_lib import check, check_times, compiling, exercises, fingerprints, process, steps
from course_lib.arguments import Parser
from course_lib.build import Build, build_root
from course_lib.errors import CourseError
from course_lib.sampling import share
from course_lib.verdict import Judge, Refusal

ROOT = Path(__file__).resolve().parents[1]
NAMED = 0.8  # of the mistakes must be called by their name


def main() -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--share", type=share, default=(1, 1), metavar="K/N")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--build", type=Path, default=build_root(ROOT) / "cpu",
                        help="a build of the steps' programs (default: build/cpu)")
    options = parser.parse_args()
    try:
        chosen = steps.resolve(ROOT, steps.discover(ROOT), options.steps)
        courses = [exercises.load(step) for step in chosen if exercises.has_exercises(step)]
        build = Build(ROOT, options.build.absolute(), "cpu", dict(os.environ))
        if options.times:
            return check_times.of_all(ROOT, courses)
        if options.write and options.share != (1, 1):
            parser.error("--write keeps the fingerprints of all mistakes: it takes no --share")
        if options.all and not options.write:
            parser.error("--all says what --write derives")
        return Examiner(build, options.write, options.share, options.all).examine(courses)
    except CourseError as error:
        if error.details:
            print(error.details)
        print(f"exercises.py: {error}", file=sys.stderr)
        return error.code


class Examiner:
    def __init__(self, build: Build, write: bool, share: tuple[int, int], anew: bool = False):
        self.first, self.every = share[0] - 1, share[1]
        self.met = 0  # mistakes, checked or not
        self.build = build
        self.write, self.anew = write, anew
        self.signatures = fingerprints.load(ROOT)
        self.findings: list[str] = []
        self.total = self.named = 0

    def examine(self, courses: list[exercises.Course]) -> int:
        started = time.monotonic()
        pool = ThreadPoolExecutor(process.cpu_count())
        try:  # the jobs of all steps in one queue: nobody waits for the last one of a step
            for course, jobs, futures in [self.begin(course, pool, number % self.every == self.first)
                                          for number, course in enumerate(courses)]:
                done = [future.result() for future in futures]
                self.derive(course, jobs, done)
                for (exercise, name, _), (compiled, runs, refusal) in zip(jobs, done):
                    self.judge(course, exercise, name, compiled, runs, refusal)
        finally:
            pool.shutdown(cancel_futures=True)
        if self.write:
            self.signatures.save()
        if self.total and self.named < NAMED * self.total:
            self.findings.append(f"only {self.named} of {self.total} mistakes are called by name")
        for finding in self.findings:
            print(finding)
        count = sum(len(course.exercises) for course in courses)
        print(f"{count} exercises, {self.total} known mistakes, {self.named} of them named, "
              f"{time.monotonic() - started:.0f} s: {'FAILED' if self.findings else 'ok'}")
        return 1 if self.findings else 0

    def begin(self, course: exercises.Course, pool: ThreadPoolExecutor,
              with_step: bool) -> tuple[exercises.Course, list, list]:
        """Puts what there is to compile and to run of a step into the pool: the step, its jobs, and of each
        the Future of (what was compiled, its runs, what refuses it beyond them). `with_step`: its solution
        and its skeleton, beside the mistakes."""
        step = course.step
        compiler = compiling.Compiler(self.build, course, build_root(ROOT) / "check" / step.name)
        solution = {file: course.solution(file) for file in course.files}
        skeleton = {file: course.skeleton(file) for file in course.files}

        # (exercise, what is wrong, files): no exercise for the whole step.
        jobs = [(None, "solution", solution), (None, "skeleton", skeleton)] if with_step else []
        for exercise in course.exercises:
            for mistake in exercise.mistakes:
                self.met += 1
                if (self.met - 1) % self.every == self.first:
                    changed = {exercise.file: course.with_mistake(exercise, mistake)}
                    jobs.append((exercise, mistake.name, changed))  # the other files are the step's own

        judge = Judge(course, self.build)

        def run(job) -> tuple[compiling.Compiled, list[check.Run], Refusal | None]:
            exercise, name, files = job
            compiled = compiler.compile(files, {}, fast=True)
            if compiled.program is None:
                return compiled, [], None
            versions = list(exercise.versions) if exercise else course.versions
            runs = check.run_all(compiled.program, course, versions, False,
                                 {str(compiled.program.parent): ""}, at_a_time=1,
                                 to_first_failure=exercise is None and name == "skeleton")
            if not all(run.ok for run in runs):
                return compiled, runs, None
            # What the runs don't show, the step's tests or ThreadSanitizer may. Of the solutions they see
            # all versions, also those that have no exercise.
            refusal = judge.refusal_beyond_runs(compiled, files, versions if exercise else [])
            if exercise is None and not refusal.reason:
                refusal = alone(files) or refusal
            return compiled, runs, refusal

        def alone(files: dict[str, str]) -> Refusal | None:
            """Of the step's tests where a check asks for one exercise's versions only."""
            for versions in dict.fromkeys(exercise.versions for exercise in course.exercises):
                refusal = judge.refusal_by_tests(files, list(versions))
                if refusal.reason:
                    return Refusal(refusal.reason, f"{', '.join(versions)} alone: {refusal.words}")
            return None

        return course, jobs, [pool.submit(run, job) for job in jobs]

    def derive(self, course: exercises.Course, jobs, done) -> None:
        """Keeps the fingerprints of exercises that have changed since theirs were derived; without
        --write it only says which these are."""
        stale = [exercise for exercise in course.exercises if exercise.mistakes
                 and (self.anew or self.signatures.is_stale(course, exercise))]
        names = ", ".join(exercise.name for exercise in stale)
        number = course.step.number
        if not self.write:
            if stale:
                print(f"{number} {course.step.name}: changed since its fingerprints were derived: "
                      f"{names}; run `scripts/exercises.py --write {number}`")
            return
        for exercise in stale:
            found = {name: fingerprints.of(runs) for (owner, name, _), (_, runs, _) in zip(jobs, done)
                     if owner is exercise}
            self.signatures.keep(course, exercise, found)
        self.signatures.forget_others(course)
        if stale:
            print(f"{number} {course.step.name}: fingerprints derived anew: {names}")

    def judge(self, course, exercise, name, compiled, runs, refusal) -> None:
        place = f"{course.step.number} {course.step.name}"
        place += f", {exercise.name}: '{name}'" if exercise else f": the {name}"
        if compiled.program is None:
            self.findings.append(f"{place} does not compile:\n"
                                 f"{compiled.refusal or compiled.messages[:2000]}")
            return
        wrong = [run for run in runs if not run.ok]
        if name == "solution" and not exercise:
            for run in wrong:
                self.findings.append(f"{place} fails at {run.shape or 'its own size'} "
                                     f"{run.setting.words()}: {run.words()}")
            ran = {outcome.version for run in runs for outcome in run.outcomes}
            self.findings += [f"{place}: no run shows '{version}', which is skipped in all of them"
                              for version in course.versions if version not in ran]
            if refusal and refusal.reason:
                self.findings.append(f"{place} is refused ({refusal.reason}): {refusal.words}")
            elif refusal and not refusal.looked_for_races:
                self.findings.append(f"{place}: nobody has looked for races: {refusal.words}")
            return
        if refusal and not refusal.reason:
            self.findings.append(f"{place} passes")
        if exercise is None or not wrong:  # no fingerprint: it is told by what has refused it
            return
        self.total += 1
        known = self.signatures.known(course, exercise)
        names = fingerprints.recognise(runs, known)
        if name in names and len(names) <= 2:
            self.named += 1
        elif name in known and fingerprints.likeness(fingerprints.of(runs), known[name]) is None:
            print(f"{place} cannot be compared: run `scripts/exercises.py --write --all "
                  f"{course.step.number}`")
        else:
            print(f"{place} is called {names or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main())
