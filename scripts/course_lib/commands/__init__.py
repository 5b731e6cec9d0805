"""The commands of scripts/course, from the words on the command line to the exit code.

A command is a module of this package, named as it is: HELP is its line in --help, arguments() declares
what it takes beside --backend, and command() does it and returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from typing import NoReturn, TextIO

from .. import backend, process, terminal
from ..errors import FAILED, INTERRUPTED, MISSING, OK, USAGE, CourseError
from ..terminal import say
from . import run
from .setting_up import ROOT

# In the order of --help.
COMMANDS = ("run", "test", "bench", "plot", "list", "start", "check", "watch", "hint", "solution",
            "diff", "progress", "doctor", "report", "book", "profile")


def main(arguments: list[str], description: str) -> int:
    """Runs one command. Whatever stops it becomes one line on stderr and an exit code."""
    terminal.open_output()
    try:
        code = _run(arguments, description)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        terminal.settle_output()
        return OK
    except OSError as error:
        terminal.settle_output()
        if process.is_disk_full(error):
            terminal.warn("the disk is full: free some space and run the same command again")
            return MISSING
        name = f"{error.filename}: " if error.filename else ""
        terminal.warn(f"{name}{error.strerror or error}")
        return FAILED


def _run(arguments: list[str], description: str) -> int:
    try:
        options = _parse(arguments, description)
    except SystemExit as answered:  # --help, or the line on what is wrong
        return int(answered.code or OK)
    # What scripts/data.py has fetched into the checkout is found from every folder.
    if (ROOT / "data").is_dir():
        os.environ.setdefault("COURSE_DATA", str(ROOT / "data"))
    # A plain `kill` and a terminal that is closed end as tidily as Ctrl-C, and Ctrl-C does in the background
    # of a script too. What nohup has started outlives its terminal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, process.interrupt)
    try:
        return options.command(options)
    except CourseError as error:
        if error.details:
            say(error.details)
        terminal.warn(str(error))
        return error.code
    except KeyboardInterrupt:
        say()
        terminal.warn("interrupted; the same command takes up where this one stopped")
        return INTERRUPTED


class Parser(argparse.ArgumentParser):
    """Says what is wrong with an argument in one line, and does not hide that help could not be printed."""

    def print_help(self, file: TextIO | None = None) -> None:
        terminal.show(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        terminal.warn(f"{message}; see `scripts/{self.prog} --help`")
        self.exit(USAGE)


def _parse(arguments: list[str], description: str) -> argparse.Namespace:
    parser = Parser(
        "course", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __package__)
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP,
                                  epilog=getattr(module, "EPILOG", None))
        sub.set_defaults(command=module.command, passed_on=[])
        sub.add_argument("--backend", choices=("auto", *backend.BACKENDS), default="auto",
                         help="default: what this machine really has")
        module.arguments(sub)
    if "--" not in arguments:
        return parser.parse_args(arguments)
    # What comes behind it is for the program that `run` starts: argparse would take it for steps.
    end = arguments.index("--")
    options = parser.parse_args(arguments[:end])
    options.passed_on = arguments[end + 1:]
    if options.passed_on and options.command is not run.command:
        parser.error("only `course run` passes what is behind -- on to a program")
    return options
