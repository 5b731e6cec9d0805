#!/usr/bin/env python3
"""Mutation testing of the course: does `course check` refuse mistakes that no exercise.toml lists?

    scripts/mutants.py [STEP...]          makes mutants of the steps' kernels and has each checked, on the
                                          CPU backend; needs the steps' programs in build/cpu
    scripts/mutants.py --list [STEP...]   only says which they are
    scripts/mutants.py --sample 2/10      of those every tenth, from the second on
    scripts/mutants.py --json F --resume F    keeps the verdicts in F, and does not judge again what F has
    scripts/mutants.py --summary F            sums the verdicts in F up in results/mutants.json, which keeps
                                              what it says of other steps: scripts/tables.py reads it

A mutant is a version file with one mistake (course_lib/mutation.py). Which ones are chosen depends on
--count and --seed only, not on the steps that are asked for. Those that pass are printed, as a diff. A
mutant that computes the same as the original must pass: it is not counted if optimization makes the same
machine code of both, or if equivalent_mutants/ has the proof.

Exits 1 where fewer than 97% of those that compile are refused (of some steps, or a sample: where one
passes that results/mutants.json does not name), or where the list of equivalent mutants is wrong: an entry
matches no mutant, or is refused.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Callable

from course_lib import documents, exercises, mutation, process, steps
from course_lib.arguments import Parser
from course_lib.build import Build, build_root
from course_lib.documents import quoted, require
from course_lib.equivalent_mutants import KEYS, load_equivalent
from course_lib.errors import FAILED, USAGE, CourseError
from course_lib.exercises import Course
from course_lib.mutation import Mutant
from course_lib.same_code import SameCode
from course_lib.sampling import share
from course_lib.verdict import Judge

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = ROOT / "scripts" / "equivalent_mutants"
SUMMARY = ROOT / "results" / "mutants.json"
BAR = 0.97  # of the mutants that compile and are not equivalent must be refused

LEAST, MOST = 5, 25  # mutants of a version file
DOES_NOT_COMPILE, SAME_CODE, EQUAL = "compile", "same code", "equivalent"


def main() -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP")
    parser.add_argument("--count", type=int, default=1000, help="of all steps together (default: 1000)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--sample", type=share, default=(1, 1), metavar="K/N")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes every verdict there")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="takes the verdicts that FILE has")
    parser.add_argument("--summary", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=process.cpu_count(), metavar="J")
    parser.add_argument("--build", type=Path, default=build_root(ROOT) / "cpu",
                        help="a build of the steps' programs (default: build/cpu)")
    options = parser.parse_args()
    try:
        courses = [exercises.load(step) for step in steps.discover(ROOT) if exercises.has_exercises(step)]
        asked = {step.number for step in steps.resolve(ROOT, steps.discover(ROOT), options.steps)}
        equivalent = load_equivalent(EQUIVALENT)
        if options.summary:
            sum_up(load_verdicts(options.summary), equivalent)
            return 0
        first, every = options.sample
        chosen = [one for one in choose(courses, options.count, options.seed)
                  if one.course.step.number in asked][first - 1::every]
        if options.list:
            for one in chosen:
                print(f"{one.place}: {one.mutant.operator}\n  - {one.mutant.before}\n  + {one.mutant.after}")
            print(len(chosen))
            return 0
        build = Build(ROOT, options.build.absolute(), "cpu", dict(os.environ))
        tester = Tester(build, equivalent, load_verdicts(options.resume), options.json, options.jobs)
        if every > 1 or options.steps:
            tester.known_to_pass = known_to_pass()
        findings = stale_entries(equivalent, [course for course in courses if course.step.number in asked])
        return tester.test(chosen, findings)
    except CourseError as error:
        if error.details:
            print(error.details)
        print(f"mutants.py: {error}", file=sys.stderr)
        return error.code


# ---- Choosing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    course: Course
    mutant: Mutant
    versions: tuple[str, ...]  # the rows of the program's table in which it shows; none: all

    @property
    def place(self) -> str:
        step, mutant = self.course.step, self.mutant
        return f"{step.number} {step.name}, {mutant.file}:{mutant.line}, {mutant.function}"


def choose(courses: list[Course], count: int, seed: str) -> list[Chosen]:
    """`count` mutants of all steps together: some of each version file."""
    groups = [(course, mutants_of(course, file)) for course in courses for file in files_of(course)]
    counts = mutation.shares([len(mutants) for _, mutants in groups], count, LEAST, MOST)
    chosen = []
    for (course, mutants), number in zip(groups, counts):
        some = mutation.spread(mutants, f"{seed} {course.step.name} {mutants[0].file if mutants else ''}")
        chosen += [Chosen(course, mutant, versions_of(course, mutant)) for mutant in some[:number]]
    return chosen


def files_of(course: Course) -> list[str]:
    return sorted(f"versions/{path.name}" for path in course.step.version_files().values())


def mutants_of(course: Course, file: str) -> list[Mutant]:
    return mutation.mutants_of(course.solution(file), file)


def versions_of(course: Course, mutant: Mutant) -> tuple[str, ...]:
    """The rows of the program's table that run the mutant; none where any may."""
    rows = [version for exercise in course.exercises if exercise.file == mutant.file
            for version in exercise.versions]
    return tuple(dict.fromkeys(rows))


