"""Two versions of a step beside each other: in the terminal, and as HTML.

A ladder is read from neighbour to neighbour: what a version changes is its lesson. Runs of lines that are
the same are folded but for a few at their ends.
"""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path

from . import terminal
from .errors import USAGE, CourseError
from .steps import VERSION_SUFFIXES, Step

CONTEXT = 3  # lines that stay of a folded run at each end
ALIKE = 0.6  # from here on two lines are one that has changed, and its words are compared
AHEAD = 6  # lines in which the other side of a changed line is looked for
GAP = "   "
LEAST_COLUMN = 24  # characters of a side, however narrow the terminal

Part = tuple[str, bool]  # a piece of a line, and whether the other side has another there


@dataclass(frozen=True)
class Row:
    """A line of both sides; no number where a side has none."""

    left: tuple[Part, ...]
    right: tuple[Part, ...]
    left_number: int | None
    right_number: int | None

    @property
    def same(self) -> bool:
        return not any(changed for _, changed in (*self.left, *self.right)) \
            and None not in (self.left_number, self.right_number)


@dataclass(frozen=True)
class Fold:
    """Lines that are the same on both sides."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return f"{len(self.rows)} unchanged lines"


def version_file(step: Step, name: str) -> Path:
    """The file of a version. Raises CourseError(USAGE) where the step has none of that name."""
    names = step.versions()
    files = step.version_files()
    plain = name.rpartition("/")[2]
    for suffix in VERSION_SUFFIXES:
        plain = plain.removesuffix(suffix)
    if plain in files:
        return files[plain]
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"
    raise CourseError(f"{step.number} {step.name} has no version file '{name}': {hint}", USAGE)


def neighbours(step: Step) -> list[tuple[str, str]]:
    """Each version with the next one."""
    names = step.versions()
    return list(zip(names, names[1:]))


# ---- Comparing ---------------------------------------------------------------------------------


def rows_of(left: str, right: str) -> list[Row]:
    """Both texts, line by line beside each other."""
    a, b = left.splitlines(), right.splitlines()
    rows = []
    for kind, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            rows += [Row(((a[i], False),), ((b[b0 + i - a0], False),), i + 1, b0 + i - a0 + 1)
                     for i in range(a0, a1)]
            continue
        for i, j, alike in _paired(a[a0:a1], b[b0:b1]):
            one = None if i is None else a[a0 + i]
            other = None if j is None else b[b0 + j]
            parts = _parts(one, other) if alike else (_parts(one, None)[0], _parts(None, other)[1])
            rows.append(Row(*parts, None if i is None else a0 + i + 1, None if j is None else b0 + j + 1))
    return rows


def _paired(a: list[str], b: list[str]) -> Iterator[tuple[int | None, int | None, bool]]:
    """The lines of a changed run beside each other, in order, and whether they are alike."""
    def ratio(i: int, j: int) -> float:
        return difflib.SequenceMatcher(None, a[i].strip(), b[j].strip(), autojunk=False).ratio()

    def until(i: int, j: int) -> Iterator[tuple[int | None, int | None, bool]]:
        for one, other in zip_longest(range(left, i), range(right, j)):
            yield one, other, False

    left = right = 0  # the first lines that have no place yet
    for i in range(len(a)):
        best = max(((ratio(i, k), -k) for k in range(right, min(right + AHEAD, len(b)))), default=(0, 0))
        if best[0] >= ALIKE:
            yield from until(i, -best[1])
            yield i, -best[1], True
            left, right = i + 1, 1 - best[1]
    yield from until(len(a), len(b))


def _parts(one: str | None, other: str | None) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Both lines in pieces: what they share, and what only one has."""
    if one is None or other is None:
        return tuple((((text, True),) if text is not None else ()) for text in (one, other))
    a, b = (re.findall(r"\w+|\s+|.", text) for text in (one, other))
    left: list[Part] = []
    right: list[Part] = []
    for kind, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for parts, words in ((left, a[a0:a1]), (right, b[b0:b1])):
            if words:
                parts.append(("".join(words), kind != "equal"))
    return tuple(left), tuple(right)


def folded(rows: list[Row], whole: bool = False) -> list[Row | Fold]:
    """The rows, with long runs that are the same folded unless all are wanted."""
    found: list[Row | Fold] = []
    for same, group in groupby(rows, key=lambda row: row.same):
        run = list(group)
        first = 0 if not found else CONTEXT  # nothing leads up to the first line
        last = 0 if run[-1] is rows[-1] else CONTEXT
        if whole or not same or len(run) <= first + last + 1:
            found += run
        else:
            found += [*run[:first], Fold(tuple(run[first:len(run) - last])), *run[len(run) - last:]]
    return found


# ---- In the terminal ---------------------------------------------------------------------------


def terminal_lines(names: tuple[str, str], texts: tuple[str, str], width: int,
                   whole: bool = False) -> Iterator[str]:
    """Both texts beside each other, at most `width` characters wide; long lines go on below."""
    rows = rows_of(*texts)
    digits = len(str(max((text.count("\n") + 1 for text in texts), default=1)))
    longest = max((len(line) for text in texts for line in text.splitlines()), default=0)
    column = max(LEAST_COLUMN, min(longest, (width - len(GAP) - 2 * (digits + 1)) // 2))
    side = digits + 1 + column
    yield terminal.paint(f"{names[0]:<{side}}{GAP}{names[1]}".rstrip(), "bold")
    for row in folded(rows, whole):
        if isinstance(row, Fold):
            yield terminal.paint(f"{'':<{digits}} ... {row}", "dim")
            continue
        left, right = _wrapped(row.left, column), _wrapped(row.right, column)
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue=())):
            first = _numbered(row.left_number if number == 0 else None, digits)
            second = _numbered(row.right_number if number == 0 else None, digits)
            filled = " " * (column - sum(len(text) for text, _ in one))
            yield (f"{first} {_painted(one, 'red')}{filled}{GAP}{second} "
                   f"{_painted(other, 'green')}").rstrip()


