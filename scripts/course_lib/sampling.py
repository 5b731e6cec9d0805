"""Command-line samples: a script does a share of its work, and another run another share."""

from __future__ import annotations

import argparse


def share(text: str) -> tuple[int, int]:
    """For argparse: "2/10" is every tenth, from the second on."""
    first, _, every = text.partition("/")
    if not (first.isdecimal() and every.isdecimal() and 1 <= int(first) <= int(every)):
        raise argparse.ArgumentTypeError(f"'{text}' is not K/N with K from 1 to N")
    return int(first), int(every)
