"""Checks a learner's header: compiles it into the step's own program, runs that over the step's
shapes, and puts what went wrong into words.

Every run is one process of the program with --quick, one shape, one size of a wave and one order of
threads. On the CPU backend a run ends with a line that names the thread where a kernel reads outside
a buffer, where threads wait at different barriers, or where nothing moves any more; what depends on
the order of threads shows as rows that are right in one order and wrong in another.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import process, results
from .build import Build
from .errors import FAILED, CourseError
from .exercises import Course

COMPILE_TIMEOUT = 600.0  # seconds
# Seconds of one run, which rarely has the machine for itself; kernels are stopped by HIP_CPU_TIMEOUT.
TIMEOUT = 40.0
CPU_TIMEOUT = "5"

# What every program includes before the step's own header.
PRECOMPILED = ("common/program.h", "common/sample.h")

# What is tried on the CPU backend: a shape's rows must be right in all of them.
SETTINGS = (("32", "forward"), ("32", "reverse"), ("64", "random:7"))
GPU_SETTINGS = (("", ""),)

# How the CPU backend words what a kernel did, and what it is called here.
FAULTS = (
    ("outside", r"just past the end|past the end of|before the .*buffer|where no buffer is|"
                r"memory just .* was written|outside the launch's|freed buffer|"
                r"illegal memory access|Memory access fault"),
    ("null", r"through a null pointer"),
    ("barrier", r"barrier|returned while|different"),
    ("deadlock", r"has not finished in time|wait"),
    ("stack", r"needs more stack"),
    ("division", r"division by zero"),
)
FAULT_WORDS = {
    "outside": "a thread leaves its buffer",
    "null": "a thread follows a null pointer",
    "barrier": "the threads of a block don't meet at the same barrier",
    "deadlock": "threads wait for each other for ever",
    "stack": "a thread needs too much stack",
    "division": "an integer is divided by zero",
    "timeout": "the program does not end",
    "crash": "the program crashes",
    "error": "the program stops",
}


# ---- Compiling ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    program: Path | None  # None: the compiler refused it
    messages: str  # the compiler's, with the learner's paths

    def places(self, course: Course, named: dict[str, str]) -> dict[str, str]:
        """What the learner knows each replaced header as, by the name that it was compiled under."""
        step = course.step
        made = self.program.parent / "include" / step.folder.parent.name / step.folder.name
        return {f"{made}/{name}": path for name, path in named.items()}


class Compiler:
    """Compiles a step's program with some of the step's headers replaced.

    The commands are those of the step's build, which must be up to date; only the folder that holds
    the replaced headers comes before the repository, and the result goes elsewhere.
    """

    def __init__(self, build: Build, course: Course, folder: Path, seconds: float = COMPILE_TIMEOUT):
        self.build, self.course, self.folder, self._seconds = build, course, folder, seconds
        # What is compiled once is kept here anyway, and ccache can shorten the paths that messages and
        # debug information show, by which the learner's file is known.
        self._environment = {**build.environment, "CCACHE_DISABLE": "1"}
        self._children: list[subprocess.Popen] = []
        self._stopped = False
        step = course.step
        answer = process.output(["ninja", "-C", str(build.folder), "-t", "commands",
                                 f"{step.folder.parent.name}/{step.name}"])
        lines = (answer or "").splitlines()
        self._sources: list[tuple[str, str]] = []  # the command and the object file of each
        for name in (f"{step.name}.hip", f"{step.name}_instances.hip"):
            source = step.folder / name
            found = [line for line in lines if re.search(rf"-c \S*{re.escape(str(source))}'?( |$)", line)]
            if found:
                self._sources.append((found[-1], re.search(r" -o (\S+)", found[-1])[1]))
        if not self._sources:
            raise CourseError(f"the build in {build.folder} has no {step.name}: run "
                              f"`scripts/course run {step.number}` first", FAILED)
        self._link = lines[-1]

    def libraries(self) -> list[str]:
        """The build's own libraries that the program links, but for its own instances."""
        own = f"lib{self.course.step.name}_instances.a"
        return [word for word in re.findall(r"(?<= )[^/\s]\S*\.a(?= |$)", self._link) if word != own]

    def leave_out(self, libraries: list[str]) -> None:
        """Links without these."""
        for library in libraries:
            self._link = self._link.replace(f" {library}", "", 1)

    def compile(self, headers: dict[str, str], shown_as: dict[str, str], fast: bool,
                behind: bool = False) -> Compiled:
        """`headers` are texts by file name. `fast`: little optimization, for checks; else as the
        course builds it, for times. What was compiled before is taken from the folder. `behind`:
        whatever else runs goes first."""
        step = self.course.step
        made = [self.build.folder / library for library in self.libraries()]
        missing = next((path for path in made if not path.is_file()), None)
        if missing:
            raise CourseError(f"{missing} is not built: run `scripts/course run {step.number}` first",
                              FAILED)
        made += [path for path in (self.build.program(step),) if path.is_file()]
        newest = max((path.stat().st_mtime_ns for path in made), default=0)
        key = json.dumps([sorted(headers.items()), fast, self._sources, self._link, newest])
        place = self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]
        program = place / step.name
        log = place / "messages.txt"
        if log.is_file():
            return Compiled(program if program.is_file() else None, log.read_text(encoding="utf-8"))
        overlay = place / "include" / step.folder.parent.name / step.folder.name
        overlay.mkdir(parents=True, exist_ok=True)
        for name, text in headers.items():
            (overlay / name).write_text(text, encoding="utf-8")

        def run(command: str) -> tuple[int | None, str]:
            if self._stopped:
                return None, ""
            words = [*(["nice", "-n", "10"] if behind else []), "sh", "-c", f"exec 2>&1; {command}"]
            code, text, _ = process.limited(words, self._seconds, self._environment, self.build.folder,
                                            self._started)
            process.raise_if_disk_full(text, place)
            for name, path in shown_as.items():
                text = text.replace(str(overlay / name), path)
            if code is None:
                text += f"the compiler was not at its end after {self._seconds:.0f} s\n"
            return code, text

        # The program and, where it is compiled apart, what the step's header declares extern.
        link = re.sub(r" -o \S+", f" -o {_quoted(place / 'linked')}", self._link, count=1)
        commands = []
        for number, (command, object_file) in enumerate(self._sources):
            made = _quoted(place / f"{number}.o")
            commands.append(self._adapted(command, object_file, made, place / "include", fast))
            library = rf"\S*lib{step.name}_instances\.a"
            link = (link.replace(object_file, made, 1) if number == 0
                    else re.sub(library, made, link, count=1))
        with ThreadPoolExecutor(process.cpu_count()) as pool:
            done = list(pool.map(run, commands))
        if all(code == 0 for code, _ in done):
            # gold is twice as quick, where the compiler can use it.
            quick = link.replace(" -o ", " -fuse-ld=gold -o ", 1)
            has_gold = fast and self.build.backend == "cpu" and shutil.which("ld.gold")
            linked = run(quick) if has_gold else (1, "")
            done.append(linked if linked[0] == 0 else run(link))
        messages = "".join(dict.fromkeys(text for _, text in done))
        for number in range(len(self._sources)):
            (place / f"{number}.o").unlink(missing_ok=True)
        if self._stopped:
            return Compiled(None, "")
        if all(code == 0 for code, _ in done):
            os.replace(place / "linked", program)
        log.write_text(messages, encoding="utf-8")
        return Compiled(program if program.is_file() else None, messages)

    def stop(self) -> None:
        """Ends a compile() in another thread, and lets none begin."""
        self._stopped = True
        for child in self._children:
            process.end(child)

    def _started(self, child: subprocess.Popen) -> None:
        self._children.append(child)
        if self._stopped:
            process.end(child)

    def _adapted(self, command: str, object_file: str, made: str, include: Path, fast: bool) -> str:
        """The build's command, with `include` searched before the repository, into another file."""
        command = re.sub(r" -MD\b| -M[TF] \S+", "", command).replace(" -Werror", "")
        # An emptied region leaves names that nothing uses: that is no news to whoever must fill it.
        command = re.sub(r" -Wextra\b", " -Wextra -Wno-unused-variable -Wno-unused-parameter"
                         " -Wno-unused-but-set-variable", command) if " -x cu" not in command else command
        command = command.replace(" -x cu ", " -x cu -lineinfo ", 1)  # for compute-sanitizer; costs no time
        if fast:
            command = re.sub(r" -O[0-9s]\b", " -O0", command)
        if self.build.backend == "cpu":
            common = self._precompiled(command, object_file, "common" if fast else "common-timed")
            command = command.replace(" -c ", f" {common} -c ", 1)
        command = command.replace(" -I", f" -I{_quoted(include)} -I", 1)
        return command.replace(f" -o {object_file}", f" -o {made}", 1)

    def _precompiled(self, command: str, object_file: str, place: str) -> str:
        """The words that bring in what every program includes, precompiled by GCC: a third of the
        time at -O0. A compiler that can't use the file reads the header instead."""
        folder = self.folder.parent / place
        header, made, log = folder / "common.h", folder / "common.h.gch", folder / "made_for.txt"
        command = re.sub(r" -c .*", f" -x c++-header -c {_quoted(header)} -o {_quoted(folder / 'new')}",
                         command.replace(f" -o {object_file}", "", 1).replace(" -x c++ ", " ", 1))
        with _precompiling[place]:
            root = self.build.root / "common"
            texts = [path.read_bytes() for path in sorted(root.rglob("*.h"))]
            key = hashlib.sha256(repr([command, texts]).encode()).hexdigest()
            if not log.is_file() or log.read_text(encoding="utf-8") != key:
                folder.mkdir(parents=True, exist_ok=True)
                made.unlink(missing_ok=True)
                header.write_text("".join(f'#include "{name}"\n' for name in PRECOMPILED),
                                  encoding="utf-8")
                code, text, _ = process.limited(["sh", "-c", f"exec 2>&1; {command}"], self._seconds,
                                                self._environment, self.build.folder)
                process.raise_if_disk_full(text, folder)
                if code == 0 and (folder / "new").is_file():
                    os.replace(folder / "new", made)
                log.write_text(key, encoding="utf-8")
        return f"-include {_quoted(header)}" if made.is_file() else ""


