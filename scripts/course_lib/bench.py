"""`scripts/course bench`: every step's versions and the same work in other libraries, side by side.

The programs and their peers take turns on the same device, in rounds; bench_file.py says what comes out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from . import bench_file, documents, peers, process, python_env, results, slower, terminal
from .bench_rounds import OF_PROGRAMS, Measured, merge_report
from .documents import require
from .errors import FAILED, INTERRUPTED, MISSING, OK, USAGE, CourseError
from .steps import Step
from .terminal import say

# The peers by their names on the command line.
SCRIPTS = {key: (name, f"bench_{key}.py") for key, name in results.LIBRARIES.items()}
PEERS = ("torch", "jax", *OF_PROGRAMS, "numpy", "loop")

# What a program is run with a second time, in the first round on a GPU: its tables join the others.
FURTHER = {"train_shakespeare": ["--config", "medium"]}
SAVE_SECONDS = 15


# ---- A run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is run. `folder` takes the results and logs of single programs."""

    steps: list[Step]
    programs: dict[str, Path]  # of a step's number
    peers: set[str]
    python: dict[str, str]  # the interpreter that has a peer's library, by the peer's name
    scripts: Path
    folder: Path
    file: Path
    rounds: int
    quick: bool
    minutes: float  # no round is begun that will hardly end in this time; 0: no limit
    peer_minutes: float  # a peer that works on one step for longer is ended