def _numbered(number: int | None, digits: int) -> str:
    return terminal.paint(f"{number or '':>{digits}}", "dim")


def _painted(parts: tuple[Part, ...], style: str) -> str:
    return "".join(terminal.paint(text, style) if changed else text for text, changed in parts)


def _wrapped(parts: tuple[Part, ...], width: int) -> list[tuple[Part, ...]]:
    """A line in lines of at most `width` characters, cut behind a space where there is one late enough."""
    letters = [(letter, changed) for text, changed in parts for letter in text]
    lines = []
    while len(letters) > width:
        cut = next((c for c in range(width, width // 2, -1) if letters[c - 1][0] == " "), width)
        lines.append(letters[:cut])
        letters = letters[cut:]
    lines.append(letters)
    return [tuple(("".join(letter for letter, _ in run), changed)
                  for changed, group in groupby(line, key=lambda pair: pair[1]) for run in [list(group)])
            for line in lines]


# ---- As HTML -----------------------------------------------------------------------------------

# Takes its colours from the page: --paper, --ink, --dim, --line, --raised.
STYLE = """
.diff { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; margin: .5rem 0;
  max-width: 100%; }
.diff table { table-layout: fixed; width: 100%; min-width: 44rem; border-collapse: collapse;
  font: .8rem/1.4 ui-monospace, "DejaVu Sans Mono", monospace; }
.diff col.number { width: 2.75rem; }
.diff th, .diff td { border: 0; padding: 0 .5rem; text-align: left; vertical-align: top;
  white-space: pre-wrap; overflow-wrap: anywhere; position: static; }
.diff thead th { background: var(--raised); font-weight: 600; padding: .25rem .5rem; }
.diff td.number { color: var(--dim); text-align: right; user-select: none; }
.diff del, .diff ins { text-decoration: none; border-radius: 2px; }
.diff del { background: #ffd7d5; color: #4c0b08; }
.diff ins { background: #c8f0cf; color: #0b3d16; }
.diff details { margin: 0; }
.diff summary { background: var(--raised); color: var(--dim); font-size: .8rem; padding: .1rem .5rem; }
"""
COLUMNS = ('<colgroup><col class="number"><col><col class="number"><col></colgroup>')


def fragment(names: tuple[str, str], texts: tuple[str, str], whole: bool = False) -> str:
    """Both texts beside each other, for a page that has STYLE. Folded runs can be opened."""
    heads = "".join(f'<th scope="col" colspan="2">{html.escape(name)}</th>' for name in names)
    label = html.escape(f"{names[0]} and {names[1]}, line by line")
    parts = [f'<div class="diff" role="region" tabindex="0" aria-label="{label}">',
             f'<table class="lines">{COLUMNS}<thead><tr>{heads}</tr></thead></table>']
    for is_fold, group in groupby(folded(rows_of(*texts), whole), key=lambda row: isinstance(row, Fold)):
        if is_fold:
            parts += [f"<details><summary>{fold}</summary>{_table(fold.rows)}</details>" for fold in group]
        else:
            parts.append(_table(group))
    return "\n".join([*parts, "</div>"])


def _table(rows) -> str:
    lines = [f"<tr>{_cells(row.left_number, row.left, 'del')}{_cells(row.right_number, row.right, 'ins')}</tr>"
             for row in rows]
    return f'<table class="lines">{COLUMNS}<tbody>\n' + "\n".join(lines) + "\n</tbody></table>"


def _cells(number: int | None, parts: tuple[Part, ...], mark: str) -> str:
    text = "".join(f"<{mark}>{html.escape(part)}</{mark}>" if changed and part else html.escape(part)
                   for part, changed in parts)
    return f'<td class="number">{number or ""}</td><td>{text}</td>'


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ --paper: #ffffff; --ink: #1f2328; --dim: #59636e; --line: #d1d9e0; --raised: #f4f6f8; }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --paper: #0d1117; --ink: #f0f6fc; --dim: #9ba5b0; --line: #343b44; --raised: #171d25; }}
}}
body {{ margin: 0 auto; max-width: 100rem; padding: 0 1rem 2rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
h1 {{ font-size: 1.4rem; }}
summary {{ cursor: pointer; }}
{style}</style>
</head>
<body>
<h1>{title}</h1>
{diff}
</body>
</html>
"""


def page(step: Step, names: tuple[str, str], texts: tuple[str, str], whole: bool = False) -> str:
    """One page that needs nothing but itself."""
    title = html.escape(f"{step.number} {step.name}: {names[0]} and {names[1]}")
    return PAGE.format(title=title, style=STYLE, diff=fragment(names, texts, whole))


def ladder(step: Step) -> str:
    """Every version with the next one, folded away, for a page that has STYLE."""
    parts = []
    for names in neighbours(step):
        texts = tuple(version_file(step, name).read_text(encoding="utf-8") for name in names)
        parts.append(f"<details><summary>{names[0]} and {names[1]}, line by line</summary>"
                     f"{fragment(names, texts)}</details>")
    return "\n".join(parts)
