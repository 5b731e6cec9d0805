"""How fast what a learner wrote is: timed in turns with the repository's own, and given a medal."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from . import process, results
from .build import Build, build_root
from .compiling import Compiled, Compiler
from .errors import FAILED, OK
from .exercises import Course
from .terminal import say
from .workspace import Progress

TIMEOUT = 300.0  # seconds of one program at its own size
ROUNDS = 3
ENOUGH = 3.0  # seconds: no further round is begun after them
GOLD, SILVER = 0.95, 0.75  # of the solution's speed
STYLE = {"gold": "yellow", "silver": "bold", "bronze": ""}


@dataclass(frozen=True)
class Prepared:
    """What is timed on a backend."""

    version: str  # the row that is compared; "": nothing is timed there
    compiled: Compiled
    failure: str = ""  # of the repository's own program


def show_plain_time(*a):
    pass


def prepare(course: Course, build: Build, compiler: Compiler, files: dict[str, str],
            named: dict[str, str]) -> Prepared:
    """Chooses the version to time and compiles what it needs as the course builds it, behind whatever
    else runs. A GPU, on which all is checked again, gets all files."""
    version, failure = version_to_time(course, build, course.versions_in(list(files)))
    if course.has_versions and build.backend == "cpu":
        files = {name: text for name, text in files.items() if name in course.files_of(version)}
    return Prepared(version, compiler.compile(files, named, fast=False, behind=True), failure)


def version_to_time(course: Course, build: Build, versions: list[str]) -> tuple[str, str]:
    """Which of the versions (none: all) is the fastest of the repository's, and why there is none. It is
    found once for each build of the program."""
    program = build.program(course.step)
    chosen = folder_of(course, build) / "fastest.json"
    key = " ".join([str(program.stat().st_mtime_ns), *versions])
    try:
        return json.loads(chosen.read_text(encoding="utf-8"))[key], ""
    except (OSError, ValueError, KeyError):
        pass
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
    programs = (build.program(course.step), prepared.compiled.program)
    rounds: list[list[dict]] = []  # of each the repository's row and the learner's
    device = ""
    begun = time.monotonic()
    while not rounds or (len(rounds) < ROUNDS and time.monotonic() - begun < ENOUGH):
        rows = []
        for program in programs:
            # The machine's limits are taken once, with the learner's first.
            limits = [] if program == programs[1] and not rounds else ["--no-limits"]
            report, failure = timed(course, build, program, [prepared.version], limits, "speed.json")
            if report is None:
                say(failure, "red")
                return FAILED
            row = fastest(report, [prepared.version])
            if row is None:
                say(f"speed        nothing to time on {build.backend}")
                return OK
            rows.append(row)
            device = f"{build.backend}: {report['device']['name']}"
        rounds.append(rows)
    ratio = statistics.median(theirs["ms"] / mine["ms"] for theirs, mine in rounds)
    mine, ms = rounds[0][1], statistics.median(mine["ms"] for _, mine in rounds)
    medal = "gold" if ratio >= GOLD else "silver" if ratio >= SILVER else "bronze"
    shares = [f"{results.format_share(ratio)} of the solution"]
    if mine["of_limit"]:
        shares.append(f"{results.format_share(mine['of_limit'])} of the {mine['limit']} limit")
    if mine["of_peer"]:
        shares.append(results.format_peers(mine["of_peer"]))
    vendor = min(mine["of_peer"].values(), default=None)
    say(f"speed        {medal}   {mine['name']} {results.format_ms(ms)}: "
        f"{', '.join(shares)}   ({device})", STYLE[medal])
    if not solution:
        progress.measured(course.step, device, {
            "version": mine["name"], "ms": ms, "of_limit": mine["of_limit"],
            "of_solution": ratio, "of_vendor": vendor, "medal": medal})
    return OK


def folder_of(course: Course, build: Build) -> Path:
    folder = build_root(build.root) / "check" / f"{course.step.name}-{build.backend}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def timed(course: Course, build: Build, program: Path, versions: list[str], more: list[str],
          file: str) -> tuple[dict | None, str]:
    """What the program reports at its own size; None, and why, where it fails."""
    written = folder_of(course, build) / file
    written.unlink(missing_ok=True)
    command = [str(program), "--json", str(written), *course.arguments, *more]
    for version in versions:
        command += ["--version", version]
    if build.backend == "cpu":
        command += ["--repeat", "5"]  # its times are rough: more would not change the medal
    code, out, complaint = process.limited(command, TIMEOUT)
    if code == 0 and written.is_file():
        return results.load(written), ""
    whose = "the solution" if program == build.program(course.step) else "your version"
    why = f"was not at its end after {TIMEOUT:.0f} s" if code is None else "failed"
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
