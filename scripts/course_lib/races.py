"""Looks for data races: one run of the learner's kernels under ThreadSanitizer, and its report in a line.

The CPU backend's build for ThreadSanitizer, in which every GPU thread is a thread of its own, is made as
far as the step needs it: in the background by `course start`, else by the first check. Each GPU thread
costs about half a millisecond there, so that exercise.toml names a small size for this run. It has at least
two blocks of more than one wave, where the kernels allow it.

`python -m course_lib.races STEP` builds what a step needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from . import check, compiling, exercises, process, results, steps
from .backend import Hardware
from .build import Build, build_root
from .errors import FAILED, CourseError
from .exercises import Course
from .terminal import say

LIBRARIES_TIMEOUT = 600.0  # seconds
COMPILE_TIMEOUT = 120.0
RUN_TIMEOUT = 60.0
# At its end a program would wait a second for what other threads may still report.
OPTIONS = "halt_on_error=1 report_signal_unsafe=0 report_thread_leaks=0 exitcode=66 atexit_sleep_ms=0"
ORDERS = ("forward", "reverse", "waves")
MOST_TIMES_LARGER = 16  # than the size of a look, a failing run may be
TWO = "2"  # blocks show a race between blocks; more of them only take longer
# Some kernels lay memory out in a way that older ThreadSanitizers can't work with.
BAD_MAPPING = "unexpected memory mapping"

@dataclass(frozen=True)
class Frame:
    """A place in the program, of those that an address stands for."""

    function: str
    place: str  # "workspace/stage1_vector/03_dot/versions/shared_tree.hip:41"
    mine: bool  # in one of the learner's files


LinesOf = Callable[[list[str]], list[Frame]]  # from the inmost function outwards


@dataclass(frozen=True)
class Access:
    what: str  # "read", "write", "atomic write"
    place: str  # "" where it is not known any more
    thread: str  # "thread (3,0,0)" of its block, or "" where that is not known


@dataclass(frozen=True)
class Race:
    kernel: str
    first: Access  # the one that came later
    second: Access

    def words(self) -> str:
        a, b = self.first, self.second
        start = f"data race in {self.kernel}: " if self.kernel else "data race: "
        if not a.place or not b.place:
            known, other = (a, b) if a.place else (b, a)
            text = (f"{known.thread or 'one thread'} {known.what}s"
                    + (f" at {known.place}" if known.place else "")
                    + f" what {other.thread or 'another'} {other.what}s")
        elif a.place == b.place and a.what == b.what:
            text = f"two threads {a.what} one element at {a.place}"
        else:
            text = (f"{a.thread or 'one thread'} {a.what}s at {a.place} what "
                    f"{b.thread or 'another'} {b.what}s "
                    + ("there" if a.place == b.place else f"at {b.place}"))
        return f"{start}{text}, and nothing says who comes first"


@dataclass(frozen=True)
class Result:
    race: Race | None = None
    looked: bool = False  # without this, no race found says nothing
    why: str = ""  # it was not looked for; with `looked`: because there can be none
    run: check.Run | None = None  # of the check, which was done again


def _seen(run: check.Run) -> tuple:
    """What tells one run's results from another's."""
    return (run.fault, *((o.version, o.problem, o.status, o.failed, o.index) for o in run.outcomes))


def suspects(runs: list[check.Run]) -> list[check.Run]:
    """The failing runs that a race would explain, the smallest shape first: those whose results
    another setting changes, at the same shape and size of a wave, and those that may have read
    what nobody had written yet (NaN). What waits for ever is left out."""
    groups: dict[tuple[str, str], list[check.Run]] = {}
    for run in runs:
        groups.setdefault((run.shape, run.setting.wave), []).append(run)
    changing = [run for group in groups.values() if len({_seen(run) for run in group}) > 1
                for run in group]
    changing += [run for run in runs if run not in changing and any(o.status == "nan" for o in run.outcomes)]
    found = [run for run in changing if not run.ok and run.fault not in check.ENDLESS]
    return sorted(found, key=lambda run: run.elements)


def depends_on_order(run: check.Run, again: Callable[[check.Setting], check.Run]) -> bool:
    """Whether another order of threads alone changes what a suspect does: where none does, two settings differ by
    their guard pages, a NaN was computed, and no race explains it. again(setting) does the run once more."""
    return any(_seen(again(replace(run.setting, order=order))) != _seen(run)
               for order in ORDERS if order != run.setting.order)


class Detector:
    """Looks for races in what a learner wrote into a step. prepare() may run in a thread beside the other
    phases of a check; stop(), called in another thread, ends either."""

    def __init__(self, course: Course, cpu: Build, announce: Callable[[str], None] | None = None,
                 folder: Path | None = None, behind: bool = False):
        """`behind`: it compiles when nothing else has to."""
        self._course, self._cpu, self._behind = course, cpu, behind
        self._announce = announce or (lambda line: say(f"  {line}", "dim"))
        made = build_root(cpu.root)
        self._build = Build(cpu.root, made / "cpu-tsan", "cpu-tsan", cpu.environment)
        self._folder = folder or made / "check-tsan" / course.step.name
        self._compiler: compiling.Compiler | None = None
        self._why = ""  # it can't look
        self._child: subprocess.Popen | None = None
        self._suspect: tuple[list[str], check.Run] | None = None
        self._preparing = threading.Lock()
        self._stopped = False

    def prepare(self) -> None:
        """Builds what the step links, if that has not been done."""
        with self._preparing:
            if self._compiler or self._why or self._course.races.none:
                return
            try:
                with self._alone():
                    self._why = self._prepare()
            except (CourseError, OSError) as error:
                self._why = str(error)

    def suspect(self, versions: list[str], run: check.Run) -> bool:
        """A look that has not run its program yet runs these versions, as the failing `run` was done. False
        where that would take much longer than a look is meant to."""
        if self._course.races.none:
            return False
        is_small = run.elements <= MOST_TIMES_LARGER * check.elements_of(self._course.races.size)
        if is_small:
            self._suspect = versions, run
        return is_small

    def look(self, files: dict[str, str], named: dict[str, str], versions: list[str]) -> Result:
        """Runs these versions (none: all) once, at the size that exercise.toml names, or a suspect. `files` are
        texts by file name, `named` what the learner knows them as."""
        if self._course.races.none:
            return Result(looked=True, why=self._course.races.none)
        self.prepare()
        if self._compiler is None:
            return Result(why=self._why)
        try:
            compiled = self._compiler.compile(files, named, fast=True, behind=self._behind)
        except CourseError as error:
            return Result(why=str(error))
        if compiled.program is None:
            if re.search(r"libtsan|cannot find -ltsan|libclang_rt\.tsan", compiled.messages):
                return Result(why="ThreadSanitizer is not installed")
            return Result(why=compiled.refusal or "the compiler refuses it for ThreadSanitizer: "
                          + process.last_line(compiled.messages))
        versions, run = self._suspect or (versions, None)
        code, text, skipped = self._run(compiled.program, versions, run)
        places = compiled.places(named)
        race = parse(text, _lines_of(compiled.program, places, self._build.root)) if code else None
        if code == 0 and skipped:
            return Result(why=f"its run under ThreadSanitizer leaves {', '.join(skipped)} out")
        is_at_its_end = code == 0 or (run and code == FAILED)  # a suspect's results are wrong in any case
        if race or is_at_its_end:
            return Result(race, True, run=run)
        return Result(why=_why_not(code, text), run=run)

    def stop(self) -> None:
        self._stopped = True
        if self._compiler:
            self._compiler.stop()
        if self._child:
            process.end(self._child)

    def _prepare(self) -> str:
        """Why the step can't be built for ThreadSanitizer; "" where it is."""
        if not self._build.is_configured():
            self._announce("what ThreadSanitizer needs is built once: this takes up to a minute")
            self._build.configure(Hardware())
        compiler = compiling.Compiler(self._build, self._course, self._folder, COMPILE_TIMEOUT)
        # What the program uses of the libraries is known when there is one.
        known = self._cpu.program(self._course.step).is_file()
        needed = compiler.needed(self._cpu) if known else compiler.parts("program")
        command = ["cmake", "--build", str(self._build.folder), "--parallel", str(process.cpu_count()),
                   "--target", *needed]
        code, text, _ = process.limited(command, LIBRARIES_TIMEOUT, self._build.environment,
                                        self._build.root, self._started)
        process.raise_if_disk_full(text, self._build.folder)
        log = self._build.folder.parent / "cpu-tsan-build.log"
        log.write_text(f"$ {process.shown(command)}\n{text}", encoding="utf-8")
        if code != 0:
            return f"the build for ThreadSanitizer failed (see {log})"
        compiler.precompile()
        self._compiler = compiler
        return ""

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two at once would build the same files. The lock goes with the process that holds it."""
        with (self._build.folder.parent / "cpu-tsan.lock").open("w") as lock:
            waiting = False
            while not self._stopped:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        self._announce("waiting for what ThreadSanitizer needs, which another command builds")
                    waiting = True
                    time.sleep(0.1)
            yield

    def _started(self, child: subprocess.Popen) -> None:
        self._child = child
        if self._stopped:
            process.end(child)

    def _run(self, program: Path, versions: list[str], run: check.Run | None,
             ) -> tuple[int | None, str, list[str]]:
        """The exit code (None: it took too long), all that the program said, and the versions that it has
        skipped in every table although they need no other hardware."""
        course = self._course
        size = run.shape if run else course.races.size
        arguments = course.arguments if run else course.races.arguments
        wave, order = (run.setting.wave, run.setting.order) if run else ("32", "forward")
        written = program.parent / "races.json"
        written.unlink(missing_ok=True)
        command = [str(program), "--quick", "--no-limits", "--repeat", "1", "--wave", wave, "--order", order,
                   "--json", str(written), *arguments]
        for version in versions:
            command += ["--version", version]
        if size:
            command += ["--size", size]
        variables = {**os.environ, "HIP_CPU_THREADS": "1", "HIP_CPU_MULTIPROCESSORS": TWO, "HIP_CPU_BLOCKS": TWO,
                     "HIP_CPU_TIMEOUT": f"{RUN_TIMEOUT:.0f}", "TSAN_OPTIONS": OPTIONS}
        for under in ([], ["setarch", "--addr-no-randomize"]):
            code, out, complaint = process.limited([*under, *command], RUN_TIMEOUT, variables,
                                                   program.parent, self._started)
            if BAD_MAPPING not in complaint or not shutil.which("setarch"):
                break
        rows = [row for table in results.load(written)["tables"] for row in table["rows"] if not row["peer"]
                ] if code == 0 and written.is_file() else []
        ran = {row["name"] for row in rows
               if row["status"] != "skipped" or row["skipped"].startswith("needs ")}  # sm_90, say
        return code, complaint or out, list(dict.fromkeys(row["name"] for row in rows if row["name"] not in ran))


def _why_not(code: int | None, text: str) -> str:
    if code is None:
        return f"its run under ThreadSanitizer was not at its end after {RUN_TIMEOUT:.0f} s"
    if BAD_MAPPING in text:
        return "ThreadSanitizer does not work on this kernel"
    warning = re.search(r"WARNING: (ThreadSanitizer: .*?)(?: \(pid=\d+\))?$", text, re.MULTILINE)
    return warning[1] if warning else ("its run under ThreadSanitizer failed: "
                                       + (process.last_line(text) or f"exit code {code}"))


def begin_in_background(course: Course, root: Path) -> None:
    """Has what the step's check needs built and precompiled while the learner reads and writes. It goes on when this
    process ends, and a check waits for it."""
    log = build_root(root) / "cpu-tsan-start.log"
    command = ["nice", "-n", "19", sys.executable, "-m", f"{__package__}.races", course.step.number]
    if not Build(root, build_root(root) / "cpu", "cpu", dict(os.environ)).is_configured():
        return  # nothing is set up yet: the first check does that, and this
    with log.open("w", encoding="utf-8") as file:
        subprocess.Popen(command, cwd=root / "scripts", stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                         start_new_session=True)


# ---- What ThreadSanitizer says -----------------------------------------------------------------

ACCESS = re.compile(r"^  (?:Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) of size \d+ at \S+ by "
                    r"(?:main thread|thread (T\d+))")
FRAME = re.compile(r"^    #\d+ .*\((.+)\+0x([0-9a-f]+)\)(?: \(BuildId: [0-9a-f]+\))?$")  # since GCC 13
THREAD = re.compile(r"^  Thread (T\d+) '([^']+)'", re.MULTILINE)


def parse(text: str, lines_of: LinesOf) -> Race | None:
    """The race that ThreadSanitizer has reported. Of each access the inmost line of the learner's is named,
    or else of the course's."""
    report = text.partition("WARNING: ThreadSanitizer: data race")[2].partition("SUMMARY:")[0]
    # A fiber has the name of the thread that it ran last: the right one for a block's own memory.
    names = dict(THREAD.findall(report)) if "Location is TLS" in report else {}
    lines = report.splitlines()
    accesses: list[Access] = []
    kernels: list[tuple[bool, str]] = []
    for number, line in enumerate(lines):
        begin = ACCESS.match(line)
        if not begin:
            continue
        stack = itertools.takewhile(bool, map(FRAME.match, lines[number + 1:]))
        frames = lines_of([frame[2] for frame in stack])
        mine = [frame for frame in frames if frame.mine]
        # The launcher's lambda, which calls the kernel, is in the same file.
        functions = [frame.function for frame in mine or frames
                     if "lambda" not in frame.function and not frame.function.startswith("operator")]
        if functions:
            kernels.append((not mine, _plain(functions[-1] if mine else functions[0])))
        what = (begin[1] or "").lower() + begin[2].lower()
        accesses.append(Access(what, (mine or frames)[0].place if frames else "", names.get(begin[3], "")))
    if len(accesses) < 2:
        return None
    return Race(min(kernels, key=lambda kernel: kernel[0])[1] if kernels else "", *accesses[:2])


