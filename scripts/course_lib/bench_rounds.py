"""What the rounds of a bench give together: one report of a step, with its peers' rows."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from dataclasses import dataclass, field

from . import peers
from .errors import OK
from .steps import Step

OF_PROGRAMS = {"cublas": "cuBLAS", "cudnn": "cuDNN", "rocblas": "rocBLAS"}  # peers that programs measure
LOOP = "C++ loop"
LIMIT_KEYS = {"copy": "copy_bytes_per_s", "read": "read_bytes_per_s", "fma": "fma_operations_per_s"}


def median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def merge_rows(rows: list[dict]) -> dict:
    """One row of several rounds'. It failed if it failed in any; else its error is the worst."""
    def badness(row: dict) -> tuple:
        error = row.get("of_bound") or (row["max_error"] or 0) / (row["bound"] or 1)
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
    spent: dict[str, float] = field(default_factory=dict)  # seconds of all rounds, by who was running
    code: int = OK  # the program's first one that is not 0

    @contextlib.contextmanager
    def clock(self, who: str):
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent[who] = self.spent.get(who, 0) + time.monotonic() - start


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
