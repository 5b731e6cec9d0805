"""compiling.py for steps in the old form: their kernels are headers, which the program includes.

The learner's headers lie in a folder that comes before the repository, and the whole program is compiled
with them. This file goes when the last such step has its versions/.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import process
from .build import Build
from .compiling import Compiled, Compiler, quoted
from .errors import CourseError
from .exercises import Course


class HeaderCompiler(Compiler):
    PRECOMPILED = ("common/program.h", "common/sample.h")

    def __init__(self, build: Build, course: Course, folder: Path, seconds: float):
        super().__init__(build, course, folder, seconds)
        step = course.step
        self._sources: list[tuple[str, str]] = []  # the command and the object file of each
        for name in (f"{step.name}.hip", f"{step.name}_instances.hip"):
            try:
                self._sources.append(self.command_of(step.folder / name))
            except CourseError:  # most steps have no instances
                continue
        if not self._sources:
            raise self.not_built()

    def libraries(self) -> list[str]:
        own = f"lib{self.course.step.name}_instances.a"
        return [library for library in super().libraries() if library != own]

    def needed(self, cpu: Build) -> list[str]:
        # A later step links what all earlier ones compile apart; most use little of it.
        step = self.course.step
        deps = process.output(["ninja", "-C", str(cpu.folder), "-t", "deps",
                               f"CMakeFiles/{step.name}.dir/{step.folder.parent.name}/{step.folder.name}/"
                               f"{step.name}.hip.o"]) or ""
        for library in self.libraries():
            name = re.fullmatch(r"lib(\w+)_instances\.a", library)
            if name and f"/{name[1]}.h\n" not in deps:
                self._link = self._link.replace(f" {library}", "", 1)
        return self.libraries()

    def compile(self, files: dict[str, str], shown_as: dict[str, str], fast: bool,
                behind: bool = False) -> Compiled:
        step = self.course.step
        newest = self.newest(self.libraries())
        key = json.dumps([sorted(files.items()), fast, self._sources, self._link, newest])
        place = self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]
        program, log = place / step.name, place / "messages.txt"
        overlay = place / "include" / step.folder.parent.name / step.folder.name
        sources = {name: overlay / name for name in files}
        if log.is_file():
            return Compiled(program if program.is_file() else None, log.read_text(encoding="utf-8"), sources)
        overlay.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (overlay / name).write_text(text, encoding="utf-8")
        rename = {str(overlay / name): path for name, path in shown_as.items()}

        # The program and, where it is compiled apart, what the step's header declares extern.
        link = re.sub(r" -o \S+", f" -o {quoted(place / 'linked')}", self._link, count=1)
        commands = []
        for number, (command, object_file) in enumerate(self._sources):
            made = quoted(place / f"{number}.o")
            adapted = self.adapted(command, object_file, made, fast)
            commands.append(adapted.replace(" -I", f" -I{quoted(place / 'include')} -I", 1))
            library = rf"\S*lib{step.name}_instances\.a"
            link = (link.replace(object_file, made, 1) if number == 0
                    else re.sub(library, made, link, count=1))
        with ThreadPoolExecutor(process.cpu_count()) as pool:
            done = list(pool.map(lambda command: self.run(command, place, behind, rename), commands))
        if all(code == 0 for code, _ in done):
            done.append(self.link(link, place, behind, fast))
        messages = "".join(dict.fromkeys(text for _, text in done))
        for number in range(len(self._sources)):
            (place / f"{number}.o").unlink(missing_ok=True)
        if self._stopped:
            return Compiled(None, "")
        if all(code == 0 for code, _ in done):
            os.replace(place / "linked", program)
        log.write_text(messages, encoding="utf-8")
        return Compiled(program if program.is_file() else None, messages, sources)