# ---- The list of equivalent mutants ------------------------------------------------------------


def name_of(course: Course, mutant: Mutant) -> tuple[str, ...]:
    return (course.step.number, mutant.file, mutant.function, mutant.operator, mutant.before, mutant.after)


def stale_entries(equivalent: dict[tuple[str, ...], str], courses: list[Course]) -> list[str]:
    """A line on each entry of these steps that matches no mutant any more."""
    found = []
    for course in courses:
        entries = {key for key in equivalent if key[0] == course.step.number}
        entries -= {name_of(course, mutant) for file in {key[1] for key in entries}
                    if (course.step.folder / file).is_file() for mutant in mutants_of(course, file)}
        found += [f"{EQUIVALENT.name}: no mutant is this any more: {', '.join(key)}"
                  for key in sorted(entries)]
    return found


# ---- Judging -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: a line of --json's file."""

    key: str
    step: str
    file: str
    function: str
    line: int
    operator: str
    before: str
    after: str
    reason: str  # why it is refused; "" where it passes
    words: str
    seconds: float


def load_verdicts(path: Path | None) -> dict[str, Verdict]:
    if path is None or not path.is_file():
        return {}
    try:
        return {entry["key"]: Verdict(**entry) for entry in documents.load(path, _validate_verdicts)}
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None


def _validate_verdicts(entries: object) -> None:
    """Raises ValueError where this is not what --json writes."""
    if not isinstance(entries, list):
        raise ValueError("this is no list of verdicts")
    kinds = {field.name: str for field in fields(Verdict)} | {"line": int, "seconds": (int, float)}
    for e, entry in enumerate(entries):
        require(entry, kinds, f"verdict {e}")
        if unknown := entry.keys() - kinds.keys():
            raise ValueError(f"verdict {e} has {quoted(min(unknown))}, which means nothing")


def kind_of(verdict: Verdict, equivalent: dict[tuple[str, ...], str]) -> str:
    """The verdict's reason, with the list of equivalent mutants in mind."""
    listed = tuple(getattr(verdict, key) for key in KEYS) in equivalent
    return EQUAL if listed and not verdict.reason else verdict.reason


def sum_up(verdicts: dict[str, Verdict], equivalent: dict[tuple[str, ...], str]) -> None:
    """Writes what became of them to results/mutants.json, step by step, and names those that pass. Of steps
    that have no verdict here it keeps what an earlier campaign has found."""
    record = summary()
    commit = process.output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]) or "unknown"
    made = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit.strip()}
    by_step: dict[str, Counter] = {}
    passing = []
    for verdict in verdicts.values():
        kind = kind_of(verdict, equivalent)
        counts = by_step.setdefault(verdict.step, Counter(mutants=0, uncompiled=0, equivalent=0, refused=0))
        counts["mutants"] += 1
        if kind == DOES_NOT_COMPILE:
            counts["uncompiled"] += 1
        elif kind in (EQUAL, SAME_CODE):
            counts["equivalent"] += 1
        elif kind:
            counts["refused"] += 1
        else:
            passing.append({name: getattr(verdict, name) for name in ("key", *KEYS)})
    all_steps = sorted((record["steps"] | {step: made | some for step, some in by_step.items()}).items())
    passing += [entry for entry in record["passing"] if entry["step"] not in by_step]
    text = json.dumps({"steps": dict(all_steps), "passing": passing}, indent=1, ensure_ascii=False)
    SUMMARY.write_text(text + "\n", encoding="utf-8")


