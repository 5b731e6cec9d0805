"""What `scripts/course bench` has measured: one file per run (schema 1).

    {"schema": 1, "kind": "bench", "date": "...", "quick": false, "rounds": 3,
     "environment": {...}, "reports": [...], "failures": [...]}

A report is a program's own (results.py) with the rows of its peers in each table, above the versions.
A row's time is the median of the rounds' medians; its spread reaches from the smallest 10th to the
largest 90th percentile. Every version is held against each peer of its table ("of_peer"), and every row
against the limit that was measured, the median of the rounds'. A peer's losses while it trained, where
it saw the program's own data, are in the report's "peer_series" (peer -> the program's series). Work
that a peer cannot do is a row without a time that says why; a program that failed is in "failures".

The runs of several devices may stand in one file: {"schema": 1, "kind": "bench_set", "runs": [...]}.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

from . import documents, peers, results, terminal
from .documents import quoted, require
from .errors import OK, USAGE, CourseError
from .terminal import Column, format_table, say

RUN = {"schema": int, "kind": str, "date": str, "quick": bool, "rounds": int, "environment": dict,
       "reports": list, "failures": list}
FAILURE = {"step": results.is_step, "program": results.is_program, "side": str, "round": int, "code": int,
           "line": str}

LEAST_CHANGE = 0.02  # of a time: less is not worth a line, however narrow the spreads


# ---- The file ----------------------------------------------------------------------------------


def validate(run: object) -> None:
    """Raises ValueError naming what is wrong in the run of one device."""
    require(run, RUN, "the run")
    if run["schema"] != 1 or run["kind"] != "bench":
        raise ValueError(f"this is no bench of schema 1 but {quoted(run['kind'])} of schema {run['schema']}")
    require(run["environment"], results.ENVIRONMENT, "environment", results.MORE_OF_ENVIRONMENT)
    for r, report in enumerate(run["reports"]):
        try:
            results.validate(report)
        except ValueError as error:
            raise ValueError(f"reports[{r}]: {error}") from None
    for f, failure in enumerate(run["failures"]):
        require(failure, FAILURE, f"failures[{f}]")


def _validate_file(contents: object) -> None:
    """The same for all that a file may hold."""
    require(contents, {}, "what it holds")
    if "program" in contents:
        results.validate(contents)
    elif contents.get("kind") == "bench_set":
        require(contents, {"schema": int, "runs": list}, "the set")
        if contents["schema"] != 1:
            raise ValueError(f"schema {contents['schema']} is not known here, 1 is")
        if not contents["runs"]:
            raise ValueError("the set has no runs")
        for r, run in enumerate(contents["runs"]):
            try:
                validate(run)
            except ValueError as error:
                raise ValueError(f"runs[{r}]: {error}") from None
    else:
        validate(contents)


def load(path: Path) -> list[dict]:
    """The runs in a file, a run per device: one at least. The file may also be a single program's report,
    and `path` a folder of those, such as results/h200. Raises ValueError naming the file and what is wrong
    in it."""
    if path.is_dir():
        reports = [results.load(file) for file in sorted(path.glob("*.json"))]
        if not reports:
            raise ValueError(f"{path}: no results are in this folder")
        return [of_reports(reports)]
    contents = documents.load(path, _validate_file)
    if "program" in contents:
        return [of_reports([contents])]
    return contents["runs"] if contents["kind"] == "bench_set" else [contents]


def of_reports(reports: list[dict]) -> dict:
    """A run made of programs' reports that were written one by one."""
    newest = max(reports, key=lambda report: report["date"])
    device = newest["device"]
    environment = {"system": "", "processor": "", "processors": 0, "python": "",
                   "device": device["name"], "backend": device["backend"],
                   "toolkit": device["toolkit"], "torch": None, "torch_toolkit": None, "cudnn": None,
                   "numpy": None, "jax": None, **newest.get("environment", {})}
    return {"schema": 1, "kind": "bench", "date": newest["date"],
            "quick": any(report["quick"] for report in reports),
            "rounds": max(report.get("rounds", 1) for report in reports),
            "environment": environment, "reports": results.in_order(reports), "failures": []}


def load_for_user(path: Path) -> list[dict]:
    """load(), for a path from the command line."""
    try:
        return load(path)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None


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


# ---- Comparing and merging ---------------------------------------------------------------------

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

    def spread(row: dict) -> tuple[float, float]:
        return row["ms_p10"] or row["ms"], row["ms_p90"] or row["ms"]

    (before_low, before_high), (after_low, after_high) = spread(before), spread(after)
    if after_high < before_low:
        return "faster"
    return "slower" if after_low > before_high else ""


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
                      *((key, f"versions of {name}") for key, name in results.LIBRARIES.items())):
        if a.get(key) != b.get(key):
            yield f"different {word}: {a.get(key) or 'none'} and {b.get(key) or 'none'}"
    if before["quick"] or after["quick"]:
        yield "made with --quick: these times mean nothing"
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


def merge(runs: list[dict]) -> list[dict]:
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
                       "reports": results.in_order(list(reports.values())),
                       "failures": list(failures.values())}
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
    shares = ["of bound"] if results.has_of_bound(table["rows"]) else []
    columns = [Column("version", flexible=True), Column("time", right=True),
               Column("spread", right=True, optional=True), Column("rate", right=True),
               Column("of limit", right=True), *(Column(f"of {name}", right=True) for name in names),
               Column("max error", right=True, optional=True),
               *(Column("of bound", right=True, optional=True) for _ in shares), Column("verdict")]
    rows = []
    for row in table["rows"]:
        verdict = row["skipped"] if row["status"] == "skipped" else row["status"]
        rows.append([
            row["name"], results.format_ms(row["ms"]), spread_text(row),
            results.format_rate(row["rate"], row["rate_unit"]), results.format_share(row["of_limit"]),
            *(results.format_share(row["of_peer"].get(name)) for name in names),
            results.format_error(row), *(results.format_of_bound(row) for _ in shares), verdict + (f", {row['note']}" if row["note"] else "")])
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


def beside_of(environment: dict) -> str:
    """The libraries that the steps were measured beside: "PyTorch 2.11.0, JAX 0.11.2"."""
    return ", ".join(f"{name} {environment[key]}" for key, name in results.LIBRARIES.items()
                     if environment.get(key))


def origin(run: dict) -> str:
    """Where it was measured, and beside what."""
    environment = run["environment"]
    beside = beside_of(environment)
    backend = ("CPU backend: its times rank versions and foretell no GPU"
               if environment["backend"] == "cpu" else
               f"{environment['backend']} {environment['toolkit']}")
    return (f"{environment['device'] or 'no device'}, {backend}; {run['rounds']} round"
            f"{'s' if run['rounds'] > 1 else ''}" + (f"; beside {beside}" if beside else "")
            + ("; quick: these times mean nothing" if run["quick"] else ""))
