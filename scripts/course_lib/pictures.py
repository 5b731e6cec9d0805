"""Pictures of results: the ladder of each step, one roofline of all kernels, training curves.

What a picture shows is computed first, from reports alone and with the standard library alone
(ladders, roofline, curves: plain dictionaries). drawing.py draws
it with Matplotlib, as SVG and PNG.

An SVG says which data it shows (dc:identifier, a checksum), so that a committed picture can be held
against the committed results without being drawn again: its bytes depend on Matplotlib's version, its
data do not.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from . import plot, results, work

DRAWING = 1  # raised where the same data get another picture: committed ones are then drawn anew
LIMITS = {"copy": ("copy_bytes_per_s", "B/s", "copying"),
          "read": ("read_bytes_per_s", "B/s", "reading"),
          "fma": ("fma_operations_per_s", "operations/s", "fp32 multiply-add")}
# Rows that are no versions of one and the same work: probes, devices, errors, layers.
WITHOUT_LADDER = ("hello_gpu", "error_check", "timing", "device_matrix", "first_kernels",
                  "gradient_check")
MOST_LADDERS = 4  # of one program
CURVES = ("loss", "training")  # the last word of the names of series that are curves


def checksum(data: dict) -> str:
    """What stands in a picture for the data that it shows."""
    text = json.dumps([DRAWING, data], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def job(picture: dict) -> dict:
    """What drawing.py is told about a picture."""
    data = picture["data"]
    return {"file": picture["file"], "data": data, "identifier": checksum(data),
            "words": words_for(data)}


def is_drawn(picture: dict, folder: Path) -> bool:
    """True where the folder has this picture, of these data."""
    file = folder / f"{picture['file']}.svg"
    return file.is_file() and checksum(picture["data"]) in file.read_text(encoding="utf-8")


def check(wanted: list[dict], folder: Path) -> list[str]:
    """What is wrong with the pictures in a folder: missing, of other data, or of none."""
    problems = []
    for picture in wanted:
        if not is_drawn(picture, folder):
            there = (folder / f"{picture['file']}.svg").is_file()
            problems.append(f"{picture['file']}.svg " + ("shows other data than the results" if there
                                                         else "is missing"))
    names = {f"{picture['file']}.svg" for picture in wanted}
    return problems + [f"{file.name} belongs to no results" for file in sorted(folder.glob("*"))
                       if file.name not in names]


# ---- What is shown -----------------------------------------------------------------------------


def all_pictures(reports: list[dict]) -> list[dict]:
    """Every picture of one device's reports: {"file", "program", "data"}, the roofline first."""
    pictures = []
    whole = roofline(reports)
    if whole["points"]:
        pictures.append({"file": "roofline", "program": "", "data": whole})
    for report in reports:
        for n, data in enumerate(ladders(report)):
            pictures.append({"file": f"{report['program']}_ladder" + (f"_{n + 1}" if n else ""),
                             "program": report["program"], "data": data})
        for data in curves(report):
            pictures.append({"file": f"{report['program']}_{data['name']}",
                             "program": report["program"], "data": data})
    return pictures


def readme_pictures(reports: list[dict]) -> list[dict]:
    """Those that stand in the READMEs: of the ladders, each program's first."""
    return [picture for picture in all_pictures(reports)
            if picture["data"]["kind"] != "ladder" or picture["file"].endswith("_ladder")]


def ladders(report: dict) -> list[dict]:
    """A ladder for each table that has versions which no table before it has."""
    if report["program"] in WITHOUT_LADDER:
        return []
    found, seen = [], set()
    for table in report["tables"]:
        names = {row["name"] for row in table["rows"] if not row["peer"]}
        data = ladder(report, table)
        if data and not names <= seen and len(found) < MOST_LADDERS:
            found.append(data)
            seen |= names
    return found


def ladder(report: dict, table: dict) -> dict | None:
    """The versions of one table as bars, the limit and the peers as lines across them.

    The bars are rates, and where the table has none, how often faster than its slowest version each
    is. None where fewer than two versions were timed.
    """
    timed = [row for row in table["rows"] if row["ms"] and row["status"] == "ok"]
    versions = [row for row in timed if not row["peer"]]
    if len(versions) < 2:
        return None
    has_rates = all(row["rate"] for row in versions)
    slowest = max(row["ms"] for row in versions)
    done = versions[0]["rate"] * versions[0]["ms"] if has_rates else slowest
    unit = versions[0]["rate_unit"] if has_rates else "x"

    def bar(row: dict) -> dict:
        value = row["rate"] if has_rates and row["rate"] else done / row["ms"]
        return {"name": row["name"], "value": value, "time": results.format_ms(row["ms"]),
                "rate": results.format_rate(value, unit) if has_rates else f"{value:.3g}x",
                "share": results.format_share(row["of_limit"]) if row["of_limit"] else ""}

    bars = [bar(row) for row in versions]
    best = max(range(len(bars)), key=lambda i: bars[i]["value"])
    key, limit_unit, what = LIMITS.get(versions[0]["limit"], (None, None, ""))
    limit = report["limits"][key] if key and limit_unit == unit else None
    lines = [{"kind": "limit", "value": limit, "name": f"measured limit of {what}",
              "text": results.format_rate(limit, unit)}] if limit else []
    for row in timed:
        if row["peer"]:
            one = bar(row)
            lines.append({"kind": "peer", "value": one["value"], "name": row["name"],
                          "text": f"{one['time']}, {one['rate']}" if has_rates else one["time"]})
    return {"kind": "ladder", "title": f"{report['step']} {report['program']}",
            "problem": re.sub(r"\s{2,}", ", ", table["problem"]), "unit": unit, "bars": bars,
            "best": best, "lines": lines}


