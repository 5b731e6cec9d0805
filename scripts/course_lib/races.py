"""Names the two lines of a data race, when a check has failed in a way that a race would explain.

The CPU backend's build for ThreadSanitizer, in which every GPU thread is a thread of its own, is made
as far as the step needs it, and the smallest run that failed is done once more. ThreadSanitizer takes
about 10 ms for each block, so nothing that is right is ever shown to it. Where it is missing, or where
anything takes too long, there is nothing to add to what the check has found.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import check, compiling, process
from .backend import Hardware
from .build import Build, build_root
from .errors import CourseError
from .exercises import Course
from .terminal import say

LIBRARIES_TIMEOUT = 240.0  # seconds
COMPILE_TIMEOUT = 120.0
RUN_TIMEOUT = 60.0
OPTIONS = "halt_on_error=1 report_signal_unsafe=0 report_thread_leaks=0 exitcode=66"
WORDS = re.compile(r"barrier|race|atomic|synchron|wave_sync|too early")  # of mistakes that race

# (function, place) of what stands at addresses of the program, from the inmost function outwards: only
# places in the learner's files.
LinesOf = Callable[[list[str]], list[tuple[str, str]]]


@dataclass(frozen=True)
class Access:
    what: str  # "read", "write", "atomic write"
    place: str  # "workspace/stage1_vector/03_dot/versions/shared_tree.hip:41"
    thread: str  # "thread (3,0,0)" of its block, or "" where that is not known


@dataclass(frozen=True)
class Race:
    kernel: str
    first: Access  # the one that came later
    second: Access

    def words(self) -> str:
        a, b = self.first, self.second
        start = f"data race in {self.kernel}: " if self.kernel else "data race: "
        if a.place == b.place and a.what == b.what:
            text = f"two threads {a.what} one element at {a.place}"
        else:
            text = (f"{a.thread or 'one thread'} {a.what}s at {a.place} what "
                    f"{b.thread or 'another'} {b.what}s "
                    + ("there" if a.place == b.place else f"at {b.place}"))
        return f"{start}{text}, and nothing says who comes first"


def suspects(runs: list[check.Run], mistakes: list[str]) -> list[check.Run]:
    """The failing runs that a race would explain, the smallest shape first: those whose results
    another order of threads changes, at the same shape and size of a wave; or all, where they look
    like a mistake with barriers. What waits for ever is left out."""

    def seen(run: check.Run):
        return (run.fault, *((o.version, o.problem, o.status, o.failed, o.index) for o in run.outcomes))

    groups: dict[tuple[str, str], list[check.Run]] = {}
    for run in runs:
        groups.setdefault((run.shape, run.wave), []).append(run)
    changing = [run for group in groups.values() if len({seen(run) for run in group}) > 1
                for run in group]
    if not changing and any(WORDS.search(name) for name in mistakes):
        changing = [run for run in runs if not run.fault]
    found = [run for run in changing if not run.ok and run.fault not in ("timeout", "deadlock")]
    return sorted(found, key=lambda run: run.elements)


def find(course: Course, files: dict[str, str], named: dict[str, str], cpu: Build,
         versions: list[str], run: check.Run) -> Race | None:
    """Does a failing run once more under ThreadSanitizer. None where that finds nothing."""
    say("  ThreadSanitizer looks for the lines of a race", "dim")
    seen = run_again(course, files, named, cpu, versions, run)
    return parse(seen[0].message, seen[1]) if seen else None


def run_again(course: Course, files: dict[str, str], named: dict[str, str], cpu: Build,
              versions: list[str], run: check.Run) -> tuple[check.Run, LinesOf] | None:
    """The run under ThreadSanitizer, and what parse() needs for it; None where it can't be had."""
    try:
        compiler = _compiler(course, cpu)
        compiled = compiler.compile(files, named, fast=False) if compiler else None
    except CourseError:
        return None
    if compiled is None or compiled.program is None:
        return None
    replace = compiled.places(named)
    wrong = [outcome.version for outcome in run.outcomes if outcome.status != "ok"]
    chosen = list(dict.fromkeys(wrong or versions))
    for under in ((), ("setarch", "--addr-no-randomize")):
        again = check.run_one(compiled.program, course, chosen, run.shape, run.wave, run.order, replace,
                              under=under, environment={"TSAN_OPTIONS": OPTIONS}, seconds=RUN_TIMEOUT)
        # Some kernels lay memory out in a way that older ThreadSanitizers can't work with.
        if "unexpected memory mapping" not in again.message or not shutil.which("setarch"):
            break
    return again, _lines_of(compiled.program, replace)


