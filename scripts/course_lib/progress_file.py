"""What progress.json and an exported file hold, and how a broken progress file is mended.

    {"schema": 1, "steps": {"1.3": {"state": "passed", "started": ..., "passed": ...,
     "hints": {"block_sum_tree": 2}, "files": {"dot.h": "sha256..."},
     "devices": {"cpu: AMD EPYC": {"date": ..., "version": "two_pass", "ms": 1.2, "of_limit": 0.8,
     "of_solution": 0.97, "of_vendor": null, "medal": "gold"}}}}}

An export has the learner's files beside it: "files", by their names in the workspace. Every key may be
absent. Keys that are not known here stay as they are.

Mending goes entry by entry, down to a single figure: what is not of its kind is left out and named, all
the rest is kept. Where the text itself is broken, each step is read on its own; of a step that cannot be
read each of its entries; and of one that cannot be read each of its members.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .documents import is_name, is_of, is_path, is_plain, quoted, require_plain, shown
from .results import is_amount, is_step
from .steps import VERSION_SUFFIXES

SCHEMA = 1
# Of a learner's files: versions, and headers of the time when exercises stood in them.
ENDINGS = (*VERSION_SUFFIXES, ".h")

BROKEN = object()  # in place of a value of which nothing can be kept


# ---- Kinds -------------------------------------------------------------------------------------


def _is_date(value: object) -> bool:
    # datetime.fromisoformat() would take anything between day and hour, half of a surrogate pair, too.
    return isinstance(value, str) and re.fullmatch(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}", value) is not None


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_level(value: object) -> bool:
    return is_of(value, int) and 0 <= value <= 10 ** 6


def _is_file_name(value: object) -> bool:
    """Of a learner's file, in the workspace."""
    return is_path(value) and value.endswith(ENDINGS)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_plain(value)


@dataclass(frozen=True)
class MapOf:
    """An object with names of one kind, and values of one kind."""

    is_name: Any
    value: Any


FIGURES = {"date": _is_date, "version": is_name, "ms": lambda value: value is not None and is_amount(value),
           "of_limit": is_amount, "of_solution": is_amount, "of_vendor": is_amount,
           "medal": lambda value: value in (None, "gold", "silver", "bronze")}
STEP = {"state": lambda value: value in ("in progress", "passed"), "started": _is_date, "passed": _is_date,
        "hints": MapOf(is_name, _is_level), "devices": MapOf(is_name, FIGURES),
        "files": MapOf(is_name, _is_digest)}
STEPS = MapOf(is_step, STEP)
EXPORT = {"schema": lambda value: is_of(value, int) and value == SCHEMA, "steps": STEPS,
          "files": MapOf(_is_file_name, _is_text)}


def _fitting(value: object, kind: Any, place: str, problems: list[str]) -> Any:
    """What of the value is of its kind; `problems` takes a line for each part that is not."""
    if not isinstance(kind, (dict, MapOf)):
        if kind(value):
            return value
        problems.append(f"{place} cannot be {shown(value)}")
        return BROKEN
    if not isinstance(value, dict):
        problems.append(f"{place} cannot be {shown(value)}: it is an object")
        return BROKEN
    kept = {}
    for name, one in value.items():
        inside = f"{place}, {quoted(name)}" if place else quoted(name)
        if not (kind.is_name if isinstance(kind, MapOf) else is_name)(name):
            problems.append(f"{inside} is no name there")
            continue
        inner = kind.value if isinstance(kind, MapOf) else kind.get(name)
        if inner is None:
            fitting = _unknown(one, inside, problems)
        else:
            fitting = _fitting(one, inner, inside, problems)
        if fitting is not BROKEN:
            kept[name] = fitting
    return kept


def _unknown(value: object, place: str, problems: list[str]) -> Any:
    """What a newer course may have written is kept as it is, if it can be written again."""
    try:
        require_plain(value)
    except ValueError as error:
        problems.append(f"{place}: {error}")
        return BROKEN
    return value


# ---- Reading -----------------------------------------------------------------------------------


def validate_export(record: object) -> None:
    """Raises ValueError naming the first thing that `scripts/course progress --export` would not write."""
    if not isinstance(record, dict) or any(key not in record for key in EXPORT):
        raise ValueError("this was not written by `scripts/course progress --export`")
    problems: list[str] = []
    _fitting(record, EXPORT, "", problems)
    if problems:
        raise ValueError(problems[0])


