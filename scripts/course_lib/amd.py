"""AMD's GPUs: which toolkit has code for which chip, from amd_chips.json and from the toolkit that is here.

A HIP compiler can only compile for a target whose device library it brings: oclc_isa_version_1030.bc is gfx1030's.
"""

from __future__ import annotations

import functools
import json
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("amd_chips.json")
ROCM = "AMD's ROCm (https://rocm.docs.amd.com/en/latest/install/rocm.html)"
# Where the device libraries lie: under ROCm's root, in the distribution's folders or in its clang's.
BITCODE = ("amdgcn/bitcode", "lib/llvm/lib/clang/*/lib/amdgcn/bitcode", "lib/llvm/lib/clang/*/amdgcn/bitcode",
           "lib/*/amdgcn/bitcode", "lib/llvm-*/lib/clang/*/amdgcn/bitcode", "lib/llvm-*/lib/clang/*/lib/amdgcn/bitcode")


@dataclass(frozen=True)
class Chip:
    """A row of the table: amd_chips.json says what its columns mean."""

    target: str
    architecture: str
    family: str
    names: str
    rocm: str
    wsl: bool


@functools.cache
def chips() -> tuple[Chip, ...]:
    return tuple(Chip(**row) for row in json.loads(TABLE.read_text(encoding="utf-8"))["chips"])


@functools.cache
def distributions() -> dict[str, tuple[str, frozenset[str]]]:
    """Of each distribution that is known, "debian 12": how its HIP is called, and the targets it has code for."""
    found = json.loads(TABLE.read_text(encoding="utf-8"))["toolkits"]
    return {key: (one["name"], frozenset(one["targets"].split())) for key, one in found.items()}


def chip_of(target: str) -> Chip | None:
    return next((chip for chip in chips() if chip.target == target), None)


def target_of(device: str) -> str:
    """The target in a device's name as backend.detect() has it: "Radeon 780M (gfx1103)"; "" where there is none."""
    found = re.search(r"\b(gfx[0-9a-f]+)\)?$", device)
    return found[1] if found else ""


def toolkit_targets(roots: Iterable[Path]) -> frozenset[str]:
    """The targets that a toolkit under one of these folders has code for; none where nothing tells."""
    libraries = (file for root in roots for folder in BITCODE for file in root.glob(f"{folder}/oclc_isa_version_*.bc"))
    return frozenset("gfx" + file.stem.rpartition("_")[2] for file in libraries)


def like(target: str, known: frozenset[str]) -> str:
    """A chip among `known` targets whose code a chip of `target` is most likely to run: of the same architecture, or
    at least of the same family; "" where there is none."""
    chip = chip_of(target)
    others = [one for one in chips() if chip and chip.family and one.family == chip.family and one.target in known]
    same = [one for one in others if one.architecture == chip.architecture]
    return (same or others)[0].target if others else ""


def target_of_version(major: int, minor: int, stepping: int) -> str:
    """The target with these numbers: 10, 3, 0 is gfx1030, and 9, 0, 12 is gfx90c."""
    return f"gfx{major}{minor:x}{stepping:x}"


def override(target: str) -> str:
    """The value of HSA_OVERRIDE_GFX_VERSION that has a chip taken for `target`: gfx1030 is 10.3.0, gfx90c 9.0.12."""
    major, minor, stepping = target[3:-2], target[-2], target[-1]
    return f"{int(major)}.{int(minor, 16)}.{int(stepping, 16)}"


def what_it_is(target: str) -> str:
    """The chip in a line: architecture, products, and what AMD says of it."""
    chip = chip_of(target)
    if chip is None:
        return f"{target} is in no list that the course has (scripts/course_lib/amd_chips.json)"
    said = {"supported": "AMD lists it for ROCm 7", "built": "AMD builds ROCm 7 for it and does not list it"}
    return f"{chip.architecture}: {chip.names}; {said.get(chip.rocm, 'AMD does not list it for ROCm 7')}"


def distribution() -> str:
    """Of this machine, as the table names it: "debian 12"; "" where it does not say."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip()


def advice(target: str, known: frozenset[str], distribution: str) -> str:
    """What to do where the HIP that is here (`known`: its targets, none where there is no HIP) or the distribution's,
    such as "debian 12", has no code for the chip; "" where nothing is to be done."""
    name, offered = distributions().get(distribution, ("", frozenset()))
    if target in known or not known and (target in offered or not offered):
        return ""
    have = "the HIP that is here" if known else name
    chip = chip_of(target)
    newer = [other for other, (_, targets) in distributions().items() if target in targets]
    if known and target in offered:
        newer = [distribution]
    if chip and chip.rocm:
        way = f"install {ROCM}"
        if newer:
            way += f", or {distributions()[newer[0]][0]}"
    elif newer:
        way = f"{distributions()[newer[0]][0]} has"
    else:
        way = "no other that the course knows of has"
    sibling = like(target, known or offered)
    if sibling:
        only = "else" if chip and chip.rocm or newer else "the only way is"
        way += (f"; {only} HSA_OVERRIDE_GFX_VERSION={override(sibling)}, with which it is taken for a {sibling}: AMD "
                "does not support that, and each step's checks say whether it computes what it should")
    return f"{have} has no code for {target}: {way}"