_precompiling = {place: threading.Lock() for place in ("common", "common-timed")}


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


# ---- Running -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one version made of one problem."""

    version: str
    problem: str  # the table's: "NN   M=17 N=33 K=65 float32"
    status: str  # ok, wrong, unwritten or nan
    failed: int = 0
    compared: int = 0
    index: int = 0  # of the first element out of bound
    max_error: float | None = None
    bound: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Run:
    """One process: a shape, a size of a wave, an order of threads."""

    shape: str
    wave: str
    order: str
    outcomes: tuple[Outcome, ...]
    fault: str = ""  # a key of FAULT_WORDS; empty: the program came to its end
    message: str = ""  # the program's own words on it
    output: str = field(default="", compare=False, repr=False)  # all that it printed

    @property
    def elements(self) -> int:
        return math.prod(int(size) for size in self.shape.split("x") if size.isdigit())

    @property
    def ok(self) -> bool:
        return not self.fault and all(outcome.status == "ok" for outcome in self.outcomes)


def run_all(program: Path, course: Course, versions: list[str], on_gpu: bool,
            replace: dict[str, str], at_a_time: int = 0, to_first_failure: bool = False) -> list[Run]:
    """Every shape in every setting, as many `at_a_time` as there are processors unless it says. After
    one that does not end, no other is begun; nor after any that fails, where that is enough."""
    settings = GPU_SETTINGS if on_gpu else SETTINGS
    jobs = [(shape, *setting) for shape in (course.shapes or ("",)) for setting in settings]

    enough = threading.Event()

    def one(number: int) -> Run | None:
        if enough.is_set():
            return None
        shape, wave, order = jobs[number]
        run = run_one(program, course, versions, shape, wave, order, replace, number=number)
        if run.fault == "timeout" or (to_first_failure and not run.ok):
            enough.set()
        return run

    with ThreadPoolExecutor(1 if on_gpu else at_a_time or process.cpu_count()) as pool:
        return [run for run in pool.map(one, range(len(jobs))) if run]


