"""What the programs wrote with --json: read, checked against the schema, summed up in a line each.

The schema (number 1) is written by common/report_json.cpp; figures are worded as report.cpp words them. A figure
that was not taken, and one that is not a number, is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import documents, plot
from .documents import is_list_of_texts, quoted, require, shown
from .terminal import Column, format_table

FIGURE = (int, float, type(None))


def is_amount(value: object) -> bool:
    """Whether this is a time, a rate or a share that some machine could reach, or was not taken: null. In
    these limits no product and no quotient of a few of them is infinite, or 0."""
    if value is None:
        return True
    return documents.is_of(value, (int, float)) and (value == 0 or 1e-30 <= value <= 1e30)


def is_step(value: object) -> bool:
    """Whether this is a step's number: "1.10"."""
    return isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", value) is not None


def is_program(value: object) -> bool:
    """Whether this can be a program's name, by which files are named, too."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value) is not None


REPORT = {"schema": int, "step": is_step, "program": is_program, "summary": str, "date": str, "quick": bool,
          "seed": int, "device": dict, "limits": dict, "tables": list, "facts": list}
DEVICE = {"name": str, "backend": str, "toolkit": str, "wave_size": int, "multiprocessors": int}
LIMITS = {"copy_bytes_per_s": is_amount, "read_bytes_per_s": is_amount, "fma_operations_per_s": is_amount}
TABLE = {"problem": str, "sampled": str, "reference_ms": is_amount, "rows": list}
ROW = {"name": str, "lesson": str, "peer": bool, "status": str, "skipped": str, "ms": is_amount,
       "ms_p10": is_amount, "ms_p90": is_amount, "rate": is_amount, "rate_unit": str,
       "of_limit": is_amount, "limit": str, "of_peer": dict, "max_error": FIGURE, "bound": FIGURE,
       "index": int, "compared": int, "note": str}
FACT = {"name": str, "value": FIGURE, "unit": str}
TEXT_OR_NONE = (str, type(None))
ENVIRONMENT = {"system": str, "processor": str, "processors": int, "python": str, "device": str,
               "backend": str, "toolkit": str, "torch": TEXT_OR_NONE, "torch_toolkit": TEXT_OR_NONE,
               "cudnn": TEXT_OR_NONE, "numpy": TEXT_OR_NONE}
MORE_OF_ENVIRONMENT = {"jax": TEXT_OR_NONE}  # came later
LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "numpy": "NumPy"}  # peers by their keys of the environment
# Keys that came later, and those that `scripts/course bench` adds: absent in other files.
# The headline is the problem that stands for the step, the dimensions are the names of --size's numbers.
MORE_OF_REPORT = {"commit": str, "headline": str, "dimensions": is_list_of_texts, "rounds": int,
                  "environment": dict, "peer_series": dict}
MORE_OF_ROW = {"of_bound": FIGURE,  # the largest share of its bound that an element's error is
               "bytes": is_amount, "operations": is_amount, "rounds": int, "first": int, "failed": int,
               "unwritten": int}


def validate(report: object) -> None:
    """Raises ValueError naming the first key that is missing or of the wrong type."""
    require(report, REPORT, "the report", MORE_OF_REPORT)
    if report["schema"] != 1:
        raise ValueError(f"schema {report['schema']} is not known here, 1 is")
    require(report["device"], DEVICE, "device")
    require(report["limits"], LIMITS, "limits")
    require(report.get("environment", {}), {}, "environment", ENVIRONMENT | MORE_OF_ENVIRONMENT)
    for t, table in enumerate(report["tables"]):
        require(table, TABLE, f"tables[{t}]")
        for r, row in enumerate(table["rows"]):
            validate_row(row, f"tables[{t}].rows[{r}]")
    for f, fact in enumerate(report["facts"]):
        require(fact, FACT, f"facts[{f}]")
    plot.series_of(report)
    for peer, series in report.get("peer_series", {}).items():
        try:
            plot.series_of({"series": series})
        except ValueError as error:
            raise ValueError(f"peer_series of {quoted(peer)}: {error}") from None


def validate_row(row: object, place: str) -> None:
    """The same for a row of a table."""
    require(row, ROW, place, MORE_OF_ROW)
    if row["status"] not in ("ok", "FAIL", "skipped"):
        raise ValueError(f"{place}: status {quoted(row['status'])} is not ok, FAIL or skipped")
    if row["rate_unit"] not in ("B/s", "operations/s"):
        raise ValueError(f"{place}: rate_unit {quoted(row['rate_unit'])} is not known")
    for peer, ratio in row["of_peer"].items():
        if ratio is None or not is_amount(ratio):
            raise ValueError(f"{place}: of_peer[{quoted(peer)}] cannot be {shown(ratio)}")


def load(path: Path) -> dict:
    """The report in a file. Raises ValueError naming the file and what is wrong in it."""
    return documents.load(path, validate)


def dump(value: object, indent: int = 0) -> str:
    """JSON as the programs lay it out: a line for each key, and one for each row of numbers."""
    inside, outside = "\n" + " " * (indent + 1), "\n" + " " * indent
    if isinstance(value, dict) and value:
        pairs = (f"{json.dumps(key, ensure_ascii=False)}: {dump(one, indent + 1)}"
                 for key, one in value.items())
        return "{" + inside + ("," + inside).join(pairs) + outside + "}"
    if isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        return "[" + inside + ("," + inside).join(dump(one, indent + 1) for one in value) + outside + "]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def place_of(step: str) -> list[int]:
    """By which steps are sorted: 1.10 comes after 1.9."""
    return [int(part) for part in step.split(".")]


def in_order(reports: Iterable[dict]) -> list[dict]:
    """In the order of the roadmap."""
    return sorted(reports, key=lambda report: place_of(report["step"]))


def has_failed(report: dict) -> bool:
    return any(row["status"] == "FAIL" for table in report["tables"] for row in table["rows"])


# ---- Figures as text ---------------------------------------------------------------------------


def significant(value: float) -> str:
    """Three significant digits, never an exponent: 1.23, 12.3, 123, 1234."""
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def format_ms(ms: float | None) -> str:
    if not ms:
        return "-"
    if ms < 1:
        return f"{significant(ms * 1e3)} us"
    return f"{significant(ms)} ms" if ms < 1e3 else f"{significant(ms / 1e3)} s"


def format_rate(rate: float | None, unit: str) -> str:
    if not rate:
        return "-"
    unit = "FLOP/s" if unit == "operations/s" else unit
    for factor, prefix in ((1e12, "T"), (1e9, "G")):
        if rate >= factor:
            return f"{significant(rate / factor)} {prefix}{unit}"
    return f"{significant(rate / 1e6)} M{unit}"


def format_share(share: float | None) -> str:
    if not share:
        return "-"
    if share < 0.001:
        return "<0.1%"
    if share >= 9.995:
        return f"{significant(share)}x"
    return f"{100 * share:.{1 if share < 0.0995 else 0}f}%"


def format_peers(of_peer: dict) -> str:
    """The peer that is hardest to match."""
    if not of_peer:
        return "-"
    peer = min(of_peer, key=of_peer.get)
    return f"{format_share(of_peer[peer])} of {peer}"


def format_value(value: float | None) -> str:
    """A fact's figure: four significant digits, more only where the whole part has more."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def format_error(row: dict) -> str:
    if row["status"] == "skipped" or row["compared"] == 0:
        return "-"
    if row["max_error"] is None:
        return "NaN"
    return "0" if row["max_error"] == 0 else f"{row['max_error']:.1e}"