def _compiler(course: Course, cpu: Build) -> compiling.Compiler | None:
    """For the step under ThreadSanitizer, with all that it links; None where that can't be had."""
    build = Build(cpu.root, build_root(cpu.root) / "cpu-tsan", "cpu-tsan", cpu.environment)
    if not build.is_configured():
        say("  what it needs is built once: this takes up to a minute", "dim")
        build.configure(Hardware())
    folder = build_root(cpu.root) / "check" / f"{course.step.name}-tsan"
    compiler = compiling.of(build, course, folder, COMPILE_TIMEOUT)
    command = ["cmake", "--build", str(build.folder), "--parallel", str(process.cpu_count()),
               "--target", *compiler.needed(cpu)]
    code, text, _ = process.limited(command, LIBRARIES_TIMEOUT, build.environment, build.root)
    process.raise_if_disk_full(text, build.folder)
    return compiler if code == 0 else None


# ---- What ThreadSanitizer says -----------------------------------------------------------------

ACCESS = re.compile(r"^  (?:Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) of size \d+ at \S+ by "
                    r"(?:main thread|thread (T\d+))")
FRAME = re.compile(r"^    #\d+ .*\((.+)\+0x([0-9a-f]+)\)(?: \(BuildId: [0-9a-f]+\))?$")  # since GCC 13
THREAD = re.compile(r"^  Thread (T\d+) '([^']+)'", re.MULTILINE)


def parse(text: str, lines_of: LinesOf) -> Race | None:
    """The race that ThreadSanitizer has reported."""
    report = text.partition("WARNING: ThreadSanitizer: data race")[2].partition("SUMMARY:")[0]
    # A fiber has the name of the thread that it ran last: the right one for a block's own memory.
    names = dict(THREAD.findall(report)) if "Location is TLS" in report else {}
    lines = report.splitlines()
    accesses, kernel = [], ""
    for number, line in enumerate(lines):
        begin = ACCESS.match(line)
        if not begin:
            continue
        stack = itertools.takewhile(bool, map(FRAME.match, lines[number + 1:]))
        own = lines_of([frame[2] for frame in stack])
        if not own:
            return None
        # The launcher's lambda, which calls the kernel, is the learner's too.
        functions = [name for name, _ in own if "lambda" not in name and not name.startswith("operator")]
        kernel = _plain(functions[-1]) if functions else ""
        what = (begin[1] or "").lower() + begin[2].lower()
        accesses.append(Access(what, own[0][1], names.get(begin[3], "")))
    return Race(kernel, *accesses) if len(accesses) == 2 else None


def _lines_of(program: Path, replace: dict[str, str]) -> LinesOf:
    """For parse(): addr2line finds the lines of inlined functions too, which GCC's ThreadSanitizer
    does not."""
    def lines_of(addresses: list[str]) -> list[tuple[str, str]]:
        answer = process.output(["addr2line", "-e", str(program), "-f", "-C", "-i", *addresses]) or ""
        lines = [re.sub(r" \(discriminator \d+\)", "", line) for line in answer.splitlines()]
        found = []
        for function, place in zip(lines[::2], lines[1::2]):
            file, _, number = place.rpartition(":")
            if file in replace:
                found.append((function, f"{replace[file]}:{number}"))
        return found

    return lines_of


def _plain(function: str) -> str:
    """"dot::dot_shared_tree(float*, ...)" -> "dot_shared_tree"."""
    return re.sub(r"^(\w+ )*|<.*|\(.*", "", function).rpartition("::")[2]
