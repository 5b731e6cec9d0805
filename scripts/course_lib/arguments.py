"""The command lines of the scripts beside scripts/course."""

from __future__ import annotations

import argparse
from typing import TextIO

from . import terminal
from .errors import FAILED


class Parser(argparse.ArgumentParser):
    """Says, in one line, that --help can't be printed (the disk is full), which argparse keeps to itself."""

    def print_help(self, file: TextIO | None = None) -> None:
        try:
            print(self.format_help(), end="", file=file, flush=True)
        except OSError as error:
            terminal.settle_output()
            self.exit(FAILED, f"{self.prog}: {error.strerror}\n")
