"""The mutants that compute the same as the file that they are made of, for every input: scripts/mutants.py
does not count them. scripts/equivalent_mutants/ has a file for each stage, with an entry for each of them: its
step, file, function and operator, the line before and after, as scripts/mutants.py prints them, and the proof
that no check can tell it from the original.

    [[mutant]]
    step = "1.3"
    file = "versions/single_pass.hip"
    function = "dot_single_pass"
    operator = "arguments swapped"
    before = "..."
    after = "..."
    proof = "..."
"""

from __future__ import annotations

from pathlib import Path

from . import documents
from .errors import FAILED, CourseError

KEYS = ("step", "file", "function", "operator", "before", "after")


def load_equivalent(folder: Path) -> dict[tuple[str, ...], str]:
    """The proofs of all files in `folder`, by KEYS. Raises CourseError(FAILED) where an entry is no entry."""
    found = {}
    for path in sorted(folder.glob("*.toml")):
        found.update(_load(path))
    return found


def _load(path: Path) -> dict[tuple[str, ...], str]:
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
