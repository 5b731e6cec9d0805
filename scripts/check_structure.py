#!/usr/bin/env python3
"""Checks the rules of the house that no compiler knows.

    scripts/check_structure.py [--build build/cpu]

- A step is four files of its own name: NAME.h, NAME.hip, NAME_test.hip, README.md. Beside them only
  NAME_HARDWARE.h, for versions that need one vendor's instructions, NAME_instances.hip, for what NAME.h
  declares `extern template`, exercise.toml, and headers that NAME.h includes: what is not the step's
  lesson, such as the reader of a data set.
- Every step is built (CMakeLists.txt) and has its row in README.md's roadmap.
- Every header is compiled alone (looked up in the build folder, where one is given).
- Arrows go only down: a step includes headers of common/, of earlier stages and of its own.
- No kernel knows the size of a wave, and no file outside common/'s backends and the files named for
  hardware calls what only one vendor has.

One line per finding, `file:line: what`; exits 1 if there is any.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

STEP_FOLDER = re.compile(r"stage(\d+)_\w+/(\d\d)_(\w+)")
HARDWARE = r"(sm\d+|cdna|rdna|gfx\w+)"

# Where the differences between the vendors live.
BACKENDS = re.compile(rf"common/(cuda/|cpu/|gpu\.h$|(blas|dnn)\.cpp$)|_{HARDWARE}\.h$")
TESTS = re.compile(r"_test\.hip$")

WAVE_SIZE = {
    r"[%/]\s*(32|64)[uUlL]*\b(?!\s*\.)": "a division by a wave's size: ask wave_size() or lane_id()",
    r"&\s*(31|63)[uUlL]*\b": "a mask of a wave's size: ask lane_id()",
    r">>=?\s*[56]\b": "a shift by a wave's size: ask wave_id()",
    r"\b0[xX][fF]{8}[uUlL]*\b": "a full mask: use the wave_ functions of common/gpu.h",
    r"(?<![.>])\bwarpSize\b": "warpSize: ask wave_size()",
    r"\bk?(Wave|Warp|wave|warp)(_?[Ss]ize)?\s*=\s*(32|64)\b": "a wave's size in a constant: ask wave_size()",
}
ONE_VENDOR = {
    r"\bcuda[A-Z]\w*|\bcu[A-Z][a-z]\w*\s*\(|\b(cublas|cudnn|nvcuda)\w*": "a CUDA name: use HIP's",
    r"\basm\b": "inline assembly belongs in a file named for its hardware",
    r"\b__(shfl|ballot|any|all|match)\w*\s*\(|\b__activemask\b|\b__syncwarp\b":
        "a wave intrinsic: use the wave_ functions of common/gpu.h",
    r"\b__builtin_amdgcn_\w+": "an AMD builtin belongs in a file named for its hardware",
    r"<<<": "a launch that only nvcc and hipcc read: use LAUNCH",
}


def without_comments(text: str) -> str:
    """The code with comments and strings blanked, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


