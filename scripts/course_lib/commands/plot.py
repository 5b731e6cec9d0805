"""`course plot`: pictures of what the programs have learnt."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .. import backend, plot, process, results, terminal
from ..build import build_root
from ..errors import FAILED, OK, USAGE, CourseError
from ..terminal import say
from .run import results_of, run_step
from .setting_up import ROOT, add_steps, chosen_steps, python_with, set_up

HELP = "draw what the programs have learnt, as PNG files"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_steps(parser)
    parser.add_argument("--json", metavar="FILE", type=Path, nargs="+", default=[],
                        help="draw these results of earlier runs instead of running steps")


def command(options: argparse.Namespace) -> int:
    """Draws the series of results into build/plots: those of the files that are named, those of the
    steps that are named, which are run for it, or else those of the last runs."""
    if options.json and options.steps:
        raise CourseError("either steps, which are run, or --json with files, which are read", USAGE)
    codes: list[int] = []
    if options.json:
        files = options.json
    elif options.steps:
        chosen = chosen_steps(options.steps)
        build, hardware, _ = set_up(options.backend, options.no_setup)
        build.configure(hardware)
        build.build([step.name for step in chosen])
        options.quick, options.json_dir, options.all = False, None, False
        codes = [run_step(step, build, options).code for step in chosen]
        files = [results_of(step, build.folder) for step in chosen]
        files = [file for file, code in zip(files, codes) if code == OK]
    else:
        choice = backend.choose(backend.detect(), options.backend)
        files = sorted((build_root(ROOT) / choice.backend / "results").glob("*.json"))
    drawable = [file for file in files if _has_pictures(file, is_asked_for=bool(options.json))]
    if drawable:
        _draw(drawable, options.no_setup)
    elif any(codes):
        return FAILED
    elif options.steps:
        raise CourseError("these steps write no series to draw; those that train do", USAGE)
    else:
        raise CourseError("no results to draw are here yet: try `scripts/course plot 5.6`", USAGE)
    return FAILED if any(codes) else OK


def _has_pictures(file: Path, is_asked_for: bool) -> bool:
    try:
        report = results.load(file)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None
    try:
        has_pictures = bool(plot.pictures_of(report))
    except ValueError as error:
        raise CourseError(f"{file}: {error}", USAGE) from None
    if is_asked_for and not has_pictures:
        raise CourseError(f"{file} has no series to draw: {report['program']} writes none", USAGE)
    return has_pictures


def _draw(files: list[Path], no_setup: bool) -> None:
    """Matplotlib is seldom in the Python that runs this: it draws in a process of its own."""
    python = python_with(["matplotlib"], no_setup)
    folder = build_root(ROOT) / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    progress = terminal.Progress("drawing")
    script = ROOT / "scripts" / "course_lib" / "plot.py"
    command = [python, str(script), str(folder), *map(str, files)]
    drawn: list[str] = []
    code, _ = process.logged(
        command, folder.parent / "plot.log",
        lambda line: (drawn.append(line), progress.update(Path(line).name)))
    progress.finish()
    if code != 0:
        raise CourseError(f"the pictures could not be drawn: see {folder.parent / 'plot.log'}", FAILED)
    for file in drawn:
        say(min(file, os.path.relpath(file), key=len))
