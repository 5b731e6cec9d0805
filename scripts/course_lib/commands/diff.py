"""`course diff`: two versions of a step beside each other, in the terminal or as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import diffs, documents, learn, terminal
from ..errors import OK, USAGE, CourseError
from ..terminal import say
from .setting_up import chosen_steps

HELP = "two versions of a step beside each other"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("versions", metavar="VERSION", nargs="*",
                        help="two of the step's version files; none: which are neighbours")
    parser.add_argument("--all", action="store_true", help="also the lines that are the same")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page instead")


def command(options: argparse.Namespace) -> int:
    chosen = chosen_steps([options.step])
    if len(chosen) > 1:
        raise CourseError(f"'{options.step}' is {len(chosen)} steps: name one", USAGE)
    step = chosen[0]
    if not step.versions():
        raise CourseError(f"{step.number} {step.name} has no version files", USAGE)
    if not options.versions:
        if options.html:
            raise CourseError("--html needs two versions", USAGE)
        say(f"{step.number} {step.name}", "bold")
        for one, other in diffs.neighbours(step):
            say(f"  scripts/course diff {step.number} {one} {other}")
        return OK
    if len(options.versions) != 2:
        raise CourseError(f"two versions are compared: `scripts/course diff {step.number}` shows which "
                          "are neighbours", USAGE)
    paths = [diffs.version_file(step, name) for name in options.versions]
    names = (paths[0].stem, paths[1].stem)
    texts = (documents.text_for_user(paths[0]), documents.text_for_user(paths[1]))
    if options.html:
        try:
            options.html.write_text(diffs.page(step, names, texts, options.all), encoding="utf-8")
        except OSError as error:
            raise CourseError(f"cannot write {options.html}: {error.strerror}", USAGE) from None
        say(f"{learn.shown(options.html.absolute())}: open it in a browser")
        return OK
    seen = (terminal.visible_lines(texts[0]), terminal.visible_lines(texts[1]))
    for line in diffs.terminal_lines(names, seen, terminal.width(), options.all):
        terminal.show(line)
    return OK
