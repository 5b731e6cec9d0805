"""Runs the step's program with what a learner wrote over the step's shapes, and finds what the failing
runs share. compiling.py makes that program, verdict.py judges by its runs.

Every run is one process of the program with --quick, one shape and one setting: the size of a wave, the
order in which threads and blocks run, and where the guard pages lie. On the CPU backend a run ends with a
line that names the thread where a kernel reads outside a buffer, where threads wait at different barriers,
or where nothing moves any more.
"""

from __future__ import annotations

import math
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Sequence

from . import process, results
from .errors import FAILED
from .exercises import Course

# Seconds of one run, which rarely has the machine for itself. A kernel is stopped by HIP_CPU_TIMEOUT,
# which counts the processor's time: a loaded machine is no endless loop.
TIMEOUT = 40.0
CPU_TIMEOUT = "2"


@dataclass(frozen=True)
class Setting:
    """How one run is done on the CPU backend; nothing of it can be chosen on a GPU."""

    wave: str = ""  # threads in a wave
    order: str = ""  # in which threads and blocks run
    guard: str = ""  # where guard pages lie: `end` and `exact` behind each buffer, `begin` before it
    blocks: str = ""  # the most blocks of a grid that goes round; not for the program's command line

    def words(self) -> str:
        """As the program's command line takes it."""
        return f"--wave {self.wave} --order {self.order} --guard {self.guard}" if self.wave else ""

    def described(self) -> str:
        few = f", and grids of at most {self.blocks} blocks" if self.blocks else ""
        return f"waves of {self.wave}, the order {self.order}, guard pages at the {self.guard}{few}"


# What is tried on the CPU backend: a shape's rows must be right in all of them. The first is the one that
# the others are compared with, to find what alone makes a run fail.
PLAIN = Setting("32", "forward", "end")
SETTINGS = (PLAIN, Setting("32", "reverse", "begin"), Setting("64", "random:7", "exact"),
            Setting("64", "waves", "begin"))
# Of exercises in plain C++, which launches kernels and has none.
HOST_SETTINGS = (PLAIN, SETTINGS[-1])
GPU_SETTINGS = (Setting(),)


def settings_of(course: Course, versions: Sequence[str] = ()) -> tuple[Setting, ...]:
    """Of the runs of these versions (none: all). Where kernels rely on the alignment of whole buffers, which
    HIP promises, `exact` would break them."""
    return tuple(replace(setting, guard="end") if course.aligned and setting.guard == "exact" else setting
                 for setting in (SETTINGS if course.has_kernels(versions) else HOST_SETTINGS))


# One host thread: what a missing barrier reads is then always the same. Shared memory begins as NaN. The
# data sets are those that the programs make up: a verdict and its words depend on no file that may be here.
ENVIRONMENT = {"HIP_CPU_TIMEOUT": CPU_TIMEOUT, "HIP_CPU_THREADS": "1", "HIP_CPU_POISON": "1",
               "COURSE_DATA": "no-such-folder"}

# How the CPU backend words what a kernel did, and what it is called here.
FAULTS = (
    ("outside", r"just past the end|past the end of|before the .*buffer|where no buffer is|"
                r"memory just .* was written|outside the launch's|freed buffer|"
                r"illegal memory access|Memory access fault"),
    ("null", r"through a null pointer"),
    ("array", r"runtime error: index .* out of bounds|Assertion '__n < this->size\(\)' failed"),
    ("loop", r"endless loop"),
    ("alignment", r"not aligned as its type asks|runtime error: .* misaligned address"),
    ("early", r"has not arrived yet|is on its way|has not read yet|before its store had read|"
              r"stores have not read|a product reads|products were added|products are under way"),
    ("fence", r"fence_for_tma\(\)"),
    ("deadlock", r"no other thread can go on"),
    ("barrier", r"barrier|returned while|different"),
    ("deadlock", r"wait"),
    ("stack", r"needs more stack"),
    ("division", r"division by zero"),
)
FAULT_WORDS = {
    "outside": "a thread leaves its buffer",
    "null": "a thread follows a null pointer",
    "barrier": "the threads of a block don't meet at the same barrier",
    "loop": "a thread runs on and on: an endless loop",
    "alignment": "a pointer is not aligned as its type asks, or was never set",
    "deadlock": "threads wait for each other for ever",
    "early": "shared memory is used while a copy or a product is under way",
    "fence": "a copy or a product meets what threads have stored, and no fence lies between",
    "array": "a thread leaves an array",
    "stack": "a thread needs too much stack",
    "division": "an integer is divided by zero",
    "timeout": "the program does not end: an endless loop, or a barrier that is never reached",
    "crash": "the program crashes",
    "error": "the program stops",
}
LEAST_PASSING = 2  # shapes that must be right before the failing ones are said to share something
ENDLESS = ("timeout", "loop", "deadlock")  # faults after which no other run is begun


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


