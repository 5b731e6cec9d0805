"""`course report`: one HTML page with all tables and pictures."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import diffs, process, python_env, report, steps, terminal
from ..build import build_root
from ..errors import FAILED, MISSING, OK, CourseError
from ..terminal import say
from .setting_up import ROOT, python_environment

HELP = "one HTML page with all tables and pictures"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path,
                        help="of `course bench`, of a program's --json, or a folder of such; "
                             "default: what results/ holds")
    parser.add_argument("--out", metavar="FILE.html", type=Path, help="default: build/report.html")
    parser.add_argument("--pictures", metavar="DIR", type=Path,
                        help="also keep the pictures there, as SVG and PNG")


def command(options: argparse.Namespace) -> int:
    """Writes the page, and installs nothing: pictures that are not there yet are drawn where a Python has
    Matplotlib, and left out where none has it."""
    folders = sorted(folder for folder in (ROOT / "results").glob("*") if folder.is_dir())
    out = options.out or build_root(ROOT) / "report.html"
    is_without = False

    def draw(jobs: Path, folder: Path) -> None:
        nonlocal is_without
        python = python_env.find(["matplotlib"], [str(python_environment().python), sys.executable])
        if not python and options.pictures:
            raise CourseError("no Python here has Matplotlib, which draws the pictures: `scripts/course test` "
                              "sets one up", MISSING)
        if not python:
            is_without = True
            return
        progress = terminal.Progress("drawing")
        log = build_root(ROOT) / "report.log"
        formats = ["svg", "png"] if options.pictures else ["svg"]
        code, _ = process.logged([python, str(report.DRAWING), str(jobs), str(folder),
                                  *formats], log, progress.update)
        progress.finish()
        if code != 0:
            raise CourseError(f"the pictures could not be drawn: see {log}", FAILED)

    ladders = {step.name: diffs.ladder(step) for step in steps.discover(ROOT)}
    report.write(options.files or folders, out, draw, options.pictures, ladders)
    if is_without:
        terminal.warn("pictures that are not drawn yet are left out: no Python here has Matplotlib, which "
                      "`scripts/course test` sets up")
    say(f"{min(str(out), os.path.relpath(out), key=len)}: {out.stat().st_size / 1e6:.1f} MB, "
        "open it in a browser")
    return OK
