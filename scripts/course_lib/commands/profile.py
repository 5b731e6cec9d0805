"""`course profile`: what the hardware's counters say of one version."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .. import backend, profile
from ..build import Build
from ..errors import USAGE, CourseError
from .setting_up import ROOT, chosen_steps, set_up

HELP = "a version's counters, by ncu or rocprof"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("--version", required=True, metavar="V", help="of the step, e.g. naive")
    parser.add_argument("--size", metavar="N", help="passed on to the step's program")
    parser.add_argument("--build", metavar="DIR", type=Path,
                        help="take the programs of this build as they are")
    parser.add_argument("--no-setup", action="store_true",
                        help="install nothing: all that is needed is here")


def command(options: argparse.Namespace) -> int:
    """Prints the counters of one version of a step."""
    chosen = chosen_steps([options.step])
    if len(chosen) > 1:
        raise CourseError(f"'{options.step}' is {len(chosen)} steps: name one", USAGE)
    tool = profile.find(backend.detect(), options.backend)
    if options.build:
        build = Build(ROOT, options.build.absolute(), tool.backend, dict(os.environ))
    else:
        reason = f"{tool.name} counts there" if options.backend == "auto" else ""
        build, hardware, _ = set_up(tool.backend, options.no_setup, reason)
        build.configure(hardware)
        build.build([chosen[0].name])
    return profile.run(tool, ROOT, chosen[0], build.program(chosen[0]), options.version, options.size)
