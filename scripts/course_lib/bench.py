"""`scripts/course bench`: every step's versions and the same work in other libraries, side by side.

The programs and their peers take turns on the same device, in rounds. What comes out is one file
(schema 1):

    {"schema": 1, "kind": "bench", "date": "...", "quick": false, "rounds": 3,
     "environment": {...}, "reports": [...], "failures": [...]}

A report is a program's own (results.py) with the rows of its peers in each table, above the versions.
A row's time is the median of the rounds' medians; its spread reaches from the smallest 10th to the
largest 90th percentile. Every version is held against each peer of its table ("of_peer"), and every row
against the limit that was measured, the median of the rounds'. A peer's losses while it trained, where
it saw the program's own data, are in the report's "peer_series" (peer -> the program's series). Work that a peer cannot do is a row
without a time that says why; a program that failed is in "failures".

The runs of several devices may stand in one file: {"schema": 1, "kind": "bench_set", "runs": [...]}.
"""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from . import peers, process, results, terminal
from .errors import FAILED, INTERRUPTED, MISSING, OK, USAGE, CourseError
from .steps import Step
from .terminal import Column, format_table, say

RUN = {"schema": int, "kind": str, "date": str, "quick": bool, "rounds": int, "environment": dict,
       "reports": list, "failures": list}
TEXT_OR_NONE = (str, type(None))
ENVIRONMENT = {"system": str, "processor": str, "processors": int, "python": str, "device": str,
               "backend": str, "toolkit": str, "torch": TEXT_OR_NONE, "torch_toolkit": TEXT_OR_NONE,
               "cudnn": TEXT_OR_NONE, "numpy": TEXT_OR_NONE}
FAILURE = {"step": str, "program": str, "side": str, "round": int, "code": int, "line": str}

# The peers by their names on the command line. Those of the programs are rows that they write.
OF_PROGRAMS = {"cublas": "cuBLAS", "cudnn": "cuDNN", "rocblas": "rocBLAS"}
SCRIPTS = {"torch": ("PyTorch", "bench_torch.py"), "numpy": ("NumPy", "bench_numpy.py")}
LOOP = "C++ loop"
PEERS = ("torch", *OF_PROGRAMS, "numpy", "loop")

LIMIT_KEYS = {"copy": "copy_bytes_per_s", "read": "read_bytes_per_s", "fma": "fma_operations_per_s"}
# What a program is run with a second time, in the first round on a GPU: its tables join the others.
FURTHER = {"train_shakespeare": ["--config", "medium"]}
LEAST_CHANGE = 0.02  # of a time: less is not worth a line, however narrow the spreads
SAVE_SECONDS = 15


# ---- The file ----------------------------------------------------------------------------------


def validate(run: object) -> None:
    """Raises ValueError naming what is wrong in the run of one device."""
    results.require(run, RUN, "the run")
    if run["schema"] != 1 or run["kind"] != "bench":
        raise ValueError(f"this is no bench of schema 1 but {run['kind']} of schema {run['schema']}")
    results.require(run["environment"], ENVIRONMENT, "environment")
    for r, report in enumerate(run["reports"]):
        try:
            results.validate(report)
        except ValueError as error:
            raise ValueError(f"reports[{r}]: {error}") from None
    for f, failure in enumerate(run["failures"]):
        results.require(failure, FAILURE, f"failures[{f}]")


def load_runs(path: Path) -> list[dict]:
    """The runs in a file, a run per device. The file may also be a single program's report, and `path` a
    folder of those, such as results/h200. Raises ValueError naming the file and what is wrong in it."""
    if path.is_dir():
        reports = [results.load(file) for file in sorted(path.glob("*.json"))]
        if not reports:
            raise ValueError(f"{path}: no results are in this folder")
        return [run_of_reports(reports)]
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(contents, dict):
            raise ValueError("this is no object")
        if "program" in contents:
            results.validate(contents)
            return [run_of_reports([contents])]
        if contents.get("kind") == "bench_set":
            results.require(contents, {"schema": int, "runs": list}, "the set")
            runs = contents["runs"]
        else:
            runs = [contents]
        for run in runs:
            validate(run)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return runs


