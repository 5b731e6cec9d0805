#!/usr/bin/env python3
"""Writes the tables of the READMEs and of docs/ from the committed results: no figure is typed by hand.

    <!-- table: dot -->      the versions of dot, from results/<device>/dot.json
    <!-- table: summary -->  what `scripts/course run` prints last, from all results of each device
    <!-- table: mutants -->  what share of the mutants a check refuses, from results/mutants.json
    <!-- table: onnx -->     which of ONNX's node vectors pass, from results/onnx.json
    <!-- end table -->

What other libraries take for the same stands in the same files: `scripts/course bench --save
results/<device>` measures it beside the programs.

What stands between such a line and the next `<!-- end table -->` is replaced. With --check nothing
is written: exit code 1 says that a table differs from the results or that results are missing.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import sys
from pathlib import Path

from course_lib import bench_file, documents, pictures, results
from course_lib.arguments import Parser
from course_lib.documents import quoted, require
from course_lib.terminal import visible

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^<!-- table: (\S+) -->\n(.*?)^<!-- end table -->$", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^<!-- table: \S+ -->$", re.MULTILINE)
COUNTS = ("mutants", "uncompiled", "equivalent", "refused")  # of the mutants of a step
STEP = re.compile(r"(\d+)\.(\d+) (\w+)")
PAGE_WIDTH = 110  # what a README shows of a fenced block without a scroll bar

Reports = dict[str, dict[str, dict]]  # device folder → program → report


def load_results(folder: Path) -> Reports:
    """Every results/<device>/<program>.json, the device with the most programs first, among equals the one that
    was measured last. Raises ValueError for one that cannot be shown."""
    reports: Reports = {}
    for path in sorted(folder.glob("*/*.json")):
        report = results.load(path)
        if report["quick"]:
            raise ValueError(f"{path}: made with --quick, which gives no times worth showing")
        if report["program"] != path.stem:
            raise ValueError(f"{path}: holds the results of {report['program']}")
        reports.setdefault(path.parent.name, {})[path.stem] = report
    def rank(device: str) -> tuple[int, str]:
        return len(reports[device]), max(report["date"] for report in reports[device].values())
    return {device: reports[device] for device in sorted(reports, key=rank, reverse=True)}


def markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(visible(cell).replace("|", "\\|") for cell in cells) + " |"


def version_table(table: dict) -> list[str]:
    """One table of a program: its versions and peers with time, rate, shares and error."""
    peers = sorted({peer for row in table["rows"] for peer in row["of_peer"]})
    shares = ["of bound"] if results.has_of_bound(table["rows"]) else []
    header = ["version", "time", "rate", "of limit", *(f"of {peer}" for peer in peers),
              "max error", *shares, "verdict"]
    lines = [
        f"**{visible(table['problem'])}**" + (f", {visible(table['sampled'])}" if table["sampled"] else ""),
        "",
        markdown_row(header),
        "|:--|" + "--:|" * (len(header) - 2) + ":--|",
    ]
    for row in table["rows"]:
        limit = results.format_share(row["of_limit"])
        verdict = row["skipped"] if row["status"] == "skipped" else row["status"]
        cells = [
            row["name"],
            results.format_ms(row["ms"]),
            results.format_rate(row["rate"], row["rate_unit"]),
            f"{limit} ({row['limit']})" if row["of_limit"] else limit,
            *(results.format_share(row["of_peer"].get(peer)) for peer in peers),
            results.format_error(row),
            *(results.format_of_bound(row) for _ in shares),
            verdict + (f", {row['note']}" if row["note"] else ""),
        ]
        lines.append(markdown_row(cells))
    return [*lines, ""]


def fact_table(facts: list[dict]) -> list[str]:
    lines = [markdown_row(["measured", "value"]), "|:--|--:|"]
    for fact in facts:
        value = results.format_value(fact["value"])
        lines.append(markdown_row([fact["name"], f"{value} {fact['unit']}".strip()]))
    return [*lines, ""]


def origin(report: dict) -> str:
    """The line above a device's tables: where, with what and when they were measured, and the limits."""
    limits = report["limits"]
    shown = [
        f"{results.format_rate(limits[key], unit)} {name}"
        for key, unit, name in (
            ("copy_bytes_per_s", "B/s", "copy"),
            ("read_bytes_per_s", "B/s", "read"),
            ("fma_operations_per_s", "operations/s", "fp32"),
        )
        if limits[key]
    ]
    line = visible(results.device_line(report))
    beside = bench_file.beside_of(report.get("environment", {}))
    if beside:
        line += f"; beside {beside}"
    return f"*{line}" + (f"; measured limits: {', '.join(shown)}" if shown else "") + "*"


