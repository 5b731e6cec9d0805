"""Reads what a person can hand over: texts, JSON and TOML. What cannot be read is a ValueError of one line
that begins with the file's name; what can be read is plain: it can be computed with and written again.

    plain   text without halves of surrogate pairs, finite numbers, whole ones of at most 20 digits, no
            key twice in an object, nothing deeper than MOST_DEPTH
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import USAGE, CourseError

MOST_BYTES = 1 << 28  # of a file: a folder of results has 2 MB
MOST_DEPTH = 32
LARGEST_INTEGER = 10 ** 20  # has room for the programs' size_t
MOST_OF_NAME = 200  # bytes: file systems take 255
MOST_PARTS = 16  # of a path
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SURROGATE = re.compile("[\ud800-\udfff]")

Kind = Any  # what a value may be: a type, several, or a function that says whether it takes the value


def _what(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"this is no UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}"
    return str(error)


def read_bytes(path: Path) -> bytes:
    """What is in the file. Raises ValueError naming it where it is no file, cannot be read or is too big."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: {_what(error)}") from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path}: more than {MOST_BYTES >> 20} MB")
    return data


def read_text(path: Path) -> str:
    """The file's text, its lines ended by "\\n". Raises ValueError naming the file where there is none."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {_what(error)}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_for_user(path: Path) -> str:
    """read_text(), for a file of the learner's or one that was named on the command line."""
    try:
        return read_text(path)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None


def write(path: Path, data: bytes) -> None:
    """Beside the file and renamed, so that the name never holds half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# ---- JSON --------------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {quoted(next(key for key in keys if keys.count(key) > 1))} is there twice")
    return record


def _integer(digits: str) -> int:
    if len(digits) > 21:  # with its sign; int() itself refuses thousands
        raise ValueError(f"the number {digits[:20]}… is too large")
    return int(digits)


def parse_json(text: str) -> object:
    """The plain value that the text holds. Raises ValueError that says why it holds none."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    require_plain(value)
    return value


def load(path: Path, validate: Callable[[Any], None]) -> Any:
    """The JSON in a file, once `validate` has not raised ValueError for it. Raises ValueError naming the
    file and what is wrong in it."""
    text = read_text(path)
    try:
        value = parse_json(text)
        validate(value)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return value


def is_plain(value: object) -> bool:
    try:
        require_plain(value)
    except ValueError:
        return False
    return True


def require_plain(value: object) -> None:
    """Raises ValueError, with its place, for what could not be computed with or written again."""
    left: list[tuple[object, tuple, int]] = [(value, (), 0)]  # a value, its place, how deep that is
    while left:
        one, place, depth = left.pop()
        wrong = ""
        if isinstance(one, str):
            wrong = "half of a surrogate pair is no text" if SURROGATE.search(one) else ""
        elif isinstance(one, float):
            wrong = "" if math.isfinite(one) else "this number is not finite"
        elif isinstance(one, int):
            wrong = "" if abs(one) < LARGEST_INTEGER else "this number is too large"
        elif isinstance(one, (dict, list)):
            wrong = "this is nested too deeply" if depth > MOST_DEPTH else ""
            inner = one.items() if isinstance(one, dict) else enumerate(one)
            for key, value in inner if not wrong else ():
                if isinstance(key, str) and SURROGATE.search(key):
                    wrong = f"the key {quoted(key)} is no text"
                    break
                left.append((value, (place, key), depth + 1))
        if wrong:
            raise ValueError(": ".join(filter(None, (_words(place), wrong))))


def _words(place: tuple) -> str:
    """A place as one would index it: tables[0].rows[2].ms"""
    words = ""
    while place:
        place, key = place
        words = (f"[{key}]" if isinstance(key, int) else f".{key}") + words
    return words.removeprefix(".")[:100]


def shown(value: object, most: int = 60) -> str:
    """A value as JSON, in a message: not all of it where it is long."""
    try:
        text = json.dumps(value)
    except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
        return "this"
    return text if len(text) <= most else text[: most - 1] + "…"


def quoted(name: str) -> str:
    """A name in a message: escaped, and not all of it where it is long."""
    return f"'{shown(name)[1:].removesuffix(chr(34))}'"


# ---- Kinds -------------------------------------------------------------------------------------


def is_of(value: object, kind: Kind) -> bool:
    """bool is an int to Python, and does not pass as a number."""
    if not isinstance(kind, (type, tuple)):
        return kind(value)
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)


def is_name(value: object) -> bool:
    """Whether this can be the name of something: a few words in one line, or a part of a path."""
    return (isinstance(value, str) and is_plain(value) and not CONTROL.search(value)
            and 0 < len(value.encode()) <= MOST_OF_NAME)


def is_path(value: object) -> bool:
    """Whether this is a path, from some folder on, that stays inside of it."""
    parts = value.split("/") if isinstance(value, str) else []
    return (0 < len(parts) <= MOST_PARTS
            and all(is_name(part) and part not in (".", "..") for part in parts))


def is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def require(record: object, keys: Mapping[str, Kind], place: str,
            optional: Mapping[str, Kind] | None = None) -> None:
    """Raises ValueError where the record lacks one of the keys or holds something of another kind there;
    `optional` keys may be absent."""
    if not isinstance(record, dict):
        raise ValueError(f"{place} is not an object")
    for key in keys:
        if key not in record:
            raise ValueError(f"{place} has no '{key}'")
    for key, kind in {**keys, **(optional or {})}.items():
        if key in record and not is_of(record[key], kind):
            raise ValueError(f"{place}: '{key}' cannot be {shown(record[key])}")


# ---- TOML --------------------------------------------------------------------------------------


def read_toml(path: Path) -> dict:
    """Raises ValueError naming the file and what is wrong in it, and CourseError where this Python has no
    reader."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10: pip brings its own reader along
        try:
            from pip._vendor import tomli as tomllib
        except ImportError:
            raise CourseError("exercises need Python 3.11, or 3.10 with pip: apt install "
                              "python3-pip", USAGE) from None
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: this is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
