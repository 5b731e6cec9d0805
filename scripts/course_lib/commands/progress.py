"""`course progress`: what has been reached; carries it to another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import exercises, learn, steps
from ..errors import OK, USAGE, CourseError
from ..terminal import say
from ..workspace import Progress, Workspace
from .setting_up import ROOT

HELP = "what you have reached; carry it to another machine"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--export", metavar="FILE", type=Path, help="write it, with your files")
    parser.add_argument("--import", metavar="FILE", type=Path, dest="take",
                        help="take over an exported file")


def command(options: argparse.Namespace) -> int:
    workspace = Workspace(ROOT)
    if options.export and options.take:
        raise CourseError("either --export or --import", USAGE)
    if options.export:
        return learn.export_progress(workspace, options.export)
    if options.take:
        return learn.import_progress(workspace, options.take)
    progress = Progress(workspace)
    courses = [step for step in steps.discover(ROOT) if exercises.has_exercises(step)]
    for step in courses:
        if progress.state(step) != "not started":
            say(f"{step.number} {step.name}: {progress.state(step)}")
    solved = sum(progress.state(step) == "passed" for step in courses)
    say(f"{solved} of {len(courses)} steps are solved")
    return OK
