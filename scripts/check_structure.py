#!/usr/bin/env python3
"""Checks the rules of the house that no compiler knows.

    scripts/check_structure.py [--build build/cpu]

A step has one lesson per file:
- Its files are README.md, NAME.h, NAME.cpp, NAME_test.cpp and versions/*.hip, or versions/*.cpp for versions
  that are host code. It may have detail/*.h, NAME_test.hip, exercise.toml, and other *.h and *.cpp of plain C++
  (reference.h, reference.cpp). PLUGINS have folders of their own. LIMITS says how long files may be, and where a
  version's first kernel begins.
- Plain C++ has no kernel and does not reach common/gpu.h, directly or through a header.
- Exercises stand in versions/. A file that uses one vendor's names has the hardware in its own, such as
  versions/mma_sync_sm80.hip. In stages 1 and up every version has a kernel, or shares one of detail/;
  COMPOSED lists the exceptions.
- Each kernel in versions/ has a comment with Fixes, Idea, Thread and Costs, and each __syncthreads() a
  comment on its line.
- Nothing is defined a second time that common/ or an earlier step has, nor by two versions of a step,
  which may be compiled as one file.

And everywhere:
- No file that people write is longer than LIMITS says, a test included.
- Every step is built (CMakeLists.txt) and has its row in README.md's roadmap.
- Every header is compiled alone (looked up in the build folder, where one is given).
- A step includes headers of common/, of earlier steps and of its own.
- No kernel knows the size of a wave, and no file outside common/'s backends and the files named for
  hardware calls what only one vendor has.

One line per finding, `file:line: what`; exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from course_lib.arguments import Parser
from course_lib.cpp_source import (
    IS_CONSTANT, Definition, definitions, included, includes, line_count, line_of, without_comments)
from course_lib.structure_rules import (
    BACKENDS, COMMENT_OF_A_KERNEL, COMPOSED, DEVICE_CODE, EXERCISE, FOLDERS, HAND_WRITTEN, IS_A_TEST, KERNEL,
    LIMITS, LISTS, NOT_ALONE, ONE_VENDOR, OWN_IN_EACH_STEP, PLUGINS, STEP_FOLDER, TESTS, WAVE_SIZE, comment_above,
    first_picture, order, step_of, without_tables, words)


class Checker:
    def __init__(self, root: Path):
        self.root = root
        self.findings: list[str] = []
        self.texts: dict[str, str] = {}
        folders = [path for path in sorted(root.glob("stage*/*")) if path.is_dir()]
        self.steps = [path.relative_to(root).as_posix() for path in folders]
        found = {path for folder in ("common", "stage*/*") for suffix in ("h", "hip", "cpp")
                 for path in root.glob(f"{folder}/**/*.{suffix}")}
        self.sources = sorted(path.relative_to(root).as_posix() for path in found)

    def find(self, where: str, what: str) -> None:
        self.findings.append(f"{where}: {what}")

    def read(self, name: str) -> str:
        if name not in self.texts:
            path = self.root / name
            self.texts[name] = path.read_text(encoding="utf-8") if path.is_file() else ""
        return self.texts[name]

    def is_too_long(self, name: str, what: str) -> None:
        lines, most = line_count(self.read(name)), LIMITS[f"lines of {what}"]
        if lines > most:
            self.find(name, f"{lines} lines, of at most {most} for {what}")

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
            self.check_files(step, name)
            self.check_versions(step, name)
            self.check_readme(f"{step}/README.md")
            self.check_exercises(step)
            if not re.search(rf"^\s*{re.escape(step)}\s*\)?\s*$", cmake, re.MULTILINE):
                self.find("CMakeLists.txt", f"{step} is not in the list of steps")
            row = re.compile(rf"\|\s*{stage}\.{number}\s*\|.*\({re.escape(step)}/?(README\.md)?\)")
            if not any(row.match(line.strip()) for line in rows):
                self.find("README.md", f"the roadmap has no row `| {stage}.{number} | ... ({step}) ...`")
        for line in rows:
            for linked in re.findall(r"\((stage\d+_\w+/\d\d_\w+)", line):
                if linked not in self.steps:
                    self.find("README.md", f"the roadmap links {linked}, which does not exist")

    def files(self, step: str, pattern: str = "**/*") -> list[str]:
        """The files of a step that match, by their names within it."""
        folder = self.root / step
        return sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern)
                      if path.is_file())

    def versions(self, step: str) -> list[str]:
        return sorted(self.files(step, "versions/*.hip") + self.files(step, "versions/*.cpp"))

    def check_files(self, step: str, name: str) -> None:
        here = self.files(step)
        for missing in sorted({"README.md", f"{name}.h", f"{name}.cpp", f"{name}_test.cpp"} - {*here}):
            self.find(step, f"{missing} is missing")
        if not self.versions(step):
            self.find(step, "versions/ has no .hip or .cpp file")
        known = (rf"README\.md|exercise\.toml|{name}_test\.hip|\w+\.(h|cpp)"
                 r"|versions/\w+\.(hip|cpp)|detail/\w+\.h")
        if step in PLUGINS:
            known += rf"|({PLUGINS[step]})/(\w+\.(h|hip|cpp)|detail/\w+\.h)"
        for extra in here:
            if not re.fullmatch(known, extra):
                self.find(step, f"{extra} is no file of a step: see CONTRIBUTING.md")
        self.is_too_long(f"{step}/{name}.h", "NAME.h")
        for header in self.files(step, "detail/*.h"):
            self.is_too_long(f"{step}/{header}", "detail/*.h")
        for source in self.files(step, "*.h") + self.files(step, "**/*.cpp"):
            self.check_plain(f"{step}/{source}")
        if f"{name}_test.hip" in here:
            source = f"{step}/{name}_test.hip"
            if way := self.way_to(source, lambda target: target.startswith("catch2/"), False):
                self.find(source, f"includes Catch2{way}: the cases stand in {name}_test.cpp")

    def check_plain(self, name: str) -> None:
        """A file that a host compiler reads on every backend."""
        text = self.read(name)
        self.match_all(name, without_comments(text), DEVICE_CODE)
        direct = [line for line, target in includes(text) if target == "common/gpu.h"]
        for line in direct:
            self.find(f"{name}:{line}", "plain C++ includes common/gpu_runtime.h, not common/gpu.h")
        if not direct and (way := self.way_to(name, lambda target: target == "common/gpu.h", True)):
            self.find(name, f"plain C++ reaches common/gpu.h{way}")

    def way_to(self, name: str, is_wanted, always: bool) -> str:
        """' through HEADER' where `name` includes a wanted file, ' itself' where it does so directly, else ''.
        With `always`, what is included under an #if is not followed: the build may leave it out."""
        for first in included(self.read(name), always):
            seen, left = {first}, [first]
            while left:
                target = left.pop()
                if is_wanted(target):
                    return " itself" if target == first else f" through {first}"
                new = {*included(self.read(target), always)} - seen
                seen |= new
                left += new
        return ""

    def first_version(self, step: str, name: str) -> str:
        """The file of the first of kVersions: named like it, or defining the launcher in its entry."""
        contract = re.sub(r"//[^\n]*", "", self.read(f"{step}/{name}.h"))
        entry = re.search(r'\bkVersions\b[^=;]*=?\s*\{\s*\{\s*"(\w+)"([^;]*?\})\s*(,|\})', contract)
        here = self.versions(step)
        if entry and f"versions/{entry[1]}.hip" in here:
            return f"versions/{entry[1]}.hip"
        for launcher in re.findall(r"\blaunch_\w+", entry[2]) if entry else ():
            for version in here:
                if any(one.name == launcher and one.body
                       for one in definitions(self.read(f"{step}/{version}"))):
                    return version
        return "versions/naive.hip"

    def check_versions(self, step: str, name: str) -> None:
        if "kVersions" not in without_comments(self.read(f"{step}/{name}.h")):
            self.find(f"{step}/{name}.h", "lists no kVersions")
        first = self.first_version(step, name)
        for version in self.versions(step):
            where = f"{step}/{version}"
            code = without_comments(self.read(where))
            self.is_too_long(where, "a version")
            kernels = [line_of(code, found.start()) for found in KERNEL.finditer(code)]
            what = "the first version's" if version == first else "a version's"
            latest = LIMITS[f"line of {what} first kernel"]
            if kernels and kernels[0] > latest:
                self.find(f"{where}:{kernels[0]}", f"{what} first kernel begins at line {latest} or before")
            shared = [target for _, target in includes(self.read(where)) if "/detail/" in target]
            is_host_code = (version == "versions/best.hip" or order(step)[0] == 0  # errors, memory
                            or step in COMPOSED)
            if not kernels and not is_host_code \
                    and not any(KERNEL.search(without_comments(self.read(target))) for target in shared):
                self.find(where, "has no kernel, nor includes a header of detail/ that has one")
            for line in kernels:
                self.check_comment(where, line)
        self.check_names(step)
        for source in self.files(step, "versions/*.hip") + self.files(step, "detail/*.h"):
            self.check_barriers(f"{step}/{source}")

    def check_names(self, step: str) -> None:
        """The versions of a step may be compiled as one file, so no two define the same thing."""
        owners: dict[tuple, str] = {}
        for version in self.versions(step):
            for one in definitions(self.read(f"{step}/{version}")):
                owner = owners.setdefault((one.name, one.kind), version)
                if owner != version and (one.body or one.parameters < 0):
                    self.find(f"{step}/{version}:{one.line}", f"{one.name} is defined in {owner}, too")

    def check_comment(self, name: str, line: int) -> None:
        above = comment_above(self.read(name).splitlines(), line)
        missing = [word for word in COMMENT_OF_A_KERNEL
                   if not re.search(rf"^\s*//\s*{word}\s*:", above, re.MULTILINE)]
        if missing:
            self.find(f"{name}:{line}", f"the comment above this kernel lacks {', '.join(missing)}")

    def check_barriers(self, name: str) -> None:
        text = self.read(name)
        code, lines = without_comments(text), text.splitlines()
        for found in re.finditer(r"\b__syncthreads\w*\s*\(", code):
            line = line_of(code, found.start())
            column = found.start() - (code.rfind("\n", 0, found.start()) + 1)
            if not re.search(r"//\s*\w|/\*", lines[line - 1][column:]):
                self.find(f"{name}:{line}", "a barrier has a comment behind it: what is true from here on")

    def check_readme(self, name: str) -> None:
        text = self.read(name)
        if not text:
            return  # missing: found above
        count, most = words(text), LIMITS["words of README.md"]
        if count > most:
            self.find(name, f"{count} words beside its tables, of at most {most}")
        picture, latest = first_picture(text), LIMITS["line of README.md's first picture"]
        if picture is None or picture > latest:
            self.find(f"{name}:{picture or 1}", f"a picture is within the first {latest} lines")

    def check_exercises(self, step: str) -> None:
        for source in self.files(step):
            if re.search(r"\.(h|hip|cpp)$", source) and not source.startswith("versions/"):
                text = self.read(f"{step}/{source}")
                for found in EXERCISE.finditer(text):
                    line = line_of(text, found.end())
                    self.find(f"{step}/{source}:{line}", "exercises stand in versions/ only")
        text = self.read(f"{step}/exercise.toml")
        for found in re.finditer(r'^\s*file\s*=\s*"([^"]*)"', text, re.MULTILINE):
            if found[1] not in self.versions(step):
                line = line_of(text, found.start(1))
                self.find(f"{step}/exercise.toml:{line}", f"{found[1]} is not a file of versions/")

    # ---- Files ----------------------------------------------------------------------------------

    def check_lengths(self) -> None:
        readmes = {f"{step}/README.md" for step in self.steps}  # their words are counted
        paths = [path for folder in FOLDERS for top in self.root.glob(folder) for path in top.rglob("*")]
        for path in sorted({*paths, *self.root.glob("*.*")}):
            name = path.relative_to(self.root).as_posix()
            if not path.is_file() or not HAND_WRITTEN.search(name) or name in readmes:
                continue
            what = "a test" if IS_A_TEST.search(name) else "a file"
            lines, most = line_count(without_tables(self.read(name))), LIMITS[f"lines of {what}"]
            if lines > most:
                self.find(name, f"{lines} lines, of at most {most} for {what}")

    # ---- Sources --------------------------------------------------------------------------------

    def check_sources(self) -> None:
        for name in self.sources:
            text = self.read(name)
            code = without_comments(text)
            if name.endswith(".h") and "#pragma once" not in code and name not in LISTS:
                self.find(f"{name}:1", "a header begins with #pragma once")
            self.check_includes(name, text)
            if BACKENDS.search(name):
                continue
            self.match_all(name, code, ONE_VENDOR)
            if not name.endswith(".cpp") and not TESTS.search(name):
                self.match_all(name, code, WAVE_SIZE)

    def match_all(self, name: str, code: str, rules: dict[str, str]) -> None:
        for pattern, what in rules.items():
            for found in re.finditer(pattern, code):
                self.find(f"{name}:{line_of(code, found.start())}", f"`{found[0].strip()}`: {what}")

    def check_includes(self, name: str, text: str) -> None:
        own = step_of(name)
        for line, target in includes(text):
            where = f"{name}:{line}"
            if not re.match(r"(common|stage\d+_\w+)/", target):
                self.find(where, f'"{target}": an include is spelled from the root of the repository')
                continue
            if not (self.root / target).is_file():
                self.find(where, f'"{target}" does not exist')
            if not target.endswith(".h"):
                self.find(where, f'"{target}": only headers are included')
            other = step_of(target)
            if not other:
                continue
            if not own:
                self.find(where, f'"{target}": common/ includes no step')
            elif order(other) > order(own):
                self.find(where, f'"{target}" is in a later step: arrows go only down')

    # ---- Second definitions ---------------------------------------------------------------------

    def check_copies(self) -> None:
        """A step defines nothing that common/*.h or an earlier one's detail/*.h has: no class or macro of the
        same name, no function of the same name and number of parameters, and no constant of common/. Nor is
        a body the same, whatever it is called, as one in an earlier step."""
        names: dict[tuple[str, int], str] = {}
        bodies: dict[str, tuple[str, str]] = {}

        def keep(source: str, found: list[Definition], is_shared: bool) -> None:
            for one in found:
                if OWN_IN_EACH_STEP.fullmatch(one.name):
                    continue
                if is_shared and (one.kind != IS_CONSTANT or source.startswith("common/")):
                    names.setdefault((one.name, one.parameters), source)
                if len(one.body) >= LIMITS["characters of a copied body"]:
                    bodies.setdefault(one.body, (source, one.name))

        for source in self.sources:
            if re.fullmatch(r"common/\w+\.h", source):
                keep(source, definitions(self.read(source)), True)
        for step in sorted(filter(STEP_FOLDER.fullmatch, self.steps), key=order):
            here = [source for source in self.sources if step_of(source) == step]
            defined = {source: definitions(self.read(source)) for source in here}
            for source, found in defined.items():
                for one in found:
                    self.check_copy(source, one, names, bodies)
            for source, found in defined.items():
                keep(source, found, "/detail/" in source)

    def check_copy(self, source: str, one: Definition, names: dict, bodies: dict) -> None:
        if OWN_IN_EACH_STEP.fullmatch(one.name):
            return
        where = f"{source}:{one.line}"
        if (owner := names.get((one.name, one.parameters))) and (one.body or one.parameters < 0):
            self.find(where, f"{one.name} is defined in {owner}: include that")
        elif one.body in bodies:
            owner, name = bodies[one.body]
            self.find(where, f"{one.name} is a copy of {name} in {owner}: include it, or move it to common/")

    # ---- The build ------------------------------------------------------------------------------

    def check_build(self, build: Path) -> None:
        """CMake leaves one source per header in headers/, which the target `headers` compiles: a .hip file or,
        for a header of plain C++, a .cpp file. A header that the source beside it includes first needs none."""
        compiled = {target for pattern in ("headers/*.hip", "headers/*.cpp") for source in build.glob(pattern)
                    for _, target in includes(source.read_text(encoding="utf-8"))}
        for source in self.sources:
            header, is_source = re.subn(r"\.(cpp|hip)$", ".h", source)
            first = re.search(r"^#include .*", self.read(source), re.MULTILINE) if is_source else None
            if first and first[0] == f'#include "{header}"':
                compiled.add(header)
        for name in self.sources:
            if re.fullmatch(r"common/\w+\.h|stage\d+_\w+/\w+/(detail/)?\w+\.h", name) \
                    and name not in compiled and name not in NOT_ALONE:
                self.find(name, f"is not compiled alone in {build}")


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, help="a configured build folder")
    arguments = parser.parse_args()
    checker = Checker(arguments.root)
    checker.check_steps()
    checker.check_lengths()
    checker.check_sources()
    checker.check_copies()
    if arguments.build:
        checker.check_build(arguments.build)
    for finding in checker.findings:
        print(finding)
    print(f"structure: {len(checker.steps)} steps and {len(checker.sources)} sources, "
          f"{len(checker.findings)} findings")
    return 1 if checker.findings else 0


if __name__ == "__main__":
    sys.exit(main())