def elements_of(shape: str) -> int:
    """The product of a shape's numbers: "17x33" is 561."""
    return math.prod(int(size) for size in shape.split("x") if size.isdigit())


@dataclass(frozen=True)
class Run:
    """One process of the program."""

    shape: str
    setting: Setting
    outcomes: tuple[Outcome, ...]
    fault: str = ""  # a key of FAULT_WORDS; empty: the program came to its end
    message: str = ""  # the program's own words on it
    output: str = field(default="", compare=False, repr=False)  # all that it printed
    dimensions: tuple[str, ...] = field(default=(), compare=False)  # the names of the shape's numbers

    @property
    def elements(self) -> int:
        return elements_of(self.shape)

    @property
    def ok(self) -> bool:
        return not self.fault and all(outcome.status == "ok" for outcome in self.outcomes)

    def words(self) -> str:
        """What is wrong with it, in a line."""
        if self.fault:
            return f"{FAULT_WORDS[self.fault]}: {self.message.partition(chr(10))[0]}"
        return "; ".join(f"{outcome.version} at {outcome.problem}: {words_of(outcome)}"
                         for outcome in self.outcomes if outcome.status != "ok")


def run_all(program: Path, course: Course, versions: list[str], on_gpu: bool,
            places: dict[str, str], at_a_time: int = 0, to_first_failure: bool = False) -> list[Run]:
    """Every shape in every setting, as many `at_a_time` as there are processors unless it says. After
    one that does not end, no other is begun; nor after any that fails, where that is enough."""
    settings = GPU_SETTINGS if on_gpu else settings_of(course, versions)
    jobs = [(shape, setting) for shape in (course.shapes or ("",)) for setting in settings]

    enough = threading.Event()

    def one(number: int) -> Run | None:
        if enough.is_set():
            return None
        shape, setting = jobs[number]
        run = run_one(program, course, versions, shape, setting, places, number=number)
        if run.fault in ENDLESS or (to_first_failure and not run.ok):
            enough.set()
        return run

    with ThreadPoolExecutor(1 if on_gpu else at_a_time or process.cpu_count()) as pool:
        return [run for run in pool.map(one, range(len(jobs))) if run]


def run_one(program: Path, course: Course, versions: list[str], shape: str, setting: Setting,
            places: dict[str, str], number: int = 0, under: tuple[str, ...] = (),
            environment: dict[str, str] | None = None, seconds: float = TIMEOUT) -> Run:
    """One process of the program, perhaps `under` another one that watches it."""
    written = program.parent / f"{number}.json"
    written.unlink(missing_ok=True)
    command = [*under, str(program), "--quick", "--no-limits", "--no-times", "--repeat", "1",
               "--json", str(written), *course.arguments]
    for version in versions:
        command += ["--version", version]
    if shape:
        command += ["--size", shape]
    command += setting.words().split()
    variables = {**os.environ, **ENVIRONMENT, **(environment or {})}
    code, out, complaint = process.limited(command, seconds, variables, program.parent)
    if code is None:
        return Run(shape, setting, (), "timeout", f"not at its end after {seconds:.0f} s")
    for made, path in places.items():
        out, complaint = out.replace(made, path), complaint.replace(made, path)
    report = {"tables": []}
    if written.is_file():
        try:
            report = results.load(written)
        except ValueError as error:  # the program was ended as it wrote
            code, complaint = code or FAILED, f"{complaint}\n{error}"
    outcomes = tuple(
        _outcome(table["problem"], row)
        for table in report["tables"] for row in table["rows"]
        if not row["peer"] and row["status"] != "skipped")
    all_ok = all(outcome.status == "ok" for outcome in outcomes)
    fault, message = fault_of(code, complaint, all_ok)
    return Run(shape, setting, outcomes, fault, message, out, tuple(report.get("dimensions", ())))