def roofline(reports: list[dict]) -> dict:
    """All timed versions whose least bytes and operations are known, under the measured limits.

    A version without a measured limit for its kind of arithmetic (matrix units) is left off, as is
    one whose bytes or operations are not known, or that computes nothing; how many, is counted.
    """
    points, left, limits = [], {"unknown": 0, "no limit": 0}, {}
    for report in reports:
        of_step = []
        for t, table in enumerate(results.headline_first(report)):
            for row in table["rows"]:
                if row["peer"] or not row["ms"] or row["status"] != "ok":
                    continue
                if row["limit"] == "none":
                    left["no limit"] += 1
                    continue
                amounts = work.work_of(report["program"], table, row)
                if amounts is None:
                    left["unknown"] += 1
                    continue
                of_step.append({"step": report["step"], "program": report["program"],
                                "name": row["name"], "first": t == 0,
                                "intensity": amounts[1] / amounts[0],
                                "rate": amounts[1] / row["ms"] * 1e3,
                                "of_limit": row["of_limit"] or 0})
        if of_step:
            points.append(of_step)
            for key, _, _ in LIMITS.values():
                if report["limits"][key]:
                    limits.setdefault(key, []).append(report["limits"][key])
    shown = []
    for of_step in points:
        # The step's number stands at the version that its headline is remembered for.
        first = [p for p in of_step if p["first"]] or of_step
        best = max(first, key=lambda p: (p["of_limit"], p["rate"]))
        shown += [{"step": p["step"], "program": p["program"], "name": p["name"],
                   "intensity": p["intensity"], "rate": p["rate"], "best": p is best}
                  for p in of_step]
    middle = {key: sorted(values)[len(values) // 2] for key, values in limits.items()}
    if "fma_operations_per_s" not in middle or len(middle) < 2:
        shown = []  # no roof
    return {"kind": "roofline", "limits": middle, "points": shown, "left_off": left}


def curves(report: dict) -> list[dict]:
    """The series that are curves, a panel for each quantity, with those of peers beside them.

    The peers' are in the report's "peer_series": {peer: {series: {"columns", "rows"}}}, and are
    matched by the names of the series and of the columns. Of a peer without them the accuracy that
    its row notes is a line across: it was reached on the same images.
    """
    found = []
    for name, one in plot.series_of(report).items():
        word = name.rsplit("_", 1)[-1]
        if word not in CURVES or len(one["rows"]) < 2 or len(one["columns"]) < 2:
            continue
        columns = one["columns"]
        if word == "loss":  # a column for each version
            panels = [{"quantity": "loss", "curves": [
                _curve(label, one, c) for c, label in enumerate(columns) if c]}]
        else:
            row = results.best_row(report)
            own = f"{row['name']}, {results.format_ms(row['ms'])}" if row else report["program"]
            panels = [{"quantity": quantity, "curves": [_curve(own, one, c)]}
                      for c, quantity in enumerate(columns) if c]
        for peer, series in report.get("peer_series", {}).items():
            other = series.get(name, {"columns": [], "rows": []})
            for panel in panels:
                if panel["quantity"] in other["columns"]:
                    column = other["columns"].index(panel["quantity"])
                    panel["curves"].append({**_curve(peer, other, column), "peer": True})
        for panel in panels:
            if panel["quantity"] == "accuracy" and len(panel["curves"]) == 1:
                panel["curves"] += _noted_accuracies(report, one)
        title = name.replace("_", " ") if name != word else "training"
        found.append({"kind": "curves", "name": name, "x": columns[0], "panels": panels,
                      "title": f"{report['step']} {report['program']}: {title}"})
    return found


def _curve(label: str, series: dict, column: int) -> dict:
    return {"label": label, "peer": False,
            "points": [[row[0], row[column]] for row in series["rows"]]}


def _noted_accuracies(report: dict, series: dict) -> list[dict]:
    found = []
    ends = (series["rows"][0][0], series["rows"][-1][0])
    for row in report["tables"][0]["rows"] if report["tables"] else []:
        noted = re.search(r"accuracy (\d+(?:\.\d+)?)%", row["note"])
        if row["peer"] and row["ms"] and noted:
            found.append({"label": f"{row['name']}, {results.format_ms(row['ms'])}: at the end",
                          "peer": True, "points": [[x, float(noted[1])] for x in ends]})
    return found


def words_for(data: dict) -> str:
    """The picture in words, for those who do not see it."""
    if data["kind"] == "diagram":
        return data["words"]
    if data["kind"] == "ladder":
        bars = "; ".join(f"{b['name']} {b['time']}" + (f", {b['rate']}" if b["rate"] else "")
                         for b in data["bars"])
        lines = "; ".join(f"{line['name']} {line['text']}" for line in data["lines"])
        return f"Ladder of {data['title']}, {data['problem']}: {bars}." + \
            (f" Lines: {lines}." if lines else "")
    if data["kind"] == "roofline":
        best = ", ".join(f"{p['step']} {p['program']} {results.format_rate(p['rate'], 'FLOP/s')}"
                         for p in data["points"] if p["best"])
        return f"Roofline: operations per second over operations per byte. Best versions: {best}."
    ends = "; ".join(
        f"{panel['quantity']} of {curve['label']} from {_end(curve, 0)} to {_end(curve, -1)}"
        for panel in data["panels"] for curve in panel["curves"])
    return f"Curves of {data['title']} over {data['x']}: {ends}."


def _end(curve: dict, which: int) -> str:
    return results.format_value(curve["points"][which][1])