def summary() -> dict:
    """What the last campaigns have found; nothing where there was none."""
    if not SUMMARY.is_file():
        return {"steps": {}, "passing": []}

    def validate(record: object) -> None:
        require(record, {"steps": dict, "passing": list}, "the summary")
        for p, entry in enumerate(record["passing"]):
            require(entry, {"key": str, "step": str}, f"passing[{p}]")

    try:
        return documents.load(SUMMARY, validate)
    except ValueError as error:
        raise CourseError(str(error), FAILED) from None


def known_to_pass() -> set[str]:
    """The keys of the mutants that the last campaigns have found to pass."""
    return {entry["key"] for entry in summary()["passing"]}


def diff(text: str, mutant: Mutant) -> str:
    lines = difflib.unified_diff(text.splitlines(), mutant.applied(text).splitlines(), "", "", "", "", 2, "")
    return "\n".join("    " + line for line in list(lines)[2:])


class StepTester:
    """The judges of one step: one for each thread, since a judge is for one text at a time."""

    def __init__(self, course: Course, build: Build, folder: Path, judge: Callable):
        self.course, self.build, self.folder, self._judge = course, build, folder, judge
        self._local = threading.local()
        self._lock = threading.Lock()
        self._checked = False
        self._refused = ""

    def judge(self):
        if not hasattr(self._local, "judge"):
            self._local.judge = self._judge(self.course, self.build, self.folder)
        return self._local.judge

    def refused(self) -> str:
        """Why the repository's own files are refused, if they are. It is asked before any mutant is judged,
        and makes what all of them need."""
        with self._lock:
            if not self._checked:
                files = {file: self.course.solution(file) for file in files_of(self.course)}
                refusal = self.judge().refusal(files, [])
                self._refused = refusal.reason and f"{refusal.reason}: {refusal.words}"
                self._checked = True
        return self._refused


