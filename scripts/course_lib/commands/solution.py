"""`course solution`: the learner's files beside the solution."""

from __future__ import annotations

import argparse

from .. import learn
from ..workspace import Workspace
from .setting_up import ROOT, course_of

HELP = "your file beside the solution"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("--give-up", action="store_true", help="also where it is not solved yet")


def command(options: argparse.Namespace) -> int:
    return learn.solution(course_of(options.step), Workspace(ROOT), options.give_up)