def run_of_reports(reports: list[dict]) -> dict:
    """A run made of programs' reports that were written one by one."""
    newest = max(reports, key=lambda report: report["date"])
    device = newest["device"]
    environment = {"system": "", "processor": "", "processors": 0, "python": "",
                   "device": device["name"], "backend": device["backend"],
                   "toolkit": device["toolkit"], "torch": None, "torch_toolkit": None, "cudnn": None,
                   "numpy": None, **newest.get("environment", {})}
    return {"schema": 1, "kind": "bench", "date": newest["date"],
            "quick": any(report["quick"] for report in reports),
            "rounds": max(report.get("rounds", 1) for report in reports),
            "environment": environment, "reports": results.in_order(reports), "failures": []}


# ---- Merging rounds ----------------------------------------------------------------------------


def median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def merge_rows(rows: list[dict]) -> dict:
    """One row of several rounds'. It failed if it failed in any; else its error is the worst."""
    def badness(row: dict) -> tuple:
        error = (row["max_error"] or 0) / (row["bound"] or 1)
        return row["status"] == "FAIL", row["status"] == "ok", error
    merged = copy.deepcopy(max(rows, key=badness))
    timed = [row for row in rows if row["ms"] and row["status"] == "ok"]
    merged["rounds"] = len(timed)
    if merged["status"] == "ok" and timed:
        work = next((row["rate"] * row["ms"] for row in timed if row["rate"]), None)
        merged["ms"] = statistics.median(row["ms"] for row in timed)
        merged["ms_p10"] = min(row["ms_p10"] or row["ms"] for row in timed)
        merged["ms_p90"] = max(row["ms_p90"] or row["ms"] for row in timed)
        merged["rate"] = work / merged["ms"] if work else None
    else:
        merged.update(ms=None, ms_p10=None, ms_p90=None, rate=None, of_limit=None)
    return merged


def by_name(rounds: list[list[dict]]) -> list[list[dict]]:
    """The rows of the same name, from all rounds, in the order in which they first appear."""
    groups: dict[str, list[dict]] = {}
    for rows in rounds:
        for row in rows:
            groups.setdefault(row["name"], []).append(row)
    return list(groups.values())


def loop_row(table: dict, reference_ms: float | None) -> dict:
    """The plain C++ loop that the program checks itself with, where it did the whole work."""
    if table["sampled"]:
        return peers.blank_row(LOOP, "only a part was checked")
    if not reference_ms:
        return peers.blank_row(LOOP, "the check was not timed on its own")
    return peers.make_row(LOOP, [reference_ms], "one thread, double precision")


def finish_table(table: dict, limits: dict) -> None:
    """Rates and shares of all rows. What the work is, the program's own rows say."""
    own = next((row for row in table["rows"] if not row["peer"] and row["rate"]), None)
    timed_peers = [row for row in table["rows"] if row["peer"] and row["ms"]]
    for row in table["rows"]:
        if row["peer"] and row["ms"] and not row["rate"] and own:
            row.update(rate=own["rate"] * own["ms"] / row["ms"], rate_unit=own["rate_unit"],
                       limit=own["limit"])
        limit = limits.get(LIMIT_KEYS.get(row["limit"], ""))
        row["of_limit"] = row["rate"] / limit if row["rate"] and limit else None
        row["of_peer"] = ({peer["name"]: peer["ms"] / row["ms"] for peer in timed_peers}
                          if row["ms"] and not row["peer"] else {})


@dataclass
class Measured:
    """What the rounds so far have given of a step."""

    step: Step
    reports: list[dict] = field(default_factory=list)  # the program's, one per round
    # A peer's tables: one list per round, in the order of the report's tables.
    peers: dict[str, list[list[dict]]] = field(default_factory=dict)
    seconds: float = 0  # of its last round
    code: int = OK  # the program's first one that is not 0


