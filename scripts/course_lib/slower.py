"""Whether anything has become slower than the committed results of the same device say: one line.

A version counts as slower where its spread and the committed one's do not touch and its median is LEAST_SLOWER
above the committed one. Peers do not count: another version of a library is no change of the course.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from . import bench_file, results
from .errors import MISSING, USAGE, CourseError

# Two runs of all steps on two H200s (commits 3729b9e and e5c21e9), with little changed in between: 93% of 546
# versions' times were within 5% of each other, 16 were more than 5% longer, and of those the spreads of 2 did
# not touch.
LEAST_SLOWER = 0.05
WORSE = ("fails now", "not timed now", "slower")  # the worst first


@dataclass(frozen=True)
class Verdict:
    line: str
    is_worse: bool


def device_folders(folder: Path) -> list[Path]:
    """The folders of a folder such as results/ that hold a device's results."""
    return [one for one in sorted(folder.glob("*")) if one.is_dir() and any(one.glob("*.json"))]


def committed(folder: Path) -> list[tuple[str, dict]]:
    """The runs that a folder such as results/ holds, one per device, each with how its own folder is called from
    here."""
    return [(min(str(one), os.path.relpath(one), key=len), *bench_file.load_for_user(one))
            for one in device_folders(folder)]


def against(found: list[tuple[str, dict]], run: dict) -> Verdict:
    """verdict() against the one of `found` that is of the run's device. Raises CourseError(MISSING) where none
    is."""
    device = device_of(run)
    for name, before in found:
        if device_of(before) == device:
            return verdict(before, run, name)
    raise CourseError(f"results/ has nothing of {device[0] or 'no device'} ({device[1] or 'no backend'}) to compare "
                      "with: `scripts/course run --save-results` makes it", MISSING)


def device_of(run: dict) -> tuple[str, str]:
    """The device's name and backend: times of others are not compared."""
    return run["environment"]["device"], run["environment"]["backend"]


def verdict(before: dict, after: dict, name: str) -> Verdict:
    """What is worse in `after` than in `before`, which is called `name`. Raises CourseError where the two have
    nothing in common or one of them was made with --quick."""
    if before["quick"] or after["quick"]:
        raise CourseError("--compare is for times, and --quick makes none that mean anything", USAGE)
    old, new = bench_file.rows_of(before), bench_file.rows_of(after)
    timed = [key for key in new if key in old and old[key]["ms"] and not old[key]["peer"]]
    if not timed:
        raise CourseError(f"{name} has no time of any version that was measured here", USAGE)
    found = {}
    for key, change, one, other in bench_file.compare(before, after):
        if key in timed and (change in WORSE[:2] or abs(math.log(_ratio(one, other))) >= math.log1p(LEAST_SLOWER)):
            found[key] = change
    worse = sorted((key for key in found if found[key] in WORSE),
                   key=lambda key: (WORSE.index(found[key]), -_ratio(old[key], new[key])))
    faster = sum(change == "faster" for change in found.values())
    if not worse:
        return Verdict(f"nothing is slower than in {name}: {len(timed)} times of versions compared, {faster} faster",
                       False)
    step, program, problem, version = key = worse[0]
    what = found[key] if found[key] != "slower" else (
        f"{results.format_ms(new[key]['ms'])} instead of {results.format_ms(old[key]['ms'])}, "
        f"{results.significant(_ratio(old[key], new[key]))} times")
    return Verdict(f"worse than in {name}: {len(worse)} of {len(timed)} times of versions, {faster} faster; worst: "
                   f"{step} {program} {version} at {' '.join(problem.split())}: {what}", True)


def _ratio(before: dict, after: dict) -> float:
    """How many times as long it takes; 1 where there is no time any more."""
    return after["ms"] / before["ms"] if after["ms"] else 1.0
