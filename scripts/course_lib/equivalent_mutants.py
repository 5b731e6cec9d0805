"""The mutants that compute the same as what they are made of, with the proofs: equivalent_mutants.toml."""

from __future__ import annotations

from pathlib import Path

from . import documents
from .errors import FAILED, CourseError

KEYS = ("step", "file", "function", "operator", "before", "after")


def load_equivalent(path: Path) -> dict[tuple[str, ...], str]:
    """The proofs, by KEYS. Raises CourseError(FAILED) where an entry is no entry."""
    found = {}
    try:
        entries = documents.read_toml(path).get("mutant", [])
    except ValueError as error:
        raise CourseError(str(error), FAILED) from None
    for entry in entries:
        if set(entry) != {*KEYS, "proof"} or not all(isinstance(value, str) for value in entry.values()):
            raise CourseError(f"{path.name}: an entry has {', '.join(entry)}, not {', '.join(KEYS)} and "
                              "proof", FAILED)
        found[tuple(entry[key] for key in KEYS)] = entry["proof"]
    return found