def merge_report(measured: Measured, wanted: set[str], environment: dict) -> dict:
    """One report of the rounds, with the wanted peers' rows."""
    rounds = measured.reports
    report = copy.deepcopy(rounds[0])
    report["rounds"] = len(rounds)
    report["environment"] = environment
    report["limits"] = {key: median([r["limits"][key] for r in rounds]) for key in report["limits"]}
    shown = {OF_PROGRAMS[name] for name in wanted & OF_PROGRAMS.keys()}
    for t, table in enumerate(report["tables"]):
        same = [r["tables"][t] for r in rounds
                if len(r["tables"]) > t and r["tables"][t]["problem"] == table["problem"]]
        rows = [merge_rows(group) for group in by_name([one["rows"] for one in same])]
        vendors = [row for row in rows if row["peer"] and row["name"] in shown]
        others = []
        for tables in measured.peers.values():
            for group in by_name([one[t]["rows"] for one in tables if len(one) > t]):
                others.append(merge_rows(group))
                others[-1].pop("series", None)
                for row in group:  # of the problem that the program's own curves are of: the first
                    for name, series in row.get("series", {}).items():
                        report.setdefault("peer_series", {}).setdefault(row["name"], {}).setdefault(
                            name, series)
        table["reference_ms"] = median([one["reference_ms"] for one in same])
        if "loop" in wanted:
            others.append(merge_rows([loop_row(table, table["reference_ms"])]))
        table["rows"] = [*vendors, *others, *(row for row in rows if not row["peer"])]
        finish_table(table, report["limits"])
    for fact in report["facts"]:
        fact["value"] = median([other["value"] for r in rounds for other in r["facts"]
                                if other["name"] == fact["name"]])
    return report


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


class Session:
    """Runs the plan round by round, the program and its peers by turns, and keeps what comes out."""

    def __init__(self, plan: Plan, env: process.Environment):
        self.plan, self.env = plan, env
        self.measured = [Measured(step) for step in plan.steps]
        self.failures: list[dict] = []
        self.libraries: dict[str, str | None] = {}  # what the peers say of themselves
        self.skipped = 0  # rounds of steps that there was no time for
        self.start = self.saved = time.monotonic()
        self.interrupted = False
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
        report = self._program(measured, number, update)
        if report is not None:
            measured.reports.append(report)
            for name in self.servers:
                update(SCRIPTS[name][0])
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
        command += ["--quick"] if self.plan.quick else []
        try:
            code, text = process.logged(command, self.plan.folder / f"{step.name}.log", update, self.env)
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
            answer = json.loads(self.servers[name].ask(json.dumps(request)))
            if "error" in answer:
                raise ValueError(answer["error"])
            contents = json.loads(written.read_text(encoding="utf-8"))
            peers.validate(contents)
            self.libraries |= contents["environment"]
            return contents["tables"]
        except process.Ended as ended:
            code, line = ended.code, ended.line
            if code < 0:
                line = f"killed by signal {-code}"
        except (OSError, ValueError) as error:
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
        known = {key: self.libraries.get(key) for key in ("torch", "torch_toolkit", "cudnn", "numpy")}
        return {"system": platform.system(), "processor": processor_name(),
                "processors": process.cpu_count(), "python": platform.python_version(),
                "device": device.get("name", ""), "backend": device.get("backend", ""),
                "toolkit": device.get("toolkit", ""), **known}

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


def processor_name() -> str:
    """As Linux calls it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def save_reports(run: dict, folder: Path) -> list[str]:
    """Writes FOLDER/<program>.json for each program whose rows are all right: what `results/` keeps.
    Returns the programs that were left out."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = {failure["program"] for failure in run["failures"] if failure["side"] == "course"}
    failed |= {report["program"] for report in run["reports"] if results.has_failed(report)}
    for report in run["reports"]:
        if report["program"] not in failed:
            peers.write_json(folder / f"{report['program']}.json", report)
    return sorted(failed)


# ---- Comparing and merging runs ----------------------------------------------------------------

Key = tuple[str, str, str, str]  # step, program, problem, row


def rows_of(run: dict) -> dict[Key, dict]:
    return {(report["step"], report["program"], table["problem"], row["name"]): row
            for report in run["reports"] for table in report["tables"] for row in table["rows"]}


