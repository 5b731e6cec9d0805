"""What is printed: colours where they are wanted, tables that fit, one line of progress.

Colours and the moving progress line need a terminal; NO_COLOR (no-color.org) switches the colours
off. Everywhere else the output is plain lines, complete and in order.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_color() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


def width() -> int:
    """Columns of the terminal; practically unlimited where the output goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if is_terminal() else 10_000


# What steers a terminal instead of being seen on it, or cannot be written: control characters, those of no
# width, changes of direction, other ends of lines, halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_UNSEEN_IN_LINES = re.compile(_UNSEEN.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def _escape(match: re.Match) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def visible(text: str) -> str:
    """The text in one line, with everything escaped that a terminal would obey: \\x1b, \\n."""
    return _UNSEEN.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same for a text of several lines, which may have tabs."""
    return _UNSEEN_IN_LINES.sub(_escape, text)


def paint(text: str, style: str) -> str:
    return f"\033[{STYLES[style]}m{text}\033[0m" if style and has_color() else text


def say(text: str = "", style: str = "") -> None:
    show(paint(visible_lines(text), style))


def show(line: str) -> None:
    """Prints what is painted already."""
    print(line, flush=True)


def warn(text: str) -> None:
    """One line on stderr."""
    sys.stdout.flush()
    print(f"course: {visible(text)}", file=sys.stderr, flush=True)


def open_output() -> None:
    """A stream that is closed (`>&-`) takes all and keeps nothing; a character that the terminal's encoding
    lacks is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    with contextlib.suppress(AttributeError):  # a stand-in of a test's
        sys.stdout.reconfigure(errors="backslashreplace")


def settle_output() -> None:
    """Hands on what was printed. What can't be (the disk is full, the reader has gone) is dropped, so that
    Python itself does not complain of it at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def shorten(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False  # numbers stand to the right
    flexible: bool = False  # may be cut with "…" where the terminal is narrow
    optional: bool = False  # may be left out where that is not enough


def format_table(columns: list[Column], rows: list[list[str]], available: int) -> list[str]:
    """Lines of a table that is at most `available` wide if cutting the flexible columns to 12
    characters and leaving out the optional ones (last one first) can do it. The first line is the
    header."""
    shown = list(range(len(columns)))
    cells = [[visible(text) for text in row] for row in ([column.title for column in columns], *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(columns))]

    def excess() -> int:
        return sum(widths[c] for c in shown) + 2 * (len(shown) - 1) - available

    def shrink() -> None:
        for c in shown:
            if columns[c].flexible and excess() > 0:
                smallest = min(widths[c], max(12, len(columns[c].title)))
                widths[c] = max(smallest, widths[c] - excess())

    shrink()
    for c in reversed(range(len(columns))):
        if excess() > 0 and columns[c].optional:
            shown.remove(c)
    lines = []
    for row in cells:
        texts = [shorten(row[c], widths[c]) for c in shown]
        padded = [
            text.rjust(widths[c]) if columns[c].right else text.ljust(widths[c])
            for c, text in zip(shown, texts)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


class Patience:
    """Says every few seconds that what prints nothing meanwhile still goes on."""

    INTERVAL = 5.0  # seconds

    def __init__(self, what: str):
        self.what = what
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def __enter__(self) -> Patience:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _wait(self) -> None:
        start = time.monotonic()
        while not self._over.wait(self.INTERVAL):
            say(f"{self.what}, {time.monotonic() - start:.0f} s", "dim")


class Progress:
    """One moving line on a terminal; elsewhere a plain line every few seconds."""

    PLAIN_INTERVAL = 5.0  # seconds

    def __init__(self, title: str):
        self.title = title
        self.start = self.last_plain = time.monotonic()

    def update(self, text: str) -> None:
        if is_terminal():
            print("\r\033[K" + shorten(visible(f"{self.title}  {text}"), width() - 1), end="", flush=True)
        elif time.monotonic() - self.last_plain >= self.PLAIN_INTERVAL:
            self.last_plain = time.monotonic()
            say(f"{self.title}  {text}")

    def finish(self, text: str = "") -> None:
        """Clears the moving line; says `text` and how long it all took."""
        if is_terminal():
            print("\r\033[K", end="", flush=True)
        if text:
            say(f"{text}  ({time.monotonic() - self.start:.1f} s)")
