#!/usr/bin/env python3
"""Checks that the programs of a build really hold device code for every architecture asked for.

    scripts/check_device_code.py build/cuda sm_75 sm_90a
    scripts/check_device_code.py build/hip gfx90a gfx1030

A program without a kernel for some architecture still compiles, links and starts; it fails only on
that hardware. So every program below the folder's stage*/ is opened: nvcc leaves its images in the
ELF section .nv_fatbin, clang in .hip_fatbin, and each image must be an ELF file for that device
which defines the same kernels as the images for the other architectures. A program that launches no
kernel needs none: under HIP it never calls hipLaunchKernel, and nvcc gives each kernel that is launched
a function with __device_stub__ in its name.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from course_lib.arguments import Parser

CUDA_SECTION, HIP_SECTION = ".nv_fatbin", ".hip_fatbin"
FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
FATBIN_KIND_ELF = 2  # 1 is PTX, which is text for the driver's compiler, not device code
FATBIN_ARCHITECTURE_SPECIFIC = 0x100000  # the `a` of sm_90a
FATBIN_COMPRESSED = 0x2000 | 0x8000  # LZ4, Zstandard
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_BUNDLE_MAGIC = b"CCOB"
ELF_MACHINE = {"sm": 190, "gfx": 224}  # EM_CUDA, EM_AMDGPU
SHT_SYMTAB, SHT_DYNSYM = 2, 11


class BadFile(Exception):
    """The file is not what it should be; the text says why."""


class Elf:
    """A 64-bit little-endian ELF file in memory: its machine, sections and symbols."""

    def __init__(self, data: bytes):
        if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
            raise BadFile("not a 64-bit little-endian ELF file")
        self.data = data
        (self.machine,) = struct.unpack_from("<H", data, 18)
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        try:
            headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        except struct.error:
            raise BadFile("the ELF file is truncated") from None
        strings = headers[names][4] if headers else 0
        self.sections = [(self._string(strings + h[0]), h) for h in headers]

    def _string(self, offset: int) -> str:
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def section(self, name: str) -> bytes:
        """The contents of a section, empty if there is none."""
        for found, header in self.sections:
            if found == name:
                return self.data[header[4] : header[4] + header[5]]
        return b""

    def symbols(self) -> set[str]:
        names = set()
        for _, header in self.sections:
            if header[1] in (SHT_SYMTAB, SHT_DYNSYM):
                strings = self.sections[header[6]][1][4]
                for at in range(header[4], header[4] + header[5], 24):
                    names.add(self._string(strings + struct.unpack_from("<I", self.data, at)[0]))
        return names


def cuda_images(section: bytes):
    """(architecture, image) of each device image in .nv_fatbin. A fat binary is a 16-byte header with
    the size of what follows, then entries: kind, header size and payload size, sm number, flags."""
    start = section.find(FATBIN_MAGIC)
    while start >= 0:
        _, header_size, size = struct.unpack_from("<HHQ", section, start + 4)
        at, end = start + header_size, start + header_size + size
        while at < end:
            kind, _, entry_size, payload = struct.unpack_from("<HHIQ", section, at)
            (number,) = struct.unpack_from("<I", section, at + 28)
            (flags,) = struct.unpack_from("<Q", section, at + 40)
            image = section[at + entry_size : at + entry_size + payload]
            at += entry_size + payload
            if kind != FATBIN_KIND_ELF:
                continue
            architecture = f"sm_{number}" + ("a" if flags & FATBIN_ARCHITECTURE_SPECIFIC else "")
            if flags & FATBIN_COMPRESSED:
                raise BadFile(f"its code for {architecture} is compressed: compile with -no-compress")
            yield architecture, image
        start = section.find(FATBIN_MAGIC, end)


def hip_images(section: bytes):
    """(architecture, image) of each device image in .hip_fatbin. A bundle is a magic word and a table of
    offset, size and target (hipv4-amdgcn-amd-amdhsa--gfx90a); offsets count from the bundle."""
    if section.startswith(COMPRESSED_BUNDLE_MAGIC):
        raise BadFile("its device code is compressed: compile with --no-offload-compress")
    start = section.find(BUNDLE_MAGIC)
    while start >= 0:
        at = start + len(BUNDLE_MAGIC)
        (count,) = struct.unpack_from("<Q", section, at)
        at += 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", section, at)
            target = section[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if not target.startswith("host"):
                architecture = target.rsplit("-", 1)[-1].split(":")[0]
                yield architecture, section[start + offset : start + offset + size]
        start = section.find(BUNDLE_MAGIC, at)


def kernels_of(image: bytes, vendor: str) -> set[str]:
    """The kernels that an image defines. nvcc gives each a section .text.NAME, clang a symbol NAME.kd."""
    elf = Elf(image)
    if elf.machine != ELF_MACHINE[vendor]:
        raise BadFile(f"an image is for ELF machine {elf.machine}, not a device of this vendor")
    if vendor == "sm":
        return {name[6:] for name, _ in elf.sections if name.startswith(".text.")}
    return {name[:-3] for name in elf.symbols() if name.endswith(".kd")}


def check(program: Path, architectures: list[str]) -> dict[str, int]:
    """Architecture → number of kernels. Raises BadFile if one lacks a kernel that another has, or all."""
    vendor = "gfx" if architectures[0].startswith("gfx") else "sm"
    elf = Elf(program.read_bytes())
    name, images = (HIP_SECTION, hip_images) if vendor == "gfx" else (CUDA_SECTION, cuda_images)
    section = elf.section(name)
    launch = "hipLaunchKernel" if vendor == "gfx" else "__device_stub__"
    launches = any(launch in symbol for symbol in elf.symbols())
    if not section:
        if not launches:
            return {}
        raise BadFile(f"it has no section {name}")
    kernels: dict[str, set[str]] = {architecture: set() for architecture in architectures}
    try:
        for architecture, image in images(section):
            if architecture in kernels:
                kernels[architecture] |= kernels_of(image, vendor)
    except (struct.error, ValueError, IndexError) as error:
        raise BadFile(f"its section {name} is damaged ({error})") from None
    every = set().union(*kernels.values())
    if not every and not launches:
        return {}
    if not every:
        raise BadFile(f"it has no kernel for {' or '.join(architectures)}")
    for architecture, names in kernels.items():
        if names != every:
            example = min(every - names)
            raise BadFile(f"{architecture} lacks {len(every - names)} of {len(every)} kernels, e.g. {example}")
    return {architecture: len(names) for architecture, names in kernels.items()}


def programs_below(folder: Path) -> list[Path]:
    files = sorted(path for stage in folder.glob("stage*") for path in stage.rglob("*"))
    return [path for path in files if path.is_file() and os.access(path, os.X_OK)]


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a build folder; its stage*/ hold the programs")
    parser.add_argument("architecture", nargs="+", help="sm_NN[a] or gfxNNN, one vendor's")
    arguments = parser.parse_args()
    if len({name.startswith("gfx") for name in arguments.architecture}) != 1:
        parser.error("architectures of two vendors: check each build with its own")
    programs = programs_below(arguments.folder)
    if not programs:
        print(f"check_device_code: no program below {arguments.folder}/stage*", file=sys.stderr)
        return 1
    failed = 0
    for program in programs:
        name = program.relative_to(arguments.folder)
        try:
            counts = check(program, arguments.architecture)
        except BadFile as error:
            failed += 1
            print(f"FAIL {name}: {error}")
        else:
            found = ", ".join(f"{n} kernels for {a}" for a, n in counts.items())
            print(f"ok   {name}: {found or 'launches no kernel'}")
    print(f"device code for {', '.join(arguments.architecture)}: "
          f"{len(programs) - failed} programs ok, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
