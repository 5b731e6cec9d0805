#!/usr/bin/env python3
"""Draws the pictures of the committed results, which the READMEs and `scripts/course report` show.

    .venv/bin/python scripts/pictures.py    what is missing or shows other data, into
                                            results/<device>/pictures/, as SVG
    python3 scripts/pictures.py --check     writes nothing: exit code 1 where one would be drawn

Drawing needs Matplotlib, checking nothing but Python: what a picture shows stands in it as a checksum.
A picture of the same data is left as it is, whichever Matplotlib has drawn it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tables
from course_lib import drawing, pictures, results, terminal
from course_lib.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]


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
    failed = False
    for device, programs in devices.items():
        folder = options.root / "results" / device / "pictures"
        wanted = pictures.all_pictures(results.in_order(programs.values()))
        if options.check:
            for problem in pictures.check(wanted, folder):
                print(f"{folder.relative_to(options.root)}: {problem}: run `scripts/pictures.py`",
                      file=sys.stderr)
                failed = True
            continue
        names = {f"{picture['file']}.svg" for picture in wanted}
        for file in folder.glob("*"):
            if file.name not in names:
                file.unlink()
        jobs = [pictures.job(picture) for picture in wanted
                if not pictures.is_drawn(picture, folder)]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            files = drawing.draw(jobs, folder, ["svg"])
        except ImportError as error:
            print(f"pictures: {error}: run it with .venv/bin/python, which `scripts/course test` "
                  "makes", file=sys.stderr)
            return 3
        for file in files:
            print(f"{file.relative_to(options.root)}: drawn")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
