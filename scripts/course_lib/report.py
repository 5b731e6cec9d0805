"""`scripts/course report`: one HTML page with all tables and pictures of results, in one file.

The page needs nothing but itself: no network, and without JavaScript only sorting is missing. Its
frame is report.html beside this file. What is drawn already, in a folder `pictures` beside the results, is
taken from there; drawing.py draws the others, with a Python that has Matplotlib. Nothing is installed.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from . import bench_file, diffs, pictures, results
from .errors import FAILED, USAGE, CourseError

FRAME = Path(__file__).with_name("report.html")
DRAWING = Path(__file__).with_name("drawing.py")
OPEN_TABLES = 3  # of a step; the others are folded away, and printed all the same
ENVIRONMENT = {"device": "device", "backend": "backend", "toolkit": "toolkit",
               "processor": "processor", "processors": "processors", "system": "system",
               "python": "Python", "torch": "PyTorch", "torch_toolkit": "PyTorch's toolkit",
               "cudnn": "cuDNN", "jax": "JAX", "numpy": "NumPy"}
# Time and share of the limit come first: on a phone they are what one sees without scrolling.
FIGURES = (("time", "number"), ("of limit", "number"), ("rate", "number"), ("spread", "number"))
escape = html.escape

Draw = Callable[[Path, Path], None]  # draws the jobs of a file into a folder, as SVG; or none where it can't


# ---- HTML --------------------------------------------------------------------------------------


def page(runs: list[dict], draw: Draw, keep: Path | None = None,
         ladders: dict[str, str] | None = None, drawn_in: Iterable[Path] = ()) -> str:
    """The whole page. `ladders` are programs' versions line by line, by diffs.ladder(): each stands once,
    with the first device that has results of it. `drawn_in` are folders that may have its pictures."""
    parts, names = [], []
    left = dict(ladders or {})
    for number, run in enumerate(runs, 1):
        folder = keep / str(number) if keep and len(runs) > 1 else keep
        drawn = _draw(pictures.all_pictures(run["reports"]), draw, folder, drawn_in)
        parts.append(_run(run, f"run{number}", drawn, left))
        names.append(run["environment"]["device"])
    title = "Results on " + " and ".join(dict.fromkeys(names))
    text = FRAME.read_text(encoding="utf-8")
    links = _links(runs)
    for mark, value in (("title", escape(title)), ("links", links), ("runs", "\n".join(parts)),
                        ("diff_style", diffs.STYLE if ladders else "")):
        text = text.replace("{{" + mark + "}}", value)
    return text


def _links(runs: list[dict]) -> str:
    lines = []
    for number, run in enumerate(runs, 1):
        items = "".join(f'<li><a href="#run{number}-{escape(report["program"])}">{report["step"]} '
                        f'{escape(report["program"])}</a></li>' for report in run["reports"])
        label = escape(run["environment"]["device"])
        lines.append(f'<nav aria-label="Steps on {label}"><ul>{items}</ul></nav>')
    return "\n".join(lines)


def _run(run: dict, key: str, drawn: list[dict], ladders: dict[str, str]) -> str:
    reports = run["reports"]
    name = escape(run["environment"]["device"])
    lines = [f'<section aria-labelledby="{key}">', f'<h2 id="{key}">{name}</h2>', _environment(run)]
    if run.get("quick"):
        lines.append('<p class="warning">Made with --quick: these times mean nothing.</p>')
    for failure in run.get("failures", []):
        lines.append(f'<p class="warning">{escape(failure["step"])} {escape(failure["program"])} '
                     f'({escape(failure["side"])}) failed: {escape(failure["line"])}</p>')
    lines += ["<h3>Best version of each step</h3>", _summary(reports, key)]
    roofline = [picture for picture in drawn if picture["file"] == "roofline"]
    if roofline:
        lines += ["<h3>Roofline</h3>", _figures(roofline), _roofline_text(roofline[0]["data"])]
    for report in reports:
        own = [picture for picture in drawn if picture["program"] == report["program"]]
        lines.append(_step(report, own, key, ladders.pop(report["program"], "")))
    return "\n".join([*lines, "</section>"])


def _environment(run: dict) -> str:
    shown = [(label, run["environment"].get(key)) for key, label in ENVIRONMENT.items()]
    limits = pictures.roofline(run["reports"])["limits"]
    for key, unit, what in pictures.LIMITS.values():
        shown.append((f"limit of {what}", results.format_rate(limits.get(key), unit)))
    shown += [("date", run["date"][:10]), ("rounds", run.get("rounds"))]
    items = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(str(value))}</dd></div>"
                    for label, value in shown if value not in (None, "", "-", 0))
    return f'<dl class="environment">{items}</dl>'


def _roofline_text(data: dict) -> str:
    left = data["left_off"]
    return (
        "<p>Across: the operations of a version for each byte that it must move; up: the operations "
        "in a second. The roof is what this device reached in the same run. A version needs both its "
        "least bytes and its operations to have a place here. "
        f"{left['unknown']} versions are left off because one of the two is not known or they "
        f"compute nothing, {left['no limit']} because no limit was measured for what they use. Where "
        "a step counts only bytes, its operations are counted from its formula: that moves it along "
        "the roof, and not away from it.</p>")


def _summary(reports: list[dict], key: str) -> str:
    header = [("step and its best version", "place"), *FIGURES[:3], ("of its hardest peer", "number"),
              ("max error", "number"), ("verdict", "text")]
    body = []
    for report in reports:
        row = results.best_row(report)
        failed = results.has_failed(report)
        outcome = results.Outcome(report["step"], report["program"], int(failed), report)
        stage, place, *_ = [*results.place_of(report["step"]), 0]
        best = f"<small>{escape(row['name'])}</small>" if row else ""
        cells = [f'<th scope="row" data-value="{100 * stage + place}">'
                 f'<a href="#{key}-{escape(report["program"])}">{report["step"]} '
                 f'{escape(report["program"])}</a>{best}</th>']
        if row is None:
            cells += [_cell("-", None)] * 5
        else:
            peer = min(row["of_peer"].values(), default=None)
            cells += [*_figures_of(row)[:3], _cell(results.format_peers(row["of_peer"]), peer),
                      _error(row)]
        cells.append(_cell(outcome.verdict, "", "bad" if outcome.code else "words"))
        body.append(cells)
    return _table("Of each step the version nearest to its limit, at its headline problem", "", header, body)


def _step(report: dict, drawn: list[dict], key: str, ladder: str) -> str:
    anchor = f"{key}-{report['program']}"
    lines = [f'<section aria-labelledby="{escape(anchor)}">',
             f'<h3 id="{escape(anchor)}">{report["step"]} {escape(report["program"])}</h3>',
             f'<p>{escape(report["summary"])}</p>']
    if drawn:
        lines.append(_figures(drawn))
    tables = [_versions(table) for table in report["tables"]]
    lines += tables[:OPEN_TABLES]
    if len(tables) > OPEN_TABLES:
        lines.append(f"<details><summary>{len(tables) - OPEN_TABLES} more tables</summary>")
        lines += [*tables[OPEN_TABLES:], "</details>"]
    if report["facts"]:
        body = [[f'<th scope="row">{escape(fact["name"])}</th>',
                 _cell(f'{results.format_value(fact["value"])} {fact["unit"]}', fact["value"])]
                for fact in report["facts"]]
        lines.append(_table(f"Measured by {report['program']}", "",
                            [("measured", "text"), ("value", "number")], body))
    if ladder:
        lines += ["<h4>What each version changes</h4>", ladder]
    return "\n".join([*lines, "</section>"])


def _versions(table: dict) -> str:
    peers = list(dict.fromkeys(peer for row in table["rows"] for peer in row["of_peer"]))
    shares = [("of bound", "number")] if results.has_of_bound(table["rows"]) else []
    header = [("version", "text"), *FIGURES, *((f"of {peer}", "number") for peer in peers),
              ("max error", "number"), *shares, ("verdict", "text")]
    body = []
    for row in table["rows"]:
        lesson = f"<small>{escape(row['lesson'])}</small>" if row["lesson"] else ""
        verdict = row["skipped"] if row["status"] == "skipped" else row["status"]
        verdict += f", {row['note']}" if row["note"] else ""
        kind = ' class="peer"' if row["peer"] else ""
        cells = [f'<th scope="row"{kind}>{escape(row["name"])}{lesson}</th>', *_figures_of(row)]
        cells += [_cell(results.format_share(row["of_peer"].get(peer)), row["of_peer"].get(peer))
                  for peer in peers]
        cells += [_error(row),
                  *(_cell(results.format_of_bound(row), row.get("of_bound")) for _ in shares),
                  _cell(verdict, "", "bad" if row["status"] == "FAIL" else "words")]
        body.append(cells)
    return _table(table["problem"], table["sampled"], header, body)


def _figures_of(row: dict) -> list[str]:
    """The cells of FIGURES: time, share of the limit with a bar behind it, rate and spread."""
    spread = None
    if row["ms"] and row["ms_p10"] and row["ms_p90"]:
        spread = (row["ms_p90"] - row["ms_p10"]) / row["ms"]
    share = row["of_limit"]
    bar = f' style="--share:{min(100 * share, 100):.1f}%"' if share else ""
    name = f" <small>{escape(row['limit'])}</small>" if share else ""
    return [_cell(results.format_ms(row["ms"]), row["ms"]),
            f'<td class="share" data-value="{share or ""}"{bar}>'
            f"{escape(results.format_share(share))}{name}</td>",
            _cell(results.format_rate(row["rate"], row["rate_unit"]), row["rate"]),
            _cell(results.format_share(spread), spread)]


def _error(row: dict) -> str:
    """Of a peer that was not compared there is none; of a version that has none it is NaN."""
    was_taken = not row["peer"] or row["max_error"] is not None
    return _cell(results.format_error(row) if was_taken else "-", row["max_error"])


def _cell(text: str, value: object = "", kind: str = "") -> str:
    """A cell; `value` is what it is sorted by, where that is not its text."""
    data = f' data-value="{"" if value is None else value}"' if value != "" else ""
    return f"<td{data}" + (f' class="{kind}"' if kind else "") + f">{escape(text)}</td>"


def _table(caption: str, note: str, header: list[tuple[str, str]], body: list[list[str]]) -> str:
    """A column in which no row has a figure is left out."""
    shown = [c for c in range(len(header)) if any(not cells[c].endswith(">-</td>") for cells in body)]
    heads = "".join(f'<th scope="col" data-kind="{header[c][1]}">{escape(header[c][0])}</th>' for c in shown)
    rows = "\n".join("<tr>" + "".join(cells[c] for c in shown) + "</tr>" for cells in body)
    note = f" <span>{escape(note)}</span>" if note else ""
    label = escape(f"Table: {caption}")
    return (f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n<table>'
            f"<caption><div>{escape(caption)}{note}</div></caption>\n"
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>")


# ---- Pictures ----------------------------------------------------------------------------------


def _draw(wanted: list[dict], draw: Draw, keep: Path | None, drawn_in: Iterable[Path]) -> list[dict]:
    """The pictures with their "svg", without those that nobody could draw. Those that are kept are all drawn:
    they may be PNG, too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not keep:
            for picture in wanted:
                there = next((one for one in drawn_in if pictures.is_drawn(picture, one)), None)
                if there:
                    shutil.copy(there / f"{picture['file']}.svg", folder)
        jobs = [pictures.job(picture) for picture in wanted if not pictures.is_drawn(picture, folder)]
        if jobs:
            (folder / "jobs.json").write_text(json.dumps(jobs), "utf-8")
            draw(folder / "jobs.json", folder)
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for file in folder.glob("*.[sp][vn]g"):
                shutil.copyfile(file, keep / file.name)
        files = [(picture, folder / f"{picture['file']}.svg") for picture in wanted]
        return [{**picture, "svg": file.read_text(encoding="utf-8")} for picture, file in files if file.is_file()]