class Checker:
    def __init__(self, root: Path):
        self.root = root
        self.findings: list[str] = []
        folders = [path for path in sorted(root.glob("stage*/*")) if path.is_dir()]
        self.steps = [path.relative_to(root).as_posix() for path in folders]
        patterns = ["common/**/*.h", "common/**/*.hip", "common/**/*.cpp", "stage*/*/*.h", "stage*/*/*.hip"]
        self.sources = sorted({path for pattern in patterns for path in root.glob(pattern)})

    def find(self, where: str, what: str) -> None:
        self.findings.append(f"{where}: {what}")

    def read(self, name: str) -> str:
        path = self.root / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    # ---- Steps ----------------------------------------------------------------------------------

    def check_steps(self) -> None:
        cmake, readme = self.read("CMakeLists.txt"), self.read("README.md")
        rows = [line for line in readme.splitlines() if line.lstrip().startswith("|")]
        if not self.steps:
            self.find(".", "no step found: expected stageN_name/NN_step/")
        for step in self.steps:
            match = STEP_FOLDER.fullmatch(step)
            if not match:
                self.find(step, "a step's folder is named stageN_name/NN_step")
                continue
            stage, number, name = match[1], int(match[2]), match[3]
            here = {path.name for path in (self.root / step).iterdir()}
            wanted = {f"{name}.h", f"{name}.hip", f"{name}_test.hip", "README.md"}
            for missing in sorted(wanted - here):
                self.find(step, f"{missing} is missing")
            contract = self.read(f"{step}/{name}.h") if f"{name}.h" in here else ""
            for extra in sorted(here - wanted):
                is_part = extra.endswith(".h") and f'#include "{step}/{extra}"' in contract
                is_known = rf"{name}_({HARDWARE}\.h|({HARDWARE}_)?instances\.hip)|exercise\.toml"
                if not is_part and not re.fullmatch(is_known, extra):
                    self.find(step, f"{extra} is not one of a step's four files")
            if not re.search(rf"^\s*{re.escape(step)}\s*\)?\s*$", cmake, re.MULTILINE):
                self.find("CMakeLists.txt", f"{step} is not in the list of steps")
            row = re.compile(rf"\|\s*{stage}\.{number}\s*\|.*\({re.escape(step)}/?(README\.md)?\)")
            if not any(row.match(line.strip()) for line in rows):
                self.find("README.md", f"the roadmap has no row `| {stage}.{number} | ... ({step}) ...`")
        for line in rows:
            for linked in re.findall(r"\((stage\d+_\w+/\d\d_\w+)", line):
                if linked not in self.steps:
                    self.find("README.md", f"the roadmap links {linked}, which does not exist")

    # ---- Sources --------------------------------------------------------------------------------

    def check_sources(self) -> None:
        for path in self.sources:
            name = path.relative_to(self.root).as_posix()
            text = path.read_text(encoding="utf-8")
            code = without_comments(text)
            if path.suffix == ".h" and "#pragma once" not in code:
                self.find(f"{name}:1", "a header begins with #pragma once")
            self.check_includes(name, text)
            if BACKENDS.search(name):
                continue
            self.match_all(name, code, ONE_VENDOR)
            if path.suffix != ".cpp" and not TESTS.search(name):
                self.match_all(name, code, WAVE_SIZE)

    def match_all(self, name: str, code: str, rules: dict[str, str]) -> None:
        for pattern, what in rules.items():
            for found in re.finditer(pattern, code):
                self.find(f"{name}:{line_of(code, found.start())}", f"`{found[0].strip()}`: {what}")

    def check_includes(self, name: str, text: str) -> None:
        own = STEP_FOLDER.match(name)
        for found in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            where, target = f"{name}:{line_of(text, found.start(1))}", found[1]
            if not re.match(r"(common|stage\d+_\w+)/", target):
                self.find(where, f'"{target}": an include is spelled from the root of the repository')
                continue
            if not (self.root / target).is_file():
                self.find(where, f'"{target}" does not exist')
            if not target.endswith(".h"):
                self.find(where, f'"{target}": only headers are included')
            other = STEP_FOLDER.match(target)
            if not other:
                continue
            if not own:
                self.find(where, f'"{target}": common/ includes no step')
            elif int(other[1]) > int(own[1]):
                self.find(where, f'"{target}" is in a later stage: arrows go only down')

    # ---- The build ------------------------------------------------------------------------------

    def check_build(self, build: Path) -> None:
        """CMake leaves one source per header in headers/, which the target `headers` compiles."""
        compiled = {
            found
            for source in build.glob("headers/*.hip")
            for found in re.findall(r'#include "([^"]+)"', source.read_text(encoding="utf-8"))
        }
        headers = [*self.root.glob("common/*.h"), *self.root.glob("stage*/*/*.h")]
        for path in sorted(headers):
            name = path.relative_to(self.root).as_posix()
            if name not in compiled and name != "common/check.h":  # gpu.h's second half
                self.find(name, f"is not compiled alone in {build}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, help="a configured build folder")
    arguments = parser.parse_args()
    checker = Checker(arguments.root)
    checker.check_steps()
    checker.check_sources()
    if arguments.build:
        checker.check_build(arguments.build)
    for finding in checker.findings:
        print(finding)
    print(f"structure: {len(checker.steps)} steps and {len(checker.sources)} sources, "
          f"{len(checker.findings)} findings")
    return 1 if checker.findings else 0


if __name__ == "__main__":
    sys.exit(main())