def change_of(before: dict, after: dict) -> str:
    """How a row has changed: "faster" and "slower" where the spreads do not touch and the medians are
    apart by LEAST_CHANGE; empty where nothing is to be said."""
    if (before["status"] == "FAIL") != (after["status"] == "FAIL"):
        return "fails now" if after["status"] == "FAIL" else "right now"
    if not before["ms"] or not after["ms"]:
        return "" if before["ms"] == after["ms"] else "timed now" if after["ms"] else "not timed now"
    if abs(after["ms"] / before["ms"] - 1) < LEAST_CHANGE:
        return ""
    if after["ms_p90"] < before["ms_p10"]:
        return "faster"
    return "slower" if after["ms_p10"] > before["ms_p90"] else ""


def compare(before: dict, after: dict) -> list[tuple[Key, str, dict | None, dict | None]]:
    """What differs between two runs, beyond their spread. Programs that only one of them ran are left
    out but for a line each."""
    old, new = rows_of(before), rows_of(after)
    both = {r["program"] for r in before["reports"]} & {r["program"] for r in after["reports"]}
    changes = []
    for key in [*new, *(key for key in old if key not in new)]:
        if key[1] not in both:
            continue
        if key not in new:
            changes.append((key, "gone", old[key], None))
        elif key not in old:
            changes.append((key, "new", None, new[key]))
        elif change := change_of(old[key], new[key]):
            changes.append((key, change, old[key], new[key]))
    order = {"fails now": 0, "slower": 1, "not timed now": 2, "gone": 3, "new": 4, "timed now": 5,
             "right now": 6, "faster": 7}
    return sorted(changes, key=lambda change: order[change[1]])


def comparison_lines(before: dict, after: dict) -> Iterator[str]:
    a, b = before["environment"], after["environment"]
    for key, word in (("device", "devices"), ("backend", "backends"), ("toolkit", "toolkits"),
                      ("torch", "versions of PyTorch"), ("numpy", "versions of NumPy")):
        if a[key] != b[key]:
            yield f"different {word}: {a[key] or 'none'} and {b[key] or 'none'}"
    programs = [{report["program"] for report in run["reports"]} for run in (before, after)]
    for name, only in (("first", programs[0] - programs[1]), ("second", programs[1] - programs[0])):
        if only:
            yield f"only in the {name}: {', '.join(sorted(only))}"
    changes = compare(before, after)
    columns = [Column("step"), Column("problem", flexible=True), Column("version"), Column("change"),
               Column("first", right=True), Column("second", right=True), Column("ratio", right=True)]
    rows = []
    for (step, program, problem, name), change, old, new in changes:
        times = [row["ms"] if row else None for row in (old, new)]
        ratio = f"{times[1] / times[0]:.2f}" if all(times) else "-"
        rows.append([step, f"{program}: {problem}", name, change, *map(results.format_ms, times), ratio])
    if rows:
        yield from format_table(columns, rows, terminal.width())
    common = len(rows_of(before).keys() & rows_of(after).keys())
    changed = sum(old is not None and new is not None for _, _, old, new in changes)
    yield (f"{common - changed} of {common} rows are the same within their spread and "
           f"{100 * LEAST_CHANGE:.0f}%")


def merge_runs(runs: list[dict]) -> list[dict]:
    """A run per device, in the order in which the devices appear: of a program that several files hold,
    the latest."""
    def device(run: dict) -> tuple[str, str]:
        return run["environment"]["device"], run["environment"]["backend"]
    merged: dict[tuple[str, str], dict | None] = {device(run): None for run in runs}
    for run in sorted(runs, key=lambda run: run["date"]):
        key = device(run)
        earlier = merged[key]
        if earlier is None:
            merged[key] = copy.deepcopy(run)
            continue
        reports = {report["program"]: report for report in [*earlier["reports"], *run["reports"]]}
        known = {name: value for name, value in run["environment"].items() if value}
        failures = {json.dumps(failure): failure for failure in [*earlier["failures"], *run["failures"]]
                    if failure["program"] not in reports}
        merged[key] = {**run, "rounds": max(run["rounds"], earlier["rounds"]),
                       "quick": run["quick"] or earlier["quick"],
                       "environment": {**earlier["environment"], **known},
                       "reports": results.in_order(list(reports.values())), "failures": list(failures.values())}
    return [run for run in merged.values() if run]


