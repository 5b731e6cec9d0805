"""Whether two texts of a file compile to the same machine code, optimized as the build does.

A mutant of which the compiler makes the same is equivalent: no check can refuse it.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from pathlib import Path

from . import compiling, process
from .build import Build
from .compiling import quoted
from .errors import CourseError
from .exercises import Course


class SameCode:
    """Compiles into `folder`, which it makes and leaves empty."""

    def __init__(self, build: Build, folder: Path):
        self.build, self.folder = build, folder
        self._originals: dict[tuple[str, str], list[bytes] | None] = {}
        self._lock = threading.Lock()

    def same(self, course: Course, file: str, original: str, changed: str) -> bool:
        """False as well where one can't be compiled like that."""
        name = course.step.name, file
        with self._lock:
            if name not in self._originals:
                self._originals[name] = self._hashes(course, file, original)
        made = self._originals[name]
        return made is not None and made == self._hashes(course, file, changed)

    def _hashes(self, course: Course, file: str, text: str) -> list[bytes] | None:
        """Of the object files that are made of a text; None where one can't be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        step = course.step
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            place = Path(temporary)
            overlay = place / "include" / step.folder.parent.name / step.folder.name
            source, made = overlay / file, place / "object.o"
            source.parent.mkdir(parents=True)
            source.write_text(text, encoding="utf-8")
            compiler = compiling.of(self.build, course, place / "unused")
            found = []
            for command, object_file in self._commands(compiler, course, file):
                command = re.sub(r" -MD\b| -M[TF] \S+", "", command).replace(" -Werror", "")
                command = command.replace(f" -o {object_file}", f" -o {quoted(made)}", 1)
                # The names of files are in the code: of all texts the same ones.
                command = command.replace(
                    " -I", f" -ffile-prefix-map={quoted(place)}=. -I{quoted(place / 'include')} -I", 1)
                command = command.replace(str(step.folder / file), str(source))
                code, _, _ = process.limited(["sh", "-c", command], compiling.TIMEOUT,
                                             {**self.build.environment, "CCACHE_DISABLE": "1"},
                                             self.build.folder)
                if code != 0:
                    return None
                found.append(hashlib.sha256(made.read_bytes()).digest())
        return found

    @staticmethod
    def _commands(compiler: compiling.Compiler, course: Course, file: str) -> list[tuple[str, str]]:
        """What the build compiles the file with, and the object files' names. A header is compiled with the
        step's program, and with its instances where it has any."""
        step = course.step
        if course.has_versions:
            return [compiler.command_of(step.folder / file)]
        commands = []
        for name in (f"{step.name}.hip", f"{step.name}_instances.hip"):
            try:
                commands.append(compiler.command_of(step.folder / name))
            except CourseError:  # most steps have no instances
                continue
        return commands