def run_one(program: Path, course: Course, versions: list[str], shape: str, wave: str, order: str,
            replace: dict[str, str], number: int = 0, under: tuple[str, ...] = (),
            environment: dict[str, str] | None = None, seconds: float = TIMEOUT) -> Run:
    """One process of the program, perhaps `under` another one that watches it."""
    written = program.parent / f"{number}.json"
    written.unlink(missing_ok=True)
    command = [*under, str(program), "--quick", "--no-limits", "--repeat", "1", "--json", str(written),
               *course.arguments]
    for version in versions:
        command += ["--version", version]
    if shape:
        command += ["--size", shape]
    if wave:
        command += ["--wave", wave, "--order", order]
    # One host thread: what a missing barrier reads is then always what the block before left there.
    variables = {**os.environ, "HIP_CPU_TIMEOUT": CPU_TIMEOUT, "HIP_CPU_THREADS": "1",
                 **(environment or {})}
    code, out, complaint = process.limited(command, seconds, variables, program.parent)
    if code is None:
        return Run(shape, wave, order, (), "timeout", f"not at its end after {seconds:.0f} s")
    for made, path in replace.items():
        out, complaint = out.replace(made, path), complaint.replace(made, path)
    outcomes: tuple[Outcome, ...] = ()
    if written.is_file():
        try:
            report = results.load(written)
        except ValueError as error:  # the program was ended as it wrote
            report, code, complaint = {"tables": []}, code or FAILED, f"{complaint}\n{error}"
        outcomes = tuple(
            _outcome(table["problem"], row)
            for table in report["tables"] for row in table["rows"]
            if not row["peer"] and row["status"] != "skipped")
    message = "\n".join(line for line in complaint.splitlines() if line.strip())
    fault = ""
    if code < 0:
        fault = "crash"
        message = message or f"ended by signal {-code}"
    elif code not in (0, 1) or (code == 1 and all(o.status == "ok" for o in outcomes)):
        fault = "error"
    if message and fault:
        fault = next((name for name, words in FAULTS if re.search(words, message)), fault)
    elif message:
        named = next((name for name, words in FAULTS if re.search(words, message)), "")
        fault = named if code != 0 else ""
    return Run(shape, wave, order, outcomes, fault, message, out)


