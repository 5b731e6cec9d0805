"""Checks what a learner wrote: runs the step's program with it over the step's shapes, and puts what
went wrong into words. compiling.py makes that program.

Every run is one process of the program with --quick, one shape, one size of a wave and one order of
threads. On the CPU backend a run ends with a line that names the thread where a kernel reads outside
a buffer, where threads wait at different barriers, or where nothing moves any more; what depends on
the order of threads shows as rows that are right in one order and wrong in another.
"""

from __future__ import annotations

import math
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import process, results
from .errors import FAILED
from .exercises import Course

# Seconds of one run, which rarely has the machine for itself; kernels are stopped by HIP_CPU_TIMEOUT.
TIMEOUT = 40.0
CPU_TIMEOUT = "5"

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
