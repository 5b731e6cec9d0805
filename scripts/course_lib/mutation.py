"""Mutants: a step's file with one mistake that people make.

mutants_of() finds kernels, device functions and host code (kernel_source.py), and has each operator
(mutation_operators.py) find its places in them. Tuning constants are left alone.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import defaultdict
from dataclasses import dataclass

from .cpp_source import line_of
from .kernel_source import KERNEL, LAUNCHER, Body, Source
from .mutation_operators import OPERATORS, SHARED, any_grid


# Functions that say by how much a version's results may be off: the checks' part of a file.
OF_CHECKS = re.compile(r"roundings_\w+")


@dataclass(frozen=True)
class Mutant:
    """One changed place of a file: text[start:end] becomes `put`."""

    file: str  # relative to the step's folder
    function: str
    line: int
    operator: str
    before: str  # the line or lines that change, and what they become
    after: str
    start: int
    end: int
    put: str
    key: str  # names the mutant: another one as soon as anything in the file is another

    def applied(self, text: str) -> str:
        return text[:self.start] + self.put + text[self.end:]


def mutants_of(text: str, file: str) -> list[Mutant]:
    """All mutants of a file."""
    source = Source(text)
    found: dict[tuple[int, str], Mutant] = {}  # what two operators agree on is one mutant
    name_of_text = hashlib.sha256(f"{file}\n{text}".encode()).hexdigest()
    for function in source.functions:
        if OF_CHECKS.fullmatch(function.name):
            continue
        kinds = {function.kind, ""}
        spans = [(function.start, function.end)]
        exercises = [(max(first, function.start), min(last, function.end)) for first, last in source.exercises
                     if first < function.end and function.start < last]
        if function.kind == LAUNCHER and exercises:
            kinds, spans = {KERNEL, LAUNCHER, ""}, exercises
        body = Body(source, function, spans)
        anything_goes = list(any_grid(body))
        for name, (edits, kind) in OPERATORS.items():
            if kind not in kinds:
                continue
            for start, end, put in edits(body):
                if source.is_left_alone(start) and name != SHARED:
                    continue
                if any(first <= start < last for first, last in anything_goes):
                    continue  # a kernel that goes round is right with any grid
                if "".join(text[start:end].split()) == "".join(put.split()):
                    continue
                line = line_of(text, start)
                before, after = _lines(text, start, end, put)
                same = line, "".join(after.split())
                key = hashlib.sha256(f"{name_of_text}{same}".encode()).hexdigest()[:16]
                found.setdefault(same, Mutant(file, function.name, line, name, before, after, start, end,
                                              put, key))
    return list(found.values())


def _lines(text: str, start: int, end: int, put: str) -> tuple[str, str]:
    """The lines that change, and what they become, each as one line."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    return (" ".join(text[first:last].split()),
            " ".join((text[first:start] + put + text[end:last]).split()))


def spread(mutants: list[Mutant], seed: str) -> list[Mutant]:
    """The mutants in an order of which every beginning has all operators and functions about equally."""
    chance = random.Random(seed)
    groups: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[mutant.operator].append(mutant)
    for name, group in groups.items():
        chance.shuffle(group)
        groups[name] = _in_turns(group)
    names = sorted(groups)
    chance.shuffle(names)
    return [groups[name][turn] for turn in range(max(map(len, groups.values()), default=0))
            for name in names if turn < len(groups[name])]


def _in_turns(group: list[Mutant]) -> list[Mutant]:
    """One of each function, then a second one of each, and so on."""
    met: dict[tuple[str, str], int] = defaultdict(int)
    turns = []
    for mutant in group:
        place = mutant.file, mutant.function
        turns.append(met[place])
        met[place] += 1
    return [mutant for _, mutant in sorted(zip(turns, group), key=lambda one: one[0])]


def shares(candidates: list[int], count: int, least: int, most: int) -> list[int]:
    """How many to choose of each group: as the square root of its size, at least and at most that many,
    `count` together as nearly as these allow."""
    def chosen(scale: float) -> list[int]:
        return [min(n, max(least, min(most, round(scale * math.sqrt(n))))) for n in candidates]

    low, high = 0.0, float(most)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(chosen(middle)) < count else (low, middle)
    return chosen(high)
