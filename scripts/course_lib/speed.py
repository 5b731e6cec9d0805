"""How fast what a learner wrote is, beside the repository's own.

On a GPU both are timed in turns, and the learner's is given a medal where the times agree well enough to
tell which. On the CPU backend, where times say little about a kernel, they are shown and no more.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from . import check, documents, process, results
from .build import Build, build_root
from .compiling import Compiled, Compiler
from .documents import require
from .errors import FAILED, OK
from .exercises import Course
from .terminal import say
from .workspace import Progress

TIMEOUT = 300.0  # seconds of one program at its own size
PLAIN_ROUNDS = 2
PLAIN_TIMEOUT = 5.0  # of one at a small size, on the CPU
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
ENOUGH = 20.0  # seconds: after them no round is begun beyond LEAST_ROUNDS
LIMIT = 120.0  # nor any at all
CHANCE = 0.05  # at most, that the true ratio is outside of its interval
GOLD, SILVER = 0.95, 0.75  # of the solution's speed
STYLE = {"gold": "yellow", "silver": "bold", "bronze": ""}


@dataclass(frozen=True)
class Prepared:
    """What is timed on a backend."""

    version: str  # the row that is compared; "": nothing is timed there
    compiled: Compiled
    failure: str = ""  # of the repository's own program


def prepare(course: Course, build: Build, compiler: Compiler, files: dict[str, str],
            named: dict[str, str]) -> Prepared:
    """Chooses the version to time and compiles the files as the course builds them, behind whatever else
    runs. `build` is a GPU's, on which all is checked again."""
    version, failure = version_to_time(course, build, course.versions_in(list(files)))
    return Prepared(version, compiler.compile(files, named, fast=False, behind=True), failure)


def version_to_time(course: Course, build: Build, versions: list[str]) -> tuple[str, str]:
    """Which of the versions (none: all) is the fastest of the repository's, and why there is none. It is
    found once for each build of the program."""
    program = build.program(course.step)
    chosen = folder_of(course, build) / "fastest.json"
    key = " ".join([str(program.stat().st_mtime_ns), *versions])
    try:
        return documents.load(chosen, lambda kept: require(kept, {key: str}, "the choice"))[key], ""
    except ValueError:
        pass  # not chosen yet, or for another build
    report, failure = timed(course, build, program, versions, ["--no-limits"], "choice.json")
    if report is None:
        return "", failure
    row = fastest(report, versions)
    version = row["name"] if row else ""
    chosen.write_text(json.dumps({key: version}), encoding="utf-8")
    return version, ""


def measure(course: Course, build: Build, prepared: Prepared, progress: Progress, solution: bool) -> int:
    """Times the repository's program and the learner's in turns, in the version that was chosen, and
    says how they compare."""
    if prepared.compiled.program is None:
        say(f"speed        the {build.backend} compiler refuses it:", "red")
        say((prepared.compiled.refusal or prepared.compiled.messages).rstrip())
        return FAILED
    if prepared.failure:
        say(prepared.failure, "red")
        return FAILED
    if not prepared.version:
        say(f"speed        nothing to time on {build.backend}")
        return OK
    own, their = build.program(course.step), prepared.compiled.program
    rounds: list[dict[Path, dict]] = []  # the row of each program
    device = ""
    begun = time.monotonic()
    while goes_on([ratio_of(rows[own], rows[their]) for rows in rounds], time.monotonic() - begun):
        rows: dict[Path, dict] = {}
        # Each goes first in every other round: a GPU's clock changes as it grows warm.
        for program in ((their, own) if len(rounds) % 2 else (own, their)):
            # The machine's limits are taken once, with the learner's first.
            limits = [] if program == their and not rounds else ["--no-limits"]
            report, failure = timed(course, build, program, [prepared.version], limits, "speed.json")
            if report is None:
                say(failure, "red")
                return FAILED
            row = fastest(report, [prepared.version])
            if row is None:
                say(f"speed        nothing to time on {build.backend}")
                return OK
            rows[program] = row
            device = f"{build.backend}: {report['device']['name']}"
        rounds.append(rows)
    ratios = [ratio_of(rows[own], rows[their]) for rows in rounds]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    mine, ms = rounds[0][their], statistics.median(rows[their]["ms"] for rows in rounds)
    medal = medal_of(low) if len(rounds) > 1 and medal_of(low) == medal_of(high) else None
    shares = [f"{results.format_share(ratio)} of the solution ({results.format_share(low)} to "
              f"{results.format_share(high)} in {len(rounds)} round{'s' if len(rounds) > 1 else ''})"]
    if mine["of_limit"]:
        shares.append(f"{results.format_share(mine['of_limit'])} of the {mine['limit']} limit")
    if mine["of_peer"]:
        shares.append(results.format_peers(mine["of_peer"]))
    say(f"speed        {medal or 'no medal'}   {mine['name']} {results.format_ms(ms)}: "
        f"{', '.join(shares)}   ({device})", STYLE[medal] if medal else "")
    if medal is None:
        either = " or ".join(dict.fromkeys((medal_of(low), medal_of(high))))
        say(f"             {either}: the times vary too much to say; check again when nothing else runs")
    if not solution and medal:
        progress.measured(course.step, device, {
            "version": mine["name"], "ms": ms, "of_limit": mine["of_limit"], "of_solution": ratio,
            "of_vendor": min(mine["of_peer"].values(), default=None), "medal": medal})
    return OK


