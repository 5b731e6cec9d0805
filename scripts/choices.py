#!/usr/bin/env python3
"""Writes into the sources which version was the fastest at each measured shape.

    // choices: results/h200/softmax.json: online row_in_registers
    // NVIDIA H200, 2026-11-22
    {4096, 65536, Choice::row_in_registers},
    // end choices

The first line names a committed result and the versions to choose from. What stands between it and
`// end choices` is replaced: the device and the date of the result, and a row {columns, rows, choice}
for each table whose problem begins with its shape, as `65536x4096 float32` does, fewest columns first.
A step gets such a table by having the two lines in a header or a .cpp of its own.

With --check nothing is written: exit code 1 says that a table differs from the results, 2 that a
table cannot be made.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from course_lib import results
from course_lib.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^( *)// choices: (\S+\.json): ([\w ]+)\n(.*?)^ *// end choices$",
                   re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^ *// choices: ", re.MULTILINE)
SHAPE = re.compile(r"(\d+)x(\d+)\b")


def measured(report: dict, names: list[str]) -> list[str]:
    """The lines of a table. Raises ValueError where the report has not measured every version."""
    found: dict[int, tuple[int, str]] = {}
    for table in report["tables"]:
        shape = SHAPE.match(table["problem"])
        if not shape:
            continue
        rows, cols = int(shape[1]), int(shape[2])
        times = {row["name"]: row["ms"] for row in table["rows"]
                 if not row["peer"] and row["status"] == "ok" and row["name"] in names}
        missing = [name for name in names if name not in times]
        if missing:
            raise ValueError(f"{table['problem']}: no time of {', '.join(missing)}")
        if cols in found:
            raise ValueError(f"{table['problem']}: {cols} columns were measured twice")
        found[cols] = (rows, min(names, key=times.__getitem__))
    if not found:
        raise ValueError("no table whose problem begins with its shape")
    return [f"// {report['device']['name']}, {report['date'][:10]}",
            *(f"{{{cols}, {rows}, Choice::{name}}}," for cols, (rows, name) in sorted(found.items()))]


def filled(text: str, root: Path) -> str:
    """A source with its tables made anew. Raises ValueError for one that cannot be made."""
    def block(match: re.Match) -> str:
        indent, path, names = match[1], match[2], match[3].split()
        try:
            lines = measured(results.load(root / path), names)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        inside = "".join(f"{indent}{line}\n" for line in lines)
        return f"{indent}// choices: {path}: {match[3]}\n{inside}{indent}// end choices"

    if len(OPENING.findall(text)) != len(BLOCK.findall(text)):
        raise ValueError("a `// choices:` line without its result, versions or `// end choices`")
    return BLOCK.sub(block, text)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 for a stale table")
    check = parser.parse_args(arguments).check
    stale = False
    for path in sorted(path for ending in ("h", "cpp") for path in root.glob(f"stage*/*/*.{ending}")):
        text = path.read_text(encoding="utf-8")
        try:
            new = filled(text, root)
        except ValueError as error:
            print(f"choices: {path.relative_to(root)}: {error}", file=sys.stderr)
            return 2
        if new == text:
            continue
        stale = True
        if check:
            print(f"choices: {path.relative_to(root)} differs from the results: run scripts/choices.py",
                  file=sys.stderr)
        else:
            path.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