def last_words(complaint: str) -> tuple[str, str]:
    """The fault that a program's last words speak of ("": none), and these words."""
    message = "\n".join(line for line in complaint.splitlines() if line.strip())
    return next((name for name, words in FAULTS if re.search(words, message)), ""), message


def fault_of(code: int, complaint: str, all_ok: bool) -> tuple[str, str]:
    """How a program ended by its exit code and its last words: a key of FAULT_WORDS ("" where it came to
    its end), and the words."""
    named, message = last_words(complaint)
    if code < 0:
        return named or "crash", message or f"ended by signal {-code}"
    if code == 0:
        return "", message
    return named or ("error" if code != FAILED or all_ok else ""), message


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


def words_of(outcome: Outcome) -> str:
    """What is wrong with a row."""
    if outcome.status == "unwritten":
        return "elements were never written"
    if outcome.status == "nan":
        return "the result is NaN"
    if outcome.max_error is None:
        return "the result is infinite or NaN"
    return f"off by {outcome.max_error:.2g}, allowed are {outcome.bound or 0:.2g}"


# ---- What the failures share -------------------------------------------------------------------


def common_property(failing: list[str], passing: list[str], names: Sequence[str]) -> str:
    """What all failing shapes have and no passing one: "n is no multiple of 256", "K is more than 32", or "".

    A shape is "17x33x65"; `names` are the dimensions' names. Where all but one fail, they share much by
    chance: then nothing is said.
    """
    if not passing or not failing:
        return "every shape fails" if failing else ""
    if len(passing) < LEAST_PASSING:
        return ""
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


def what_alone_fails(runs: list[Run], again: Callable[[str, Setting], Run]) -> str:
    """The one thing about a setting that makes a version fail where the plain setting is right: "waves of
    64", an order, a place of the guard pages; "" where there is no such thing. again(shape, setting) does a
    run once more."""
    by_shape: dict[str, dict[Setting, Run]] = {}
    for run in runs:
        by_shape.setdefault(run.shape, {})[run.setting] = run
    mixed = {shape: some for shape, some in by_shape.items()
             if PLAIN in some and some[PLAIN].ok and not all(run.ok for run in some.values())}
    if not mixed or any(not some[PLAIN].ok for some in by_shape.values() if PLAIN in some):
        return ""
    shape, some = min(mixed.items(), key=lambda item: next(iter(item[1].values())).elements)
    failing = [setting for setting, run in some.items() if not run.ok]
    passing = [setting for setting, run in some.items() if run.ok]
    found = []
    for what in ("wave", "order", "guard"):
        bad = {getattr(setting, what) for setting in failing}
        suspects = [value for value in bad if value not in {getattr(s, what) for s in passing}]
        if suspects and not again(shape, replace(PLAIN, **{what: suspects[0]})).ok:
            found.append((what, suspects))
    if len(found) != 1:
        return ""
    what, values = found[0]
    return {"wave": f"only with waves of {' or '.join(values)}",
            "order": "only where threads or blocks run in another order than the usual one: "
                     f"{' or '.join(values)}",
            "guard": "only where the first byte before or behind a buffer can be seen, or a buffer does not "
                     "begin at a multiple of 16 bytes",
            }[what]