def ratio_of(own: dict, their: dict) -> float:
    """The speed of the learner's row, that of the repository's being 1."""
    return own["ms"] / their["ms"]


def medal_of(ratio: float) -> str:
    return "gold" if ratio >= GOLD else "silver" if ratio >= SILVER else "bronze"


def goes_on(ratios: list[float], seconds: float) -> bool:
    """Whether another round is begun: until the medal is clear, as far as there is time."""
    if len(ratios) < LEAST_ROUNDS:
        return not ratios or seconds < LIMIT
    low, high = interval(ratios)
    return medal_of(low) != medal_of(high) and len(ratios) < MOST_ROUNDS and seconds < ENOUGH


def interval(ratios: list[float]) -> tuple[float, float]:
    """Where the median lies of all rounds that there could be, but for at most CHANCE of all cases; of up to
    5 rounds their range. Nothing is assumed of how times are spread.

    The k-th smallest and the k-th largest of n enclose it but for 2 * sum(C(n, i), i < k) / 2^n of all
    cases (David and Nagaraja, Order Statistics, 7.1).
    """
    ordered, n = sorted(ratios), len(ratios)
    outside, k = 2 / 2 ** n, 1
    while (more := outside + 2 * math.comb(n, k) / 2 ** n) <= CHANCE:
        outside, k = more, k + 1
    return ordered[k - 1], ordered[n - k]


# ---- On the CPU backend ------------------------------------------------------------------------


def show_plain_time(course: Course, cpu: Build, files: dict[str, str]) -> None:
    """Prints the time of the fastest version at the largest shape that the check runs, as the check compiles
    it, and the course's own. Nothing where that takes long."""
    compiler = Compiler(cpu, course, build_root(cpu.root) / "check" / course.step.name)
    theirs = compiler.compile(files, {}, fast=True).program  # the check has made it
    row = theirs and plain_row(course, cpu, theirs, course.versions_in(list(files)))
    if not row:
        return
    words = results.format_ms(row["ms"])
    solution = {name: course.solution(name) for name in course.files_of(row["name"])}
    own = compiler.compile(solution, {}, fast=True).program
    # In turns, and the same version alone: a program's first version finds a processor that idles.
    pairs = [[own and plain_row(course, cpu, program, [row["name"]]) for program in (own, theirs)]
             for _ in range(PLAIN_ROUNDS)]
    if all(one for pair in pairs for one in pair):
        own_ms, ms = (min(pair[which]["ms"] for pair in pairs) for which in (0, 1))
        words = f"{results.format_ms(ms)}; the course's own {results.format_ms(own_ms)}"
    say(f"time         {row['name']} {words}   (one CPU thread, without optimization: noisy, and no measure "
        "of a GPU)")


def plain_row(course: Course, cpu: Build, program: Path, versions: list[str]) -> dict | None:
    shape = max(course.shapes, key=check.elements_of, default="")
    words = ["--quick", "--no-limits", "--repeat", "3", *(["--size", shape] if shape else [])]
    report, _ = timed(course, cpu, program, versions, words, "plain.json", PLAIN_TIMEOUT,
                      {"HIP_CPU_THREADS": "1"})
    return fastest(report, versions) if report else None


# ---- Programs and their rows -------------------------------------------------------------------


def folder_of(course: Course, build: Build) -> Path:
    folder = build_root(build.root) / "check" / f"{course.step.name}-{build.backend}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def timed(course: Course, build: Build, program: Path, versions: list[str], more: list[str], file: str,
          seconds: float = TIMEOUT, variables: dict[str, str] | None = None) -> tuple[dict | None, str]:
    """What the program reports with `more` words, else at its own size; None, and why, where it fails."""
    written = folder_of(course, build) / file
    written.unlink(missing_ok=True)
    command = [str(program), "--json", str(written), *course.arguments, *more]
    for version in versions:
        command += ["--version", version]
    code, out, complaint = process.limited(command, seconds, {**os.environ, **(variables or {})})
    why = f"was not at its end after {seconds:.0f} s" if code is None else "failed"
    if code == 0 and written.is_file():
        try:
            return results.load(written), ""
        except ValueError as error:
            why = f"wrote no results: {error}"
    whose = "the solution" if program == build.program(course.step) else "your version"
    return None, f"speed        {whose} {why} on {build.backend}\n{(out + complaint).rstrip()}"


def fastest(report: dict, versions: list[str]) -> dict | None:
    """The quickest row of these versions (none: of all) in the first table in which one was timed, that
    of the headline before the others."""
    for table in results.headline_first(report):
        rows = [row for row in table["rows"] if row["ms"] and not row["peer"]
                and (not versions or row["name"] in versions)]
        if rows:
            return min(rows, key=lambda row: row["ms"])
    return None