def has_of_bound(rows: list[dict]) -> bool:
    """Whether a table has the column: older results do not."""
    return any("of_bound" in row for row in rows)


def format_of_bound(row: dict) -> str:
    """How much of its bound the error takes, where it takes most; as the programs word it."""
    if row["status"] == "skipped" or row["compared"] == 0 or "of_bound" not in row:
        return "-"
    share = row["of_bound"]
    if share is None:  # infinite: the bound is 0, or the result NaN
        return "inf"
    if row["max_error"] == 0 and share == 0:
        return "0"
    return format_share(share) if share < 100 else f"{share:.0e}"


def device_line(report: dict) -> str:
    device = report["device"]
    is_cpu = device["backend"] == "cpu"
    toolkit = "CPU backend" if is_cpu else f"{device['backend']} {device['toolkit']}"
    return f"{device['name']}, {toolkit}, {report['date'][:10]}"


# ---- One line per program ----------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How one program ended: its exit code (negative: the signal that killed it) and its report."""

    step: str
    program: str
    code: int
    report: dict | None = None

    @property
    def verdict(self) -> str:
        if self.code < 0:
            return f"FAIL (signal {-self.code})"
        return {0: "ok", 1: "FAIL", 3: "no device"}.get(self.code, f"FAIL (exit {self.code})")


SUMMARY = [
    Column("step"),
    Column("program"),
    Column("best version", flexible=True),
    Column("time", right=True),
    Column("rate", right=True, optional=True),
    Column("of limit", right=True, optional=True),
    Column("of peer", right=True, optional=True),
    Column("max error", right=True, optional=True),
    Column("verdict"),
]


def headline_first(report: dict) -> list[dict]:
    """The report's tables, that of its headline problem before the others."""
    wanted = report.get("headline")
    return sorted(report["tables"], key=lambda table: table["problem"] != wanted)


def best_row(report: dict) -> dict | None:
    """The correct version nearest to its limit in the headline's table, or else in the first that was
    timed; where there is no limit, the fastest. None where nothing was timed."""
    for table in headline_first(report):
        timed = [
            row
            for row in table["rows"]
            if not row["peer"] and row["status"] == "ok" and row["ms"]
        ]
        if timed:
            return max(timed, key=lambda row: (row["of_limit"] or 0, -row["ms"]))
    return None


def summary_table(outcomes: list[Outcome], available: int) -> list[str]:
    """The lines of the table that sums up a run, the header first; without columns that are empty,
    as the vendor's where no vendor library was there."""
    rows = [_summary_row(outcome) for outcome in outcomes]
    shown = [c for c in range(len(SUMMARY)) if any(row[c] != "-" for row in rows)]
    columns = [SUMMARY[c] for c in shown]
    return format_table(columns, [[row[c] for c in shown] for row in rows], available)


def _summary_row(outcome: Outcome) -> list[str]:
    row = best_row(outcome.report) if outcome.report else None
    if row is None:
        figures = ["-"] * 6
    else:
        figures = [
            row["name"],
            format_ms(row["ms"]),
            format_rate(row["rate"], row["rate_unit"]),
            format_share(row["of_limit"]),
            format_peers(row["of_peer"]),
            format_error(row),
        ]
    return [outcome.step, outcome.program, *figures, outcome.verdict]