def program_block(program: str, reports: Reports, root: str) -> str:
    """The tables of one program, those of the first device open and those of the others to be unfolded; `root`
    is the repository's as a document's links name it. Raises ValueError where there are none."""
    lines = []
    for device, programs in reports.items():
        report = programs.get(program)
        if report is None:
            continue
        part = [origin(report), ""]
        for table in report["tables"]:
            part += version_table(table)
        if report["facts"]:
            part += fact_table(report["facts"])
        part += picture_lines(pictures.readme_pictures([report]), root, device, program)
        lines += folded(results.device_line(report), part) if lines else part
    if not lines:
        raise ValueError(
            f"no results/<device>/{program}.json: make it with "
            f"`scripts/course bench {program} --save results/<device>`"
        )
    return "\n".join(lines).rstrip() + "\n"


def folded(title: str, lines: list[str]) -> list[str]:
    """Lines of Markdown that are shown when the title is clicked. The book has tabs instead."""
    return [f"<details><summary>{html.escape(visible(title))}</summary>", "", *lines, "</details>", ""]


def picture_lines(shown: list[dict], root: str, device: str, program: str) -> list[str]:
    """The program's pictures, or those of all programs together; scripts/pictures.py draws them."""
    lines = [
        f'<img src="{root}/results/{device}/pictures/{picture["file"]}.svg" width="432" '
        f'alt="{html.escape(pictures.words_for(picture["data"]))}">'
        for picture in shown
        if picture["program"] == program
    ]
    return [*lines, ""] if lines else []


def summary_block(reports: Reports, root: str) -> str:
    """The last table of `scripts/course run` as it looks in a terminal, of the first device, and folded of the
    others."""
    lines = []
    for device, programs in reports.items():
        ordered = results.in_order(programs.values())
        outcomes = [
            results.Outcome(report["step"], report["program"], int(results.has_failed(report)), report)
            for report in ordered
        ]
        newest = max(ordered, key=lambda report: report["date"])
        measured_on = results.device_line(newest)
        part = [f"*{visible(measured_on)}*", "", "```text", *results.summary_table(outcomes, PAGE_WIDTH), "```", ""]
        part += picture_lines(pictures.readme_pictures(ordered), root, device, "")
        lines += folded(measured_on, part) if lines else part
    if not lines:
        raise ValueError("no results/<device>/*.json: `scripts/course bench --save` makes them")
    return "\n".join(lines).rstrip() + "\n"


def validate_mutants(record: object) -> None:
    """Raises ValueError where this is not what scripts/mutants.py --summary writes."""
    require(record, {"steps": dict}, "the summary")
    for step, counts in record["steps"].items():
        require(counts, {"date": str} | dict.fromkeys(COUNTS, int), f"step {quoted(step)}")


