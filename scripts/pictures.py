#!/usr/bin/env python3
"""Draws the pictures of the committed results, which the READMEs and `scripts/course report` show, and the
diagrams of course_lib/diagrams.py.

    .venv/bin/python scripts/pictures.py    what is missing or shows other data, as SVG, into
                                            results/<device>/pictures/ and docs/pictures/
    python3 scripts/pictures.py --check     writes nothing: exit code 1 where one would be drawn

Drawing needs Matplotlib, checking nothing but Python: what a picture shows stands in it as a checksum.
A picture of the same data is left as it is, whichever Matplotlib has drawn it. Where a README or a file of
docs/ shows a diagram, the words for those who do not see it are written behind `alt`.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from pathlib import Path

import tables
from course_lib import diagram_drawing, diagrams, drawing, pictures, results, terminal
from course_lib.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]
SHOWN = re.compile(r'(<img src="(?:\.\./\.\./docs/)?pictures/(\w+)\.svg" width="432" alt=")([^"]*)(">)')


def main(arguments: list[str]) -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="draw nothing; 1 where one is needed")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    try:
        devices = tables.load_results(options.root / "results")
    except ValueError as error:
        print(f"pictures: {terminal.visible(str(error))}", file=sys.stderr)
        return 1
    sets = [(options.root / "results" / device / "pictures", pictures.all_pictures(
        results.in_order(programs.values()))) for device, programs in devices.items()]
    drawn = diagrams.all_diagrams(devices)
    sets.append((options.root / "docs" / "pictures", drawn))
    problems = []
    for folder, wanted in sets:
        if options.check:
            problems += [f"{folder.relative_to(options.root)}: {problem}: run `scripts/pictures.py`"
                         for problem in pictures.check(wanted, folder)]
            continue
        try:
            draw_missing(wanted, folder, options.root)
        except ImportError as error:
            print(f"pictures: {error}: run it with .venv/bin/python, which `scripts/course test` "
                  "makes", file=sys.stderr)
            return 3
    problems += describe(drawn, options.root, options.check)
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def draw_missing(wanted: list[dict], folder: Path, root: Path) -> None:
    """Draws what a folder lacks, and removes what does not belong there."""
    names = {f"{picture['file']}.svg" for picture in wanted}
    for file in folder.glob("*"):
        if file.name not in names:
            file.unlink()
    jobs = [pictures.job(picture) for picture in wanted if not pictures.is_drawn(picture, folder)]
    folder.mkdir(parents=True, exist_ok=True)
    for file in drawing.draw(jobs, folder, ["svg"], diagram_drawing.KINDS):
        print(f"{file.relative_to(root)}: drawn")


def describe(drawn: list[dict], root: Path, check: bool) -> list[str]:
    """Writes what each diagram shows into the files that show it. Returns what is wrong: a diagram that no file
    shows, and where nothing may be written, other words."""
    words = {picture["file"]: html.escape(picture["data"]["words"]) for picture in drawn}
    problems, shown = [], set()
    for file in sorted([*root.glob("stage*/*/README.md"), *root.glob("docs/*.md")]):
        text = file.read_text(encoding="utf-8")
        names = {match[2] for match in SHOWN.finditer(text)} & words.keys()
        said = SHOWN.sub(lambda match: match[1] + words.get(match[2], match[3]) + match[4], text)
        shown |= names
        if said == text:
            continue
        if check:
            problems.append(f"{file.relative_to(root)}: says something else of {', '.join(sorted(names))}: run "
                            "`scripts/pictures.py`")
        else:
            file.write_text(said, encoding="utf-8")
            print(f"{file.relative_to(root)}: written")
    return problems + [f"docs/pictures: no file shows {name}.svg" for name in words if name not in shown]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
