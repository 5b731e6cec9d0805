"""`course check`: build, correctness, safety and speed of a learner's files."""

from __future__ import annotations

import argparse

from .. import fingerprints, learn
from ..errors import USAGE, CourseError
from ..workspace import Workspace
from .setting_up import ROOT, add_steps, builds_of, one_course

HELP = "build, correctness, safety and speed of your files"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_steps(parser)
    parser.add_argument("--solution", action="store_true", help="check the repository's own instead")


def command(options: argparse.Namespace) -> int:
    """Checks the learner's files of one step."""
    course = one_course(options, "course check")
    workspace = Workspace(ROOT)
    if not options.solution and not workspace.started(course):
        raise CourseError(f"step {course.step.number} is not begun: `scripts/course start "
                          f"{course.step.number}`", USAGE)
    return learn.check_step(course, workspace, builds_of(course, options),
                            fingerprints.load(ROOT), options.solution)
