"""`course bench`: steps beside PyTorch, JAX and the vendor's libraries; compares and merges results."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import bench, terminal
from ..build import Build
from ..errors import USAGE, CourseError
from .setting_up import ROOT, add_steps, chosen_steps, python_environment, python_with, set_up

RESULTS = ROOT / "results"
MOST_MINUTES = 60 * 24 * 7
HELP = "every step beside PyTorch, JAX and the vendor's libraries"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_steps(parser)
    parser.add_argument("--peers", metavar="LIST",
                        help=f"some of {','.join(bench.PEERS)}, or none; default: torch, jax and the "
                             "vendor's on a GPU, numpy and loop on the CPU backend")
    parser.add_argument("--rounds", type=int, metavar="N", help="default 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that all of it works")
    parser.add_argument("--json", metavar="FILE", type=Path,
                        help="the results, or the merged ones (default: bench.json in the build folder)")
    parser.add_argument("--save", metavar="FOLDER", type=Path,
                        help="also keep a file per program, as results/ does")
    parser.add_argument("--minutes", type=float, default=0, metavar="M",
                        help="begin no round of a step that would not end within this time")
    parser.add_argument("--peer-minutes", type=float, default=15, metavar="M",
                        help="end a peer that works on one step for longer (default 15)")
    parser.add_argument("--build", metavar="FOLDER", type=Path,
                        help="run the programs of this build as they are: nothing is set up or built")
    parser.add_argument("--python", metavar="PROGRAM", default=os.environ.get("COURSE_PYTHON"),
                        help="the Python that has PyTorch, JAX or NumPy (default: $COURSE_PYTHON, or .venv's "
                             "or the one that runs this)")
    parser.add_argument("--compare", metavar="FILE", type=Path, nargs="*",
                        help="measure, and say in the last line whether anything is slower than in the committed "
                             "results of the same device (exit code 1). A FILE is held against them, and two FILEs "
                             "against each other: these run nothing")
    parser.add_argument("--merge", metavar="FILE", type=Path, nargs="+",
                        help="the results of several devices in one table; runs nothing")


def command(options: argparse.Namespace) -> int:
    """Measures the chosen steps beside their peers, or compares or merges what was measured."""
    is_compared = options.compare is not None
    if options.compare or options.merge:
        if options.steps or is_compared and (options.merge or options.save or options.json):
            raise CourseError("--compare FILE and --merge read files: one of them, without steps (which stand "
                              "before --compare)", USAGE)
        if is_compared and len(options.compare) > 2:
            raise CourseError("--compare takes two files at most", USAGE)
        if is_compared:
            return bench.compare_command(options.compare, RESULTS)
        return bench.merge_command(options.merge, options.json, options.save)
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else 3
    if rounds < 1 or not options.minutes >= 0 or not 0 < options.peer_minutes <= MOST_MINUTES:
        raise CourseError("--rounds is at least 1, --minutes is not negative, and --peer-minutes is above 0 and at "
                          f"most {MOST_MINUTES}", USAGE)
    if options.save and options.quick:
        raise CourseError("--save keeps results, --quick makes none worth keeping", USAGE)
    if is_compared and options.quick:
        raise CourseError("--compare is for times, and --quick makes none that mean anything", USAGE)
    if options.json and not options.json.absolute().parent.is_dir():
        raise CourseError(f"--json: there is no folder {options.json.parent}", USAGE)
    chosen = chosen_steps(options.steps)
    if options.build:
        folder = options.build.absolute()
        if not folder.is_dir():
            raise CourseError(f"--build: there is no folder {options.build}", USAGE)
        build = Build(ROOT, folder, bench.backend_of(folder), dict(os.environ))
        wanted = bench.parse_peers(options.peers, build.backend)
        python = python_environment()
    else:
        bench.parse_peers(options.peers, "cpu")  # complains before anything is built
        build, hardware, python = set_up(options.backend, options.no_setup)
        wanted = bench.parse_peers(options.peers, build.backend)
        if "numpy" in wanted and not options.python and not options.no_setup:
            try:
                python_with(["numpy"], no_setup=False)
            except CourseError as error:
                terminal.warn(str(error))
        build.configure(hardware)
        build.build([step.name for step in chosen])
    candidates = [options.python] if options.python else [str(python.python), sys.executable]
    made = build.folder / "bench"
    plan = bench.Plan(
        steps=chosen, programs={step.number: build.program(step) for step in chosen}, peers=wanted,
        python=bench.find_interpreters(wanted, candidates), scripts=ROOT / "scripts", folder=made,
        file=options.json or made / "bench.json", rounds=rounds, quick=options.quick,
        minutes=options.minutes, peer_minutes=options.peer_minutes)
    return bench.run_command(plan, build.environment, options.save, RESULTS if is_compared else None)
