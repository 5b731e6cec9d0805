"""What the programs wrote with --json: read, checked against the schema, summed up in a line each.

The schema (number 1) is written by common/report.cpp; figures are worded as it words them. A figure
that was not taken, and one that is not a number, is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .terminal import Column, format_table

FIGURE = (int, float, type(None))
REPORT = {"schema": int, "step": str, "program": str, "summary": str, "date": str, "quick": bool,
          "seed": int, "device": dict, "limits": dict, "tables": list, "facts": list}
DEVICE = {"name": str, "backend": str, "toolkit": str, "wave_size": int, "multiprocessors": int}
LIMITS = {"copy_bytes_per_s": FIGURE, "read_bytes_per_s": FIGURE, "fma_operations_per_s": FIGURE}
TABLE = {"problem": str, "sampled": str, "reference_ms": FIGURE, "rows": list}
ROW = {"name": str, "lesson": str, "peer": bool, "status": str, "skipped": str, "ms": FIGURE,
       "ms_p10": FIGURE, "ms_p90": FIGURE, "rate": FIGURE, "rate_unit": str, "of_limit": FIGURE,
       "limit": str, "of_peer": dict, "max_error": FIGURE, "bound": FIGURE,
       "index": int, "compared": int, "note": str}
FACT = {"name": str, "value": FIGURE, "unit": str}
# Keys that came later: absent in older files.
# The headline is the problem that stands for the step, the dimensions are the names of --size's numbers.
MORE_OF_REPORT = {"commit": str, "headline": str, "dimensions": list}
MORE_OF_ROW = {"of_bound": FIGURE}  # the largest share of its bound that an element's error is


def require(record: object, keys: dict, place: str, optional: dict | None = None) -> None:
    """Raises ValueError where the record lacks one of the keys or holds another type there; `optional`
    keys may be absent."""
    if not isinstance(record, dict):
        raise ValueError(f"{place} is not an object")
    for key in keys:
        if key not in record:
            raise ValueError(f"{place} has no '{key}'")
    for key, kind in {**keys, **(optional or {})}.items():
        value = record.get(key)
        if key not in record:
            continue
        # bool is an int to Python, and must not pass as a number.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{place}: '{key}' cannot be {json.dumps(value)}")


def validate(report: object) -> None:
    """Raises ValueError naming the first key that is missing or of the wrong type."""
    require(report, REPORT, "the report", MORE_OF_REPORT)
    if report["schema"] != 1:
        raise ValueError(f"schema {report['schema']} is not known here, 1 is")
    require(report["device"], DEVICE, "device")
    require(report["limits"], LIMITS, "limits")
    for t, table in enumerate(report["tables"]):
        require(table, TABLE, f"tables[{t}]")
        for r, row in enumerate(table["rows"]):
            validate_row(row, f"tables[{t}].rows[{r}]")
    for f, fact in enumerate(report["facts"]):
        require(fact, FACT, f"facts[{f}]")


def validate_row(row: object, place: str) -> None:
    """The same for a row of a table."""
    require(row, ROW, place, MORE_OF_ROW)
    if row["status"] not in ("ok", "FAIL", "skipped"):
        raise ValueError(f"{place}: status '{row['status']}' is not ok, FAIL or skipped")
    if row["rate_unit"] not in ("B/s", "operations/s"):
        raise ValueError(f"{place}: rate_unit '{row['rate_unit']}' is not known")
    for peer, ratio in row["of_peer"].items():
        if not isinstance(ratio, (int, float)) or isinstance(ratio, bool):
            raise ValueError(f"{place}: of_peer['{peer}'] is not a number")


def load(path: Path) -> dict:
    """The report in a file. Raises ValueError naming the file and what is wrong in it."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        validate(report)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return report


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