class Tester:
    def __init__(self, build: Build, equivalent: dict[tuple[str, ...], str], known: dict[str, Verdict],
                 written: Path | None, jobs: int, judge: Callable = Judge, same_code: Callable = SameCode):
        self.build, self.equivalent, self.known = build, equivalent, known
        self.written, self.jobs, self._judge = written, jobs, judge
        self.folder = build_root(build.root) / "mutants"
        self.same_code = same_code(build, self.folder / "same_code")
        self.verdicts: dict[str, Verdict] = dict(known)
        self.known_to_pass: set[str] | None = None  # of a part: those that may pass
        self._writing = threading.Lock()

    def test(self, chosen: list[Chosen], findings: list[str]) -> int:
        """Judges what is not known yet, says what passes, and returns the exit code."""
        started = time.monotonic()
        done: list[Verdict] = []
        by_step: dict[str, list[Chosen]] = {}
        for one in chosen:
            by_step.setdefault(one.course.step.number, []).append(one)
        pool = ThreadPoolExecutor(self.jobs)
        try:
            futures = []
            testers = [StepTester(some[0].course, self.build, self.folder, self._judge)
                       for some in by_step.values()]
            for some, tester in zip(by_step.values(), testers):
                if any(one.mutant.key not in self.known for one in some):
                    pool.submit(tester.refused)  # all of them first: a step's mutants wait for its own
            for some, tester in zip(by_step.values(), testers):
                futures.append((some, tester, [pool.submit(self._verdict, one, tester) for one in some]))
            for some, tester, verdicts in futures:
                found = [future.result() for future in verdicts]
                step = tester.course.step
                shutil.rmtree(self.folder / step.name, ignore_errors=True)
                if None in found:
                    findings.append(f"{step.number} {step.name}: the repository's own files are refused: "
                                    f"{tester.refused()}")
                    continue
                self._say_step(some, found, findings)
                done += found
        finally:
            pool.shutdown(cancel_futures=True)
        return self._say_all(done, findings, time.monotonic() - started)

    def _verdict(self, one: Chosen, tester: StepTester) -> Verdict | None:
        """None: the step's own files are refused."""
        mutant = one.mutant
        if mutant.key in self.known:
            return self.known[mutant.key]
        if tester.refused():
            return None
        begun = time.monotonic()
        text = one.course.solution(mutant.file)
        refusal = tester.judge().refusal({mutant.file: mutant.applied(text)}, list(one.versions))
        reason, words = refusal.reason, refusal.words
        if (not reason and name_of(one.course, mutant) not in self.equivalent
                and self.same_code.same(one.course, mutant.file, text, mutant.applied(text))):
            reason, words = SAME_CODE, "optimization makes the same machine code of both"
        verdict = Verdict(mutant.key, one.course.step.number, mutant.file, mutant.function, mutant.line,
                          mutant.operator, mutant.before, mutant.after, reason, words,
                          round(time.monotonic() - begun, 2))
        self._keep(verdict)
        return verdict

    def _keep(self, verdict: Verdict) -> None:
        with self._writing:
            self.verdicts[verdict.key] = verdict
            if self.written:
                text = json.dumps([asdict(one) for one in self.verdicts.values()], indent=1)
                documents.write(self.written, f"{text}\n".encode())

    def _say_step(self, chosen: list[Chosen], verdicts: list[Verdict], findings: list[str]) -> None:
        kinds = Counter()
        for one, verdict in zip(chosen, verdicts):
            kind = self._kind(verdict)
            kinds[kind] += 1
            if kind == "":
                print(f"passes: {one.place}: {one.mutant.operator}")
                print(diff(one.course.solution(one.mutant.file), one.mutant))
            elif name_of(one.course, one.mutant) in self.equivalent and kind not in (EQUAL, SAME_CODE):
                findings.append(f"{EQUIVALENT.name}: this one is refused ({kind}, {verdict.words}): "
                                f"{', '.join(name_of(one.course, one.mutant))}")
        step = chosen[0].course.step
        listed = ", ".join(f"{count} {kind or 'passes'}" for kind, count in kinds.most_common())
        print(f"{step.number} {step.name}: {len(verdicts)} mutants: {listed}", flush=True)

    def _kind(self, verdict: Verdict) -> str:
        return kind_of(verdict, self.equivalent)

    def _say_all(self, verdicts: list[Verdict], findings: list[str], seconds: float) -> int:
        kinds = [self._kind(verdict) for verdict in verdicts]
        uncompiled = kinds.count(DOES_NOT_COMPILE)
        equal = kinds.count(EQUAL) + kinds.count(SAME_CODE)
        compiled = len(kinds) - uncompiled - equal
        refused = compiled - kinds.count("")
        passing = Counter(verdict.operator for verdict, kind in zip(verdicts, kinds) if not kind)
        if passing:
            print("what passes: " + ", ".join(f"{count} {name}" for name, count in passing.most_common()))
        if self.known_to_pass is None and refused < BAR * compiled:
            findings.append(f"fewer than {BAR:.0%} are refused")
        if self.known_to_pass is not None:
            findings += [f"passes, and did not before: {verdict.step} {verdict.file}, {verdict.operator}"
                         for verdict, kind in zip(verdicts, kinds)
                         if not kind and verdict.key not in self.known_to_pass]
        for finding in findings:
            print(finding)
        print(f"{refused} of {compiled} mutants are refused ({refused / max(compiled, 1):.1%}); {uncompiled} "
              f"more do not compile, {equal} are equivalent; {seconds:.0f} s: "
              f"{'FAILED' if findings else 'ok'}")
        return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