def merged_lines(runs: list[dict]) -> Iterator[str]:
    """The best version of each problem, a pair of columns per device."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for r, run in enumerate(runs):
        for report in run["reports"]:
            for table in report["tables"]:
                best = results.best_row({"tables": [table]})
                if best is None:
                    continue
                cells = problems.setdefault((report["step"], report["program"], table["problem"]),
                                            ["-"] * 2 * len(runs))
                cells[2 * r: 2 * r + 2] = [f"{best['name']} {results.format_ms(best['ms'])}",
                                           results.format_share(best["of_limit"])]
    columns = [Column("step"), Column("program"), Column("problem", flexible=True)]
    for run in runs:
        columns += [Column(run["environment"]["device"] or "unknown", right=True),
                    Column("of limit", right=True)]
    rows = [[*key, *cells] for key, cells in
            sorted(problems.items(), key=lambda item: results.place_of(item[0][0]))]
    yield from format_table(columns, rows, terminal.width())


# ---- What is shown -----------------------------------------------------------------------------


def spread_text(row: dict) -> str:
    """From the 10th to the 90th percentile, as a share of the median."""
    if not row["ms"] or row["ms_p10"] is None or row["ms_p90"] is None:
        return "-"
    spread = (row["ms_p90"] - row["ms_p10"]) / row["ms"]
    return results.format_share(spread) if spread > 0 else "0%"


def table_lines(table: dict, available: int) -> list[str]:
    """A problem's rows; the first line is the header."""
    names = [row["name"] for row in table["rows"] if row["peer"] and row["ms"]]
    columns = [Column("version", flexible=True), Column("time", right=True),
               Column("spread", right=True, optional=True), Column("rate", right=True),
               Column("of limit", right=True), *(Column(f"of {name}", right=True) for name in names),
               Column("max error", right=True, optional=True), Column("verdict")]
    rows = []
    for row in table["rows"]:
        verdict = row["skipped"] if row["status"] == "skipped" else row["status"]
        rows.append([
            row["name"], results.format_ms(row["ms"]), spread_text(row),
            results.format_rate(row["rate"], row["rate_unit"]), results.format_share(row["of_limit"]),
            *(results.format_share(row["of_peer"].get(name)) for name in names),
            results.format_error(row), verdict + (f", {row['note']}" if row["note"] else "")])
    return format_table(columns, rows, available)


def show(run: dict) -> None:
    """One table per problem, then the summary."""
    for report in run["reports"]:
        for table in report["tables"]:
            say()
            say(f"{report['step']} {report['program']}   {table['problem']}", "cyan")
            header, *lines = table_lines(table, terminal.width())
            say(header, "bold")
            for row, line in zip(table["rows"], lines):
                say(line, "red" if row["status"] == "FAIL" else "dim" if row["peer"] else "")
    say()
    reports = {report["program"]: report for report in run["reports"]}
    codes = {failure["program"]: failure["code"] for failure in run["failures"]
             if failure["side"] == "course"}
    steps = {(report["step"], report["program"]) for report in run["reports"]}
    steps |= {(failure["step"], failure["program"]) for failure in run["failures"]}
    outcomes = [results.Outcome(step, program, codes.get(program, 0), reports.get(program))
                for step, program in sorted(steps, key=lambda s: results.place_of(s[0]))]
    header, *lines = results.summary_table(outcomes, terminal.width())
    say(header, "bold")
    for outcome, line in zip(outcomes, lines):
        say(line, "" if outcome.code == OK else "red")
    say(origin(run))
    for failure in run["failures"]:
        say(f"{failure['side']}, {failure['step']} {failure['program']}, round {failure['round']}: "
            f"{failure['line']} (exit code {failure['code']})", "red")


