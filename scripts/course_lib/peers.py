"""What scripts/bench_torch.py, bench_jax.py and bench_numpy.py share: how they time, the rows they write,
and how they do the work of a program's report.

A peer's file, which `scripts/course bench` merges into the report:

    {"schema": 1, "kind": "peer", "peer": "PyTorch", "environment": {...},
     "tables": [{"problem": "n=2^28 float32", "rows": [...]}]}

The rows are those of a report (course_lib/results.py). Work that the peer cannot do is a row without
a time, with the reason.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import documents, problems, results
from .documents import require
from .errors import FAILED, INTERRUPTED, OK, USAGE, CourseError
from .terminal import visible

# What a batch of calls to a GPU takes at least. A Python library takes up to 0.1 ms to begin one, and is told some
# 0.1 ms late that the last has ended where the host's clock is used: a hundredth or two of these.
BY_EVENTS_MS, BY_HOST_MS = 5, 10

# A peer measures one problem: its rows, or CannotDo.
Measure = Callable[[problems.Problem], list[dict]]


class CannotDo(Exception):
    """Why the peer cannot do this work."""


def first_line(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]


# ---- Times -------------------------------------------------------------------------------------


def time_call(run: Callable[[int], float], repeat: int = 0, settle_ms: float = 20,
              budget_ms: float = 250, least_ms: float = 0.2) -> list[float]:
    """Milliseconds of a call, many times, as common/timer.h takes them: two calls that do not count,
    a warm-up, and batches of calls where one is too short to be timed.

    run(count) makes so many calls and returns the milliseconds of all. repeat 0: as many as fit into
    the budget, from 5 to 100. least_ms: what a batch takes at least, of up to 100 calls. A device waits for
    the host before the first of them, and works on while the host prepares the others.
    """
    run(1)
    once = max(run(1), 1e-4)
    spent, warm_up = 0.0, min(settle_ms, 4 * settle_ms * once)
    together = max(1, int(min(warm_up, 10) / once))  # so that the device does not rest between them and stay cool
    while spent < warm_up:
        spent += max(run(together), 1e-4)
    batch = int(min(max(least_ms / once, 1), 100))
    if not repeat:
        repeat = int(min(max(budget_ms / (once * batch), 5), 100))
    return [run(batch) / batch for _ in range(repeat)]


def time_host(call: Callable[[], object]) -> Callable[[int], float]:
    """For time_call: calls that are over when they return."""
    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return 1e3 * (time.perf_counter() - start)
    return run


# ---- Rows --------------------------------------------------------------------------------------


def percentile(ordered: list[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def make_row(name: str, times: list[float], note: str = "", error: float | None = None,
             compared: int = 0) -> dict:
    """A row as the programs write it, from times in milliseconds. `error` is the largest difference to
    the same work in double precision, over `compared` numbers. Rate and shares are added where the row
    is merged into a report, whose rows say what the work is."""
    ordered = sorted(times)
    return {"name": name, "lesson": "", "peer": True, "status": "ok", "skipped": "",
            "ms": percentile(ordered, 0.5), "ms_p10": percentile(ordered, 0.1),
            "ms_p90": percentile(ordered, 0.9), "rate": None, "rate_unit": "B/s", "of_limit": None,
            "limit": "none", "of_peer": {}, "max_error": error, "bound": None, "index": 0, "first": 0,
            "compared": compared, "failed": 0, "unwritten": 0, "note": note}


def blank_row(name: str, reason: str) -> dict:
    """Work that was not done, and why."""
    return {**make_row(name, [0.0]), "status": "skipped", "skipped": reason, "ms": None,
            "ms_p10": None, "ms_p90": None}


# ---- The work of a report ----------------------------------------------------------------------


def measure_report(report: dict, peer: str, measure: Measure) -> list[dict]:
    """For each table of a program's report the same work, done by the peer."""
    tables = []
    for table in report["tables"]:
        problem = problems.parse(report["program"], table["problem"])
        try:
            if problem is None:
                raise CannotDo(f"no {peer} counterpart")
            rows = measure(problem)
        except CannotDo as reason:
            rows = [blank_row(peer, str(reason))]
        except MemoryError:
            rows = [blank_row(peer, "out of memory")]
        tables.append({"problem": table["problem"], "rows": rows})
    return tables


