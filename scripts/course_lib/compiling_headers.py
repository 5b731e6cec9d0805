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
from .compiling import JUDGED, UNLINKED, Compiled, Compiler, quoted
from .exercises import Course


class HeaderCompiler(Compiler):
    PRECOMPILED = {"program": ("common/program.h", "common/sample.h"),
                   "test": ("common/testing.h", "common/program.h", "common/guarded.h", "common/npy.h")}

    def __init__(self, build: Build, course: Course, folder: Path, seconds: float):
        super().__init__(build, course, folder, seconds)
        self.commands_of("program")

    def commands_of(self, what: str) -> list[tuple[str, str]]:
        """Of the program's source and, where the step has one, of the source that holds what its header
        declares extern."""
        folder = self.course.step.folder
        instances = folder / f"{self.course.step.name}_instances.hip"
        sources = [folder / f"{self.name_of(what)}.hip", *([instances] if instances.is_file() else [])]
        return [self.command_of(source, what) for source in sources]

    def libraries(self, what: str = "program") -> list[str]:
        own = f"lib{self.course.step.name}_instances.a"
        return [library for library in super().libraries(what) if library != own]

    def needed(self, cpu: Build) -> list[str]:
        # A later step links what all earlier ones compile apart; most use little of it.
        step = self.course.step
        deps = process.output(["ninja", "-C", str(cpu.folder), "-t", "deps",
                               f"CMakeFiles/{step.name}.dir/{step.folder.parent.name}/{step.folder.name}/"
                               f"{step.name}.hip.o"]) or ""
        for library in self.libraries():
            name = re.fullmatch(r"lib(\w+)_instances\.a", library)
            if name and f"/{name[1]}.h\n" not in deps:
                self.drop(library)
        return self.parts("program")

    def compile(self, files: dict[str, str], shown_as: dict[str, str], fast: bool,
                behind: bool = False, what: str = "program") -> Compiled:
        step = self.course.step
        newest = self.newest(self.parts(what))
        sources = self.commands_of(what)
        key = json.dumps([sorted(files.items()), fast, sources, self.link_of(what), newest])
        place = self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]
        program, log = place / self.name_of(what), place / "messages.txt"
        overlay = place / "include" / step.folder.parent.name / step.folder.name
        own = {name: overlay / name for name in files}
        if log.is_file():
            return Compiled(program if program.is_file() else None, log.read_text(encoding="utf-8"), own)
        overlay.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (overlay / name).write_text(text, encoding="utf-8")
        rename = {str(overlay / name): path for name, path in shown_as.items()}

        # The program and, where it is compiled apart, what the step's header declares extern.
        link = re.sub(r" -o \S+", f" -o {quoted(place / 'linked')}", self.link_of(what), count=1)
        commands = []
        for number, (command, object_file) in enumerate(sources):
            made = quoted(place / f"{number}.o")
            adapted = self.adapted(command, object_file, made, fast, what if number == 0 else "program")
            commands.append(adapted.replace(" -I", f" -I{quoted(place / 'include')} -I", 1))
            library = rf"\S*lib{step.name}_instances\.a"
            link = (link.replace(object_file, made, 1) if number == 0
                    else re.sub(library, made, link, count=1))
        with ThreadPoolExecutor(process.cpu_count()) as pool:
            done = list(pool.map(lambda command: self.run(command, place, behind, rename), commands))
        compiled = all(code == 0 for code, _ in done)
        linked = self.link(link, place, behind, fast) if compiled else (None, "")
        for number in range(len(sources)):
            (place / f"{number}.o").unlink(missing_ok=True)
        if self._stopped:
            return Compiled(None, "")
        messages = "".join(dict.fromkeys(text for _, text in [*done, linked]))
        names = [*rename.values(), *map(str, own.values())]
        kept = all([self.is_verdict(code, text, JUDGED, names) for code, text in done])
        if compiled:
            self.is_verdict(*linked, UNLINKED)
            kept = linked[0] == 0  # what does not link may do so with another build
        if linked[0] == 0:
            os.replace(place / "linked", program)
        if kept:
            log.write_text(messages, encoding="utf-8")
        return Compiled(program if program.is_file() else None, messages, own)
