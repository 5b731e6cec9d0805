"""Asks NVIDIA's compute-sanitizer, where it is installed, what a failing kernel did on the GPU: which
line left its buffer, or which two lines race in shared memory. It is shown the smallest run that failed."""

from __future__ import annotations

import re

from . import check, compiling
from .backend import cuda_folders, find_program
from .exercises import Course

TIMEOUT = 60.0  # seconds; kernels run many times slower

ACCESS = re.compile(r"Invalid (\S+) (\w+) of size (\d+) bytes?\n.*? at (.*)\n"
                    r".*? by thread (\S+) in block (\S+)"
                    r"(?:\n.*Address.*\n?.*? (\d[\d,]*) bytes (after|before|inside))?")
RACE = re.compile(r"Race reported between (\w+) access at (.*)\n.*? and (\w+) access at (.*)")
PLACE = re.compile(r"(\S+?:\d+)(?::|\b)")


def find(course: Course, compiled: compiling.Compiled, named: dict[str, str], versions: list[str],
         runs: list[check.Run]) -> list[str]:
    """A plain line for the first wrong access and for the first race, as far as there are any."""
    tool = find_program("compute-sanitizer", cuda_folders())
    if tool is None:
        return []
    ended = [run for run in runs if not run.ok and run.fault not in check.ENDLESS]
    if not ended:  # what hangs would hang here, too
        return []
    run = min(ended, key=lambda run: run.elements)
    words: list[str] = []
    for name in ("memcheck", "racecheck"):
        again = check.run_one(compiled.program, course, versions, run.shape, run.setting,
                              compiled.places(named), under=(tool, "--tool", name), seconds=TIMEOUT)
        words += parse(again.output)
        if words:
            break
    return words


def parse(text: str) -> list[str]:
    access = ACCESS.search(text)
    if access:
        memory, what, size, place, thread, block, distance, side = access.groups()
        words = (f"{kernel_of(place)}thread {thread} of block {block} {what}s {size} bytes at "
                 f"{place_of(place)}, outside of a {memory.strip('_')} buffer")
        return [words + (f", {distance} bytes {side} the nearest" if distance and side != "inside" else "")]
    race = RACE.search(text)
    if race:
        first, one, second, other = race.groups()
        return [f"data race in shared memory: {kernel_of(one)}one thread {first.lower()}s at "
                f"{place_of(one)} what another {second.lower()}s at {place_of(other)}, and nothing says who comes first"]
    return []


def place_of(words: str) -> str:
    """"dot_shared_tree(float *)+0x90 in /path/dot.h:133" -> "/path/dot.h:133"."""
    place = PLACE.search(words.partition(" in ")[2] or words)
    return place[1] if place else words


def kernel_of(words: str) -> str:
    kernel = re.match(r"(?:void )?([\w:]+?)(?:<.*)?\(", words)
    return f"kernel {kernel[1].rpartition('::')[2]}: " if kernel else ""