def read(data: bytes) -> tuple[dict[str, dict], list[str]]:
    """The steps of a progress file, and a line on each thing that is left out of them: none where all of
    it is as it should be."""
    # What is no UTF-8 becomes halves of surrogate pairs, which no entry may hold.
    text = data.decode("utf-8", errors="surrogateescape")
    problems: list[str] = []
    try:
        record = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return _salvaged(text, [why])
    if not isinstance(record, dict) or not isinstance(record.get("steps"), dict):
        return _salvaged(text, ["'steps' is not an object"])
    if not EXPORT["schema"](record.get("schema")):
        problems.append(f"its schema is {shown(record.get('schema'))}, not {SCHEMA}")
    return _fitting(record["steps"], STEPS, "", problems), problems


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name is there twice")
    return record


_STEP = re.compile(r'"([0-9]{1,3}\.[0-9]{1,3})"\s*:\s*(?=\{)')
_ENTRY = re.compile(r'"(%s)"\s*:\s*' % "|".join(STEP))
_MEMBER = re.compile(r'("(?:[^"\\]|\\.)*")\s*:\s*')
_decoder = json.JSONDecoder()


def _decoded(text: str, at: int = 0) -> tuple[Any, int]:
    """The JSON that begins there, and where it ends. BROKEN where it cannot be read."""
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return BROKEN, at


def _parts(name: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Every name in the text, and what stands between it and the next."""
    begins = list(name.finditer(text))
    ends = [match.start() for match in begins[1:]] + [len(text)]
    for match, end in zip(begins, ends):
        yield match[1], text[match.end():end]


def _salvaged(text: str, problems: list[str]) -> tuple[dict[str, dict], list[str]]:
    """read(), where the text as a whole cannot be read: `problems` says why."""
    steps: dict[str, dict] = {}
    for number, part in _parts(_STEP, text):
        record, closed = _decoded(part)
        if record is BROKEN:
            problems.append(f"{quoted(number)} cannot be read as a whole: what could be read of it is kept")
            record = {}
        # What is behind the step's end belongs to it all the same: a brace too many has closed it.
        record = {**_entries(part[closed:], quoted(number), problems), **record}
        record = _fitting(record, STEP, quoted(number), problems)
        steps[number] = merged(steps[number], record) if number in steps else record
    return {number: record for number, record in steps.items() if record}, problems


def _entries(text: str, place: str, problems: list[str]) -> dict[str, object]:
    """The entries of a step's broken text that can be read. Of one that is there twice nothing is lost: whole or
    broken, either may be what the learner has reached."""
    found: dict[str, object] = {}
    for name, part in _parts(_ENTRY, text):
        value, _ = _decoded(part)
        if value is BROKEN:
            problems.append(f"{place}, '{name}' cannot be read as a whole")
            value = _members(part, STEP[name])
        if value:
            found = merged(found, _fitting({name: value}, STEP, place, problems))
    return found


def _members(text: str, kind: Any) -> dict[str, object]:
    """Those of a broken object's members that can be read and are of its kind."""
    found: dict[str, object] = {}
    match = _MEMBER.search(text) if isinstance(kind, MapOf) else None
    while match:
        name, _ = _decoded(match[1])
        value, end = _decoded(text, match.end())
        problems: list[str] = []
        if name is not BROKEN and value is not BROKEN:
            _fitting({name: value}, kind, "", problems)
        if name is BROKEN or value is BROKEN or problems:
            end = match.start() + 1  # a quotation mark may be missing or one too many
        else:
            found.setdefault(name, value)
        match = _MEMBER.search(text, end)
    return found


# ---- Two machines' -----------------------------------------------------------------------------


def merged(mine: dict, theirs: dict) -> dict:
    """What both have reached in a step: nothing of either is lost but the slower time on a device."""
    known = {**theirs, **mine}
    states = {mine.get("state"), theirs.get("state")}
    state = next((word for word in ("passed", "in progress") if word in states), None)
    if state:
        known["state"] = state
    # The texts that have passed are those of the side that has passed, the learner's own before others.
    first, second = (theirs, mine) if mine.get("state") == "passed" else (mine, theirs)
    if "files" in known:
        known["files"] = {**first.get("files", {}), **second.get("files", {})}
    if "hints" in known:
        a, b = mine.get("hints", {}), theirs.get("hints", {})
        known["hints"] = {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}
    if "devices" in known:
        a, b = mine.get("devices", {}), theirs.get("devices", {})
        known["devices"] = {**b, **a}
        for name in a.keys() & b.keys():
            known["devices"][name] = min(a[name], b[name], key=lambda one: one.get("ms", float("inf")))
    return known