def peer_file(peer: str, environment: dict, tables: list[dict]) -> dict:
    return {"schema": 1, "kind": "peer", "peer": peer, "environment": environment, "tables": tables}


def validate(contents: object) -> None:
    """Raises ValueError naming what is wrong in a peer's file."""
    require(contents, {"schema": int, "kind": str, "peer": str, "environment": dict, "tables": list},
            "the peer's file")
    if contents["schema"] != 1 or contents["kind"] != "peer":
        raise ValueError("this is no peer's file of schema 1")
    for t, table in enumerate(contents["tables"]):
        require(table, {"problem": str, "rows": list}, f"tables[{t}]")
        for r, row in enumerate(table["rows"]):
            results.validate_row(row, f"tables[{t}].rows[{r}]")


def write_json(path: Path, contents: dict) -> None:
    documents.write(path, (results.dump(contents) + "\n").encode())


def print_table(table: dict) -> None:
    print(f"\n{visible(table['problem'])}")
    for row in table["rows"]:
        spread = f"{results.format_ms(row['ms_p10'])} to {results.format_ms(row['ms_p90'])}"
        figures = (f"{results.format_ms(row['ms']):>8}  ({spread})"
                   f"  error {results.format_error(row)}" if row["ms"] else row["skipped"])
        print(visible(f"{row['name']:<24} {figures}  {row['note']}".rstrip()), flush=True)


# ---- The command line of a peer's script -------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--like", type=Path, metavar="REPORT.json", nargs="+", default=[],
                        help="do the work of these results of programs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--quick", action="store_true", help="few repetitions, which say little")


def check_options(options: argparse.Namespace) -> None:
    """Raises CourseError for what cannot be asked for."""
    if options.json and not options.json.absolute().parent.is_dir():
        raise CourseError(f"--json: there is no folder {options.json.parent}", USAGE)


@dataclass(frozen=True)
class Peer:
    name: str  # "PyTorch"
    environment: dict  # {"torch": "2.11.0"}: what of it does the work
    like: Callable[[dict], list[dict]]  # the tables of a report


def serve(peer: Peer) -> None:
    """Answers requests, a line of JSON each, until there are no more: `scripts/course bench` keeps one
    process for all steps and rounds, so that libraries are loaded and code is compiled once.

        {"like": a report's file, "json": where the tables go}  ->  {} or {"error": "a line"}

    What libraries print to stdout goes to stderr: stdout is for the answers. To stderr goes, too, where each thread
    stands when a signal ends it.
    """
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        try:
            tables = peer.like(results.load(Path(request["like"])))
            write_json(Path(request["json"]), peer_file(peer.name, peer.environment, tables))
        except Exception as error:  # what is wrong with one report must not end the others
            traceback.print_exc()
            answer = {"error": first_line(error)}
        print(json.dumps(answer), file=answers, flush=True)


def like_files(peer: Peer, files: list[Path]) -> Iterator[dict]:
    for file in files:
        try:
            report = results.load(file)
        except ValueError as error:
            raise CourseError(str(error), USAGE) from None
        print(f"\n{report['step']} {report['program']}")
        yield from peer.like(report)


def run(peer: Peer, options: argparse.Namespace, alone: Iterable[dict] = ()) -> None:
    """What the options ask for: to serve, the work of reports, or the tables of `alone`."""
    if options.serve:
        serve(peer)
        return
    tables = []
    for table in like_files(peer, options.like) if options.like else alone:
        tables.append(table)
        print_table(table)
    if options.json:
        contents = peer_file(peer.name, peer.environment, tables)
        validate(contents)
        write_json(options.json, contents)


def main(script: str, body: Callable[[], None]) -> int:
    """Runs a script's body. What stops it becomes a line and an exit code."""
    try:
        body()
        return OK
    except CourseError as error:
        line, code = str(error), error.code
    except (CannotDo, RuntimeError, OSError, EOFError, MemoryError, zlib.error) as error:
        line, code = first_line(error), FAILED
    except KeyboardInterrupt:
        line, code = "interrupted", INTERRUPTED
    print(f"{script}: {visible(line)}", file=sys.stderr)
    return code