def origin(run: dict) -> str:
    """Where it was measured, and beside what."""
    environment = run["environment"]
    beside = [f"{name} {environment[key]}" for name, key in (("PyTorch", "torch"), ("NumPy", "numpy"))
              if environment[key]]
    backend = ("CPU backend: its times rank versions and foretell no GPU"
               if environment["backend"] == "cpu" else
               f"{environment['backend']} {environment['toolkit']}")
    return (f"{environment['device'] or 'no device'}, {backend}; {run['rounds']} round"
            f"{'s' if run['rounds'] > 1 else ''}" + (f"; beside {', '.join(beside)}" if beside else "")
            + ("; quick: these times mean nothing" if run["quick"] else ""))


# ---- The command line --------------------------------------------------------------------------


def parse_peers(text: str | None, backend: str) -> set[str]:
    """The peers that are wanted: by default those that use what the backend uses."""
    if text is None:
        return {"numpy", "loop"} if backend == "cpu" else {"torch", *OF_PROGRAMS}
    names = {name.strip().lower() for name in text.split(",") if name.strip()}
    if names == {"none"}:
        return set()
    unknown = sorted(names - set(PEERS))
    if unknown or not names:
        raise CourseError(f"--peers: '{', '.join(unknown)}' is unknown; there are {', '.join(PEERS)}, "
                          "and none", USAGE)
    return names


def find_library(module: str, candidates: list[str]) -> str | None:
    """The first interpreter that has the module, without loading it."""
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    for python in candidates:
        if process.output([python, "-c", question]) is not None:
            return python
    return None


def find_interpreters(wanted: set[str], candidates: list[str]) -> dict[str, str]:
    """Who runs each peer's script. Says which library is missing, and goes on without."""
    found = {}
    for name, (peer, _) in SCRIPTS.items():
        if name not in wanted:
            continue
        python = find_library(name, candidates)
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


def load_for_user(path: Path) -> list[dict]:
    try:
        return load_runs(path)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None


def compare_command(first: Path, second: Path) -> int:
    runs = [load_for_user(path) for path in (first, second)]
    pairs = [(a, b) for a in runs[0] for b in runs[1]
             if a["environment"]["device"] == b["environment"]["device"]]
    for before, after in pairs or [(runs[0][0], runs[1][0])]:
        for line in comparison_lines(before, after):
            say(line)
    return OK


def merge_command(files: list[Path], target: Path | None, folder: Path | None) -> int:
    runs = merge_runs([run for path in files for run in load_for_user(path)])
    for line in merged_lines(runs):
        say(line)
    for run in runs:
        say(origin(run))
    if target:
        contents = runs[0] if len(runs) == 1 else {"schema": 1, "kind": "bench_set", "runs": runs}
        peers.write_json(target, contents)
    if folder:
        if len(runs) > 1:
            raise CourseError("--save keeps the results of one device, these are of "
                              f"{len(runs)}: {', '.join(r['environment']['device'] for r in runs)}", USAGE)
        keep(runs[0], folder)
    return OK


def keep(run: dict, folder: Path) -> None:
    if run["quick"]:
        raise CourseError("--save keeps results, --quick makes none worth keeping", USAGE)
    left_out = save_reports(run, folder)
    say(f"results of {len(run['reports']) - len(left_out)} programs are in {folder}"
        + (f"; not of {', '.join(left_out)}, which failed" if left_out else ""))


def shown_path(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def run_command(plan: Plan, env: process.Environment, folder: Path | None) -> int:
    plan.folder.mkdir(parents=True, exist_ok=True)
    session = Session(plan, env)
    run = session.run()
    show(run)
    if session.skipped:
        say(f"{session.skipped} rounds of steps were left out: --minutes {plan.minutes:g}", "yellow")
    if folder:
        keep(run, folder)
    say(f"details: {shown_path(plan.file)}   time: {time.monotonic() - session.start:.0f} s")
    if session.interrupted:
        terminal.warn("interrupted; what was measured until then is in the file")
    return session.code()
