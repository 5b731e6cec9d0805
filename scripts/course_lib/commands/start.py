"""`course start`: writes a step's exercises into workspace/."""

from __future__ import annotations

import argparse

from .. import learn, races
from ..errors import USAGE, CourseError
from ..workspace import Progress, Workspace
from .setting_up import ROOT, add_steps, one_course

HELP = "write a step's exercises into workspace/, to be filled in"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_steps(parser)
    parser.add_argument("--reset", action="store_true",
                        help="begin anew; what is there is kept under a dated name")


def command(options: argparse.Namespace) -> int:
    if not options.steps:
        following = learn.next_step(ROOT, Progress(Workspace(ROOT)))
        if following is None:
            raise CourseError("every exercise of the course is solved", USAGE)
        options.steps = [following.number]
    course = one_course(options, "course start")
    code = learn.start(course, Workspace(ROOT), options.reset)
    races.begin_in_background(course, ROOT)
    return code