def _outcome(problem: str, row: dict) -> Outcome:
    status = "ok"
    if row["status"] != "ok":
        status = "wrong"
        if row.get("unwritten"):
            status = "unwritten"
        elif row["max_error"] is None and row["compared"]:
            status = "nan"
    return Outcome(row["name"], problem, status, row.get("failed", 0), row["compared"],
                   row.get("first", row["index"]), row["max_error"], row["bound"], row["note"])


# ---- What the failures share -------------------------------------------------------------------


def common_property(failing: list[str], passing: list[str], names: list[str]) -> str:
    """What all failing shapes have and no passing one: "n % 256 != 0", "K > 32", or "".

    A shape is "17x33x65"; `names` are the dimensions' names.
    """
    if not passing or not failing:
        return "every shape fails" if failing else ""
    fails = [[int(part) for part in shape.split("x")] for shape in failing]
    passes = [[int(part) for part in shape.split("x")] for shape in passing]

    def holds(test) -> bool:
        return all(map(test, fails)) and not any(map(test, passes))

    for divisor in (4, 16, 32, 64, 128, 256, 1024):
        for d, name in enumerate(names):
            if holds(lambda shape: shape[d] % divisor != 0):
                return f"{name} is no multiple of {divisor}"
        if len(names) > 1 and holds(lambda shape: any(size % divisor != 0 for size in shape)):
            return f"{' or '.join(names)} is no multiple of {divisor}"
    for d, name in enumerate(names):
        largest, smallest = max(s[d] for s in passes), min(s[d] for s in passes)
        if all(s[d] > largest for s in fails):
            return f"{name} is more than {largest}"
        if all(s[d] < smallest for s in fails):
            return f"{name} is less than {smallest}"
    return ""


def order_dependent(runs: list[Run]) -> list[str]:
    """Versions whose results are right in one order of threads and wrong in another, at the same
    shape and size of a wave: they race, or a barrier is missing."""
    verdicts: dict[tuple[str, str, str, str], set[bool]] = {}
    for run in runs:
        if run.fault:
            continue
        for outcome in run.outcomes:
            key = (outcome.version, outcome.problem, run.shape, run.wave)
            verdicts.setdefault(key, set()).add(outcome.status == "ok")
    return list(dict.fromkeys(key[0] for key, seen in verdicts.items() if len(seen) == 2))