def mutants_block(path: Path) -> str:
    """What scripts/mutants.py --summary has written, in a sentence."""
    if not path.is_file():
        raise ValueError("no results/mutants.json: `scripts/mutants.py --summary` makes it")
    record = documents.load(path, validate_mutants)
    total = {name: sum(counts[name] for counts in record["steps"].values())
             for name in COUNTS}
    judged = total["mutants"] - total["uncompiled"] - total["equivalent"]
    if judged <= 0:
        raise ValueError(f"{path}: no mutant was judged")
    dates = sorted({counts["date"] for counts in record["steps"].values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (f"**`check` refuses {total['refused']} of {judged} mutants ({total['refused'] / judged:.1%})**, "
            f"kernels of {len(record['steps'])} steps\nwith one mistake each "
            f"({when}; {total['uncompiled']} more do not compile, {total['equivalent']} compute the "
            "same as the original).\n")


def validate_onnx(record: object) -> None:
    """Raises ValueError where this is not what tests/python/onnx_vectors.py --write writes."""
    def cases(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)

    require(record, {"onnx": str, "verdicts": dict, "missing": dict, "graphs": cases}, "the record")
    require(record["missing"], dict.fromkeys(record["missing"], cases), "missing")
    require(record["verdicts"], dict.fromkeys(record["verdicts"], dict), "verdicts")
    for operator, steps in record["verdicts"].items():
        require(steps, dict.fromkeys(steps, dict), quoted(operator))
        for step, verdicts in steps.items():
            require(verdicts, dict.fromkeys(verdicts, cases), f"{quoted(operator)}, {quoted(step)}")
            if not STEP.fullmatch(step):
                raise ValueError(f"{quoted(operator)}: {quoted(step)} is no step, such as '1.1 vector_add'")


def counted(cases: dict[str, list[str]]) -> str:
    return ", ".join(f"{visible(name)} ({len(cases[name])})" for name in sorted(cases, key=str.lower))


def onnx_block(folder: Path) -> str:
    """What tests/python/onnx_vectors.py --write has written: a row for each of ONNX's operators that a step
    has, and a sentence on the others."""
    path = folder / "onnx.json"
    if not path.is_file():
        raise ValueError("no results/onnx.json: `tests/python/onnx_vectors.py --write` makes it")
    record = documents.load(path, validate_onnx)
    rows = sorted((step, operator, verdicts) for operator, steps in record["verdicts"].items()
                  for step, verdicts in steps.items())
    passed = {name for _, _, verdicts in rows for name in verdicts.get("passed", [])}
    judged = {name for _, _, verdicts in rows for names in verdicts.values() for name in names}
    missing: dict[str, list[str]] = {}
    for operator, names in record["missing"].items():
        missing.setdefault(operator.rsplit(" ", 1)[0], []).extend(names)
    others = sum(map(len, missing.values()))
    total = len(judged) + others + len(record["graphs"])
    lines = [f"**ONNX {visible(record['onnx'])} brings {total} vectors of nodes. {len(judged)} are of operators "
             f"that the course has, and {len(passed)} of these pass.**", "",
             markdown_row(["step", "ONNX's operator and version", "vectors", "pass", "not supported"]),
             "|:--|:--|--:|--:|:--|"]
    for step, operator, verdicts in rows:
        stage, place, name = STEP.fullmatch(step).groups()
        found = sorted(folder.parent.glob(f"stage{stage}_*/{int(place):02}_{name}"))
        lines.append(markdown_row([
            f"[{step}](../{found[0].relative_to(folder.parent)}/)" if found else step, operator,
            str(sum(map(len, verdicts.values()))), str(len(verdicts.get("passed", []))),
            counted({reason: names for reason, names in verdicts.items() if reason != "passed"})]))
    lines += ["", f"Another {others} vectors are of {len(missing)} operators that the course does not have: "
              f"{counted(missing)}.", "",
              f"The remaining {len(record['graphs'])} are graphs of several operators: ONNX's functions, "
              "written out in simpler operators."]
    return "\n".join(lines) + "\n"


def rewrite(text: str, reports: Reports, folder: Path, root: str) -> tuple[str, list[str]]:
    """The document with its tables filled in, and what could not be filled in (left as it was). `root` is the
    repository's root as the document's links name it."""
    problems = []
    if len(OPENING.findall(text)) != len(BLOCK.findall(text)):
        problems.append("a `<!-- table: ... -->` has no `<!-- end table -->`")
        return text, problems

    def fill(match: re.Match) -> str:
        name = match[1]
        try:
            block = (summary_block(reports, root) if name == "summary" else
                     mutants_block(folder / "mutants.json") if name == "mutants" else
                     onnx_block(folder) if name == "onnx" else program_block(name, reports, root))
        except ValueError as error:
            problems.append(str(error))
            return match[0]
        return f"<!-- table: {name} -->\n\n{block}\n<!-- end table -->"

    return BLOCK.sub(fill, text), problems


def first_difference(old: str, new: str) -> str:
    pairs = zip([*old.splitlines(), ""], [*new.splitlines(), ""])
    for number, (before, after) in enumerate(pairs, 1):
        if before != after:
            return f"line {number} reads '{before}' and should read '{after}'"
    return "the ends differ"


def main(arguments: list[str]) -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 on a difference")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    try:
        reports = load_results(options.root / "results")
    except ValueError as error:
        print(f"tables: {visible(str(error))}", file=sys.stderr)
        return 1
    failed = False
    for path in [options.root / "README.md", *sorted(options.root.glob("stage*/*/README.md")),
                 *sorted(options.root.glob("docs/*.md"))]:
        if not path.is_file():
            continue
        name = path.relative_to(options.root)
        try:
            old = documents.read_text(path)
        except ValueError as error:
            print(f"tables: {error}", file=sys.stderr)
            failed = True
            continue
        new, problems = rewrite(old, reports, options.root / "results", os.path.relpath(options.root, path.parent))
        if options.check and new != old:
            problems.append(f"{first_difference(old, new)}: run `scripts/tables.py`")
        elif new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{name}: tables written")
        for problem in problems:
            print(f"{name}: {problem}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
