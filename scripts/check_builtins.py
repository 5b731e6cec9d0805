#!/usr/bin/env python3
"""Checks that on the CPU backend every function reads the threadIdx of the file whose kernel calls it.

    scripts/check_builtins.py build/cpu-asan

common/cpu/launch.h gives each file variables of its own for threadIdx, blockIdx, blockDim and gridDim. A
function of a header that is not inlined is compiled in every file that uses it, and the linker keeps one of
the copies: kernels of the other files would then read variables that nobody has set for them. __device__
functions are always inlined, lambdas need not be: a lambda in a header takes these values from the function
around it. Builds with little optimization, which inline least, show it best.

Prints a line for each such function, and exits 1 where there is one.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_lib import process, symbols
from course_lib.arguments import Parser
from course_lib.errors import FAILED, USAGE

SECTION = re.compile(r"^RELOCATION RECORDS FOR \[\.text\.(\S+)\]:$")
# An access to a variable of the thread, by its name or by its place among them.
ACCESS = re.compile(r"\bR_\S*(?:TPOFF|DTPOFF|TLS)\S*\s+(?:\.tbss|_ZL\d+(?:threadIdx|blockIdx|blockDim|gridDim))\b")


def readers(path: Path) -> set[str]:
    """The functions of an object file that read the built-in variables and that other files may have, too."""
    weak, found, section = symbols.of([path]).weak, set(), ""
    for line in (process.output(["objdump", "--reloc", "--wide", str(path)]) or "").splitlines():
        if begins := SECTION.match(line):
            section = begins[1]
        elif section in weak and ACCESS.search(line):
            found.add(section)
    return found


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="the folder of a build for the CPU backend")
    build = parser.parse_args().build
    objects = sorted(build.rglob("*.hip.o"))
    if not objects:
        print(f"check_builtins.py: {build} holds no object file of a kernel", file=sys.stderr)
        return USAGE
    with ThreadPoolExecutor(process.cpu_count()) as pool:
        found = dict(zip(objects, pool.map(readers, objects)))
    names = symbols.plain(set().union(*found.values()))
    # What launches a kernel is made for this launch alone: a lambda of LAUNCH's is part of its type.
    lines = [f"{path.relative_to(build)}: {names[name]}" for path, those in found.items() for name in sorted(those)
             if not re.match(r"(?:\S+ )?cpu::(?:launch|run_threads)<", names[name])]
    for line in lines:
        print(line)
    print(f"{len(objects)} object files, {len(lines)} functions that may read another file's threadIdx")
    return FAILED if lines else 0


if __name__ == "__main__":
    sys.exit(main())