def _lines_of(program: Path, places: dict[str, str], root: Path) -> LinesOf:
    """For parse(): addr2line finds the lines of inlined functions too, which GCC's ThreadSanitizer
    does not."""
    def lines_of(addresses: list[str]) -> list[Frame]:
        if not addresses:
            return []
        answer = process.output(["addr2line", "-e", str(program), "-f", "-C", "-i", *addresses]) or ""
        lines = [re.sub(r" \(discriminator \d+\)", "", line) for line in answer.splitlines()]
        found = []
        for function, place in zip(lines[::2], lines[1::2]):
            file, _, number = place.rpartition(":")
            if file in places:
                found.append(Frame(function, f"{places[file]}:{number}", True))
            elif Path(file).is_relative_to(root) and not Path(file).is_relative_to(root / "common" / "cpu"):
                found.append(Frame(function, f"{Path(file).relative_to(root)}:{number}", False))
        return found

    return lines_of


def _plain(function: str) -> str:
    """"dot::dot_shared_tree(float*, ...)" -> "dot_shared_tree"."""
    return re.sub(r"^(\w+ )*|<.*|\(.*", "", function).rpartition("::")[2]


def main(number: str) -> None:
    root = Path(__file__).resolve().parents[2]
    step = next(step for step in steps.discover(root) if step.number == number)
    cpu = Build(root, build_root(root) / "cpu", "cpu", dict(os.environ))
    course = exercises.load(step)
    Detector(course, cpu).prepare()
    compiling.Compiler(cpu, course, build_root(root) / "check" / step.name).precompile()


if __name__ == "__main__":
    main(sys.argv[1])