class Session:
    """Runs the plan round by round, the program and its peers by turns, and keeps what comes out."""

    def __init__(self, plan: Plan, env: process.Environment):
        self.plan, self.env = plan, env
        self.measured = [Measured(step) for step in plan.steps]
        self.failures: list[dict] = []
        self.libraries: dict[str, str | None] = {}  # what the peers say of themselves
        self.too_long: dict[tuple[str, str], process.TookTooLong] = {}  # by step and peer: not asked again
        self.skipped = 0  # rounds of steps that there was no time for
        self.start = self.saved = time.monotonic()
        self.interrupted = False
        # A program that compiles kernels does so in its first round: none is there from an earlier run.
        kernels = (plan.folder / "kernels").resolve()
        shutil.rmtree(kernels, ignore_errors=True)
        self.env_of_programs = {**env, "COURSE_CACHE_DIR": str(kernels)}
        options = ["--serve", *(["--quick"] if plan.quick else [])]
        self.servers = {
            name: process.Server([plan.python[name], str(plan.scripts / SCRIPTS[name][1]), *options],
                                 plan.folder / f"{name}.log", env)
            for name in SCRIPTS if name in plan.peers and name in plan.python}

    def run(self) -> dict:
        """Whatever ends it, what was measured until then is in the file."""
        progress = terminal.Progress("bench")
        try:
            for number in range(1, self.plan.rounds + 1):
                for measured in self.measured:
                    step = measured.step
                    place = f"round {number} of {self.plan.rounds}, {step.number} {step.name}"
                    if self._has_time(measured):
                        self._round(measured, number, lambda text, place=place:
                                    progress.update(f"{place}  {text}"))
                    if time.monotonic() - self.saved > SAVE_SECONDS:
                        self._save()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            progress.finish()
            self._save()
            for server in self.servers.values():
                server.stop()
        return self.contents()

    def _has_time(self, measured: Measured) -> bool:
        limit = 60 * self.plan.minutes
        if not limit or time.monotonic() - self.start + measured.seconds <= limit:
            return True
        self.skipped += 1
        if not measured.seconds:
            self._fail(measured.step, "course", 1, MISSING, "no time was left for it")
            measured.code = MISSING
        return False

    def _round(self, measured: Measured, number: int, update) -> None:
        start = time.monotonic()
        with measured.clock("program"):
            report = self._program(measured, number, update)
        if report is not None:
            measured.reports.append(report)
            for name in self.servers:
                update(SCRIPTS[name][0])
                with measured.clock(SCRIPTS[name][0]):
                    tables = self._peer(measured.step, name, number, report)
                measured.peers.setdefault(name, []).append(tables)
        measured.seconds = time.monotonic() - start

    def _program(self, measured: Measured, number: int, update) -> dict | None:
        """Runs the program. None where that gives no report."""
        report = self._start(measured, number, update, [])
        further = FURTHER.get(measured.step.name)
        if (report is None or further is None or number > 1 or self.plan.quick
                or report["device"]["backend"] == "cpu"):
            return report
        more = self._start(measured, number, update, further)
        if more is not None:
            report["tables"] += more["tables"]
        peers.write_json(self._result(measured.step), report)
        return report

    def _start(self, measured: Measured, number: int, update, arguments: list[str]) -> dict | None:
        step, written = measured.step, self._result(measured.step)
        written.unlink(missing_ok=True)
        command = [str(self.plan.programs[step.number]), *arguments, "--json", str(written)]
        # The rounds are the program's, too: three in all are enough.
        command += ["--quick"] if self.plan.quick else ["--rounds", str(-(-3 // self.plan.rounds))]
        try:
            code, text = process.logged(command, self.plan.folder / f"{step.name}.log", update,
                                        self.env_of_programs)
        except FileNotFoundError:
            code, text = 127, "the program is not built"
        except PermissionError:
            code, text = 126, "the program may not be run"
        report, line = None, process.last_line(text)
        if code < 0:
            line = f"killed by signal {-code}"
        elif written.is_file():
            try:
                report = results.load(written)
            except ValueError as error:
                code, line = code or FAILED, str(error)
        elif code == 0:
            code, line = FAILED, "the program wrote no results"
        if code != 0:
            self._fail(step, "course", number, code, line)
            measured.code = measured.code or code
        return report

    def _peer(self, step: Step, name: str, number: int, report: dict) -> list[dict]:
        """The peer's tables for a report; where it ended or failed, blank rows that say so."""
        peer = SCRIPTS[name][0]
        written = self.plan.folder / f"{step.name}.{name}.json"
        written.unlink(missing_ok=True)
        request = {"like": str(self._result(step)), "json": str(written)}
        try:
            if (step.name, name) in self.too_long:  # in an earlier round
                raise self.too_long[step.name, name]
            answer = documents.parse_json(self.servers[name].ask(json.dumps(request), 60 * self.plan.peer_minutes))
            require(answer, {}, "the answer", {"error": str})
            if "error" in answer:
                raise ValueError(answer["error"])
            contents = documents.load(written, peers.validate)
            self.libraries |= contents["environment"]
            return contents["tables"]
        except process.TookTooLong as ended:
            self.too_long[step.name, name] = ended
            code, line = ended.code, ended.line
        except process.Ended as ended:
            code, line = ended.code, ended.line
            if code < 0:
                line = f"killed by signal {-code}"
        except ValueError as error:
            code, line = FAILED, peers.first_line(error)
        self._fail(step, peer, number, code, line)
        reason = f"{peer} failed: {line}"
        return [{"problem": table["problem"], "rows": [peers.blank_row(peer, reason)]}
                for table in report["tables"]]

    def _result(self, step: Step) -> Path:
        return self.plan.folder / f"{step.name}.json"

    def _fail(self, step: Step, side: str, number: int, code: int, line: str) -> None:
        self.failures.append({"step": step.number, "program": step.name, "side": side, "round": number,
                              "code": code, "line": line})

    def _save(self) -> None:
        peers.write_json(self.plan.file, self.contents())
        self.saved = time.monotonic()

    def environment(self) -> dict:
        device = next((m.reports[-1]["device"] for m in self.measured if m.reports), {})
        return environment_of(device, self.libraries)

    def contents(self) -> dict:
        environment = self.environment()
        return {"schema": 1, "kind": "bench",
                "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "quick": self.plan.quick, "rounds": self.plan.rounds, "environment": environment,
                "reports": [merge_report(m, self.plan.peers, environment)
                            for m in self.measured if m.reports],
                "failures": self.failures}

    def code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        codes = {measured.code for measured in self.measured} - {OK}
        if any(failure["side"] != "course" for failure in self.failures):
            codes.add(FAILED)
        return OK if not codes else MISSING if codes == {MISSING} else FAILED


def environment_of(device: dict, libraries: dict) -> dict:
    """What a report says of where it was measured. `device` is a report's, {} where there was none; `libraries`
    are what the peers say of themselves."""
    known = {key: libraries.get(key) for key in ("torch", "torch_toolkit", "cudnn", "jax", "numpy")}
    return {"system": platform.system(), "processor": processor_name(),
            "processors": process.cpu_count(), "python": platform.python_version(),
            "device": device.get("name", ""), "backend": device.get("backend", ""),
            "toolkit": device.get("toolkit", ""), **known}


def processor_name() -> str:
    """As Linux calls it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


# ---- The command line --------------------------------------------------------------------------


def parse_peers(text: str | None, backend: str) -> set[str]:
    """The peers that are wanted: by default those that use what the backend uses."""
    if text is None:
        return {"numpy", "loop"} if backend == "cpu" else {"torch", "jax", *OF_PROGRAMS}
    names = {name.strip().lower() for name in text.split(",") if name.strip()}
    if names == {"none"}:
        return set()
    unknown = sorted(names - set(PEERS))
    if unknown or not names:
        raise CourseError(f"--peers: '{', '.join(unknown)}' is unknown; there are {', '.join(PEERS)}, "
                          "and none", USAGE)
    return names


def find_interpreters(wanted: set[str], candidates: list[str]) -> dict[str, str]:
    """Who runs each peer's script. Says which library is missing, and goes on without."""
    found = {}
    for name, (peer, _) in SCRIPTS.items():
        if name not in wanted:
            continue
        python = python_env.find([name], candidates)
        if python:
            found[name] = python
        else:
            terminal.warn(f"{peer} is not here and is left out: name the Python that has it with "
                          "--python or COURSE_PYTHON")
    return found


def backend_of(folder: Path) -> str:
    """What a build folder was configured for."""
    cache = folder / "CMakeCache.txt"
    text = cache.read_text(encoding="utf-8", errors="replace") if cache.is_file() else ""
    found = re.search(r"^GPU_BACKEND:\w+=(cuda|hip|cpu)$", text, re.MULTILINE)
    return found[1] if found else folder.name if folder.name in ("cuda", "hip", "cpu") else "cpu"


def compare_command(files: list[Path], committed: Path) -> int:
    """One file: whether anything is slower than the committed results of its device. Two: everything that has
    changed between them, and the same verdict where they are of one device and not of --quick. FAILED where
    something is worse."""
    runs = [bench_file.load_for_user(path) for path in files]
    if len(runs) == 1:
        before = slower.committed(committed)
        verdicts = [slower.against(before, run) for run in runs[0]]
    else:
        old, new = runs
        pairs = [(a, b) for a in old for b in new if slower.device_of(a) == slower.device_of(b)]
        verdicts = [slower.verdict(a, b, shown_path(files[0])) for a, b in pairs if not (a["quick"] or b["quick"])]
        for before, after in pairs or [(old[0], new[0])]:
            for line in bench_file.comparison_lines(before, after):
                say(line)
    return say_verdicts(verdicts)


def say_verdicts(verdicts: list[slower.Verdict]) -> int:
    for one in verdicts:
        say(one.line, "red" if one.is_worse else "green")
    return FAILED if any(one.is_worse for one in verdicts) else OK


def merge_command(files: list[Path], target: Path | None, folder: Path | None) -> int:
    merged = bench_file.merge([run for path in files for run in bench_file.load_for_user(path)])
    for line in bench_file.merged_lines(merged):
        say(line)
    for run in merged:
        say(bench_file.origin(run))
    if target:
        contents = merged[0] if len(merged) == 1 else {"schema": 1, "kind": "bench_set", "runs": merged}
        peers.write_json(target, contents)
    if folder:
        if len(merged) > 1:
            devices = ", ".join(run["environment"]["device"] for run in merged)
            raise CourseError(f"--save keeps the results of one device, these are of {len(merged)}: "
                              f"{devices}", USAGE)
        keep(merged[0], folder)
    return OK


def keep(run: dict, folder: Path) -> None:
    if run["quick"]:
        raise CourseError("--save keeps results, --quick makes none worth keeping", USAGE)
    left_out = bench_file.save_reports(run, folder)
    say(f"results of {len(run['reports']) - len(left_out)} programs are in {folder}"
        + (f"; not of {', '.join(left_out)}, which failed" if left_out else ""))


def shown_path(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def spent_lines(measured: list[Measured], most: int = 8) -> list[str]:
    """Which steps the time went to, and on which side: a line each for those that took longest."""
    slowest = sorted(measured, key=lambda one: -sum(one.spent.values()))[:most]
    return [f"{one.step.number} {one.step.name}: {sum(one.spent.values()):.0f} s ("
            + ", ".join(f"{who} {seconds:.0f}" for who, seconds in one.spent.items()) + ")"
            for one in slowest if one.spent]


def run_command(plan: Plan, env: process.Environment, folder: Path | None, committed: Path | None) -> int:
    """Measures. `folder` keeps the results; with `committed` they are held against the device's there."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    before = slower.committed(committed) if committed else []  # as it is before `folder` is written
    session = Session(plan, env)
    run = session.run()
    bench_file.show(run)
    if session.skipped:
        say(f"{session.skipped} rounds of steps were left out: --minutes {plan.minutes:g}", "yellow")
    if folder:
        keep(run, folder)
    for line in spent_lines(session.measured):
        say(line, "dim")
    say(f"details: {shown_path(plan.file)}   time: {time.monotonic() - session.start:.0f} s")
    if session.interrupted:
        terminal.warn("interrupted; what was measured until then is in the file")
    code = session.code()
    if committed and run["reports"]:
        try:
            worse = say_verdicts([slower.against(before, run)])
        except CourseError as error:
            terminal.warn(str(error))
            worse = error.code
        code = code or worse
    return code
