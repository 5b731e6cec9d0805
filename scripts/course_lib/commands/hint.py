"""`course hint`: an exercise's three hints, one at a time."""

from __future__ import annotations

import argparse

from .. import learn
from ..workspace import Workspace
from .setting_up import ROOT, course_of

HELP = "the next of an exercise's three hints"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("exercise", metavar="EXERCISE", nargs="?",
                        help="its name, its version or its file; default: the first that is not filled in")


def command(options: argparse.Namespace) -> int:
    return learn.hint(course_of(options.step), Workspace(ROOT), options.exercise)