def _figures(drawn: list[dict]) -> str:
    return '<div class="figures">' + "\n".join(map(_figure, drawn)) + "</div>"


def _figure(picture: dict) -> str:
    """As a picture of its own, so that the names inside do not meet those of other pictures."""
    svg = picture["svg"]
    width, height = re.search(r'<svg[^>]*width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups()
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return (f'<figure><img src="{source}" width="{round(float(width) * 4 / 3)}" '
            f'height="{round(float(height) * 4 / 3)}" '
            f'alt="{escape(pictures.words_for(picture["data"]))}"></figure>')


# ---- The command -------------------------------------------------------------------------------


def write(files: list[Path], out: Path, draw: Draw, keep: Path | None = None,
          ladders: dict[str, str] | None = None) -> Path:
    """Reads results and writes the page; its name never holds half of it. The pictures are kept in
    `keep`, those of a second device under its number."""
    try:
        runs = [run for file in files for run in bench_file.load(file)]
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None
    if not runs:
        raise CourseError("no results to show: `scripts/course run --save-results` makes them", USAGE)
    beside = [(file if file.is_dir() else file.parent) / "pictures" for file in files]
    text = page(runs, draw, keep, ladders, beside)
    temporary = out.with_name(out.name + ".new")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise CourseError(f"cannot write {out}: {error.strerror}", FAILED) from None
    return out
