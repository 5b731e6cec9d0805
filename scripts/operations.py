#!/usr/bin/env python3
"""Writes the table of docs/operations.md: the rows of kOps, as step 8.2's program lists them.

    scripts/operations.py            runs the program that is built, and replaces the table
    scripts/operations.py --check    writes nothing: exit code 1 where the table is another

The program is the one of the build for the CPU backend, or of a GPU's: what the table shows is the same for all.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from course_lib.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs/operations.md")
BLOCK = re.compile(r"^<!-- operations -->\n(.*?)^<!-- end operations -->$", re.MULTILINE | re.DOTALL)


def built(root: Path) -> Path | None:
    """The program of 8.2, if it is built."""
    build = Path(os.environ.get("COURSE_BUILD_DIR") or root / "build")
    programs = (build / backend / "stage8_framework" / "backends" for backend in ("cpu", "hip", "cuda"))
    return next((path for path in programs if path.is_file()), None)


def listed(program: Path) -> str:
    """The table. Raises ValueError with the program's own words where it gives none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operations.md"
        done = subprocess.run([str(program), "--operations", str(file)], capture_output=True, text=True, check=False)
        if done.returncode != 0 or not file.is_file():
            raise ValueError(done.stderr.strip() or f"{program} wrote no table")
        return file.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the table differs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    program, page = built(options.root), options.root / PAGE
    if program is None:
        print("the program of 8.2 is not built: run `scripts/course run 8.2` first", file=sys.stderr)
        return 1
    try:
        table = listed(program)
        text = page.read_text(encoding="utf-8")
        if not BLOCK.search(text):
            raise ValueError(f"{PAGE} has no line <!-- operations --> with an end")
    except (OSError, ValueError) as error:
        print(f"operations: {error}", file=sys.stderr)
        return 1
    new = BLOCK.sub(lambda _: f"<!-- operations -->\n\n{table}\n<!-- end operations -->", text)
    if new == text:
        print(f"{PAGE} agrees with the program")
        return 0
    if options.check:
        print(f"{PAGE} is not what the program lists: run `scripts/operations.py`", file=sys.stderr)
        return 1
    page.write_text(new, encoding="utf-8")
    print(f"{PAGE}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
