"""Whether two texts of a file compile to the same machine code, optimized as the build does.

A mutant of which the compiler makes the same is equivalent: no check can refuse it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
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

    def same(self, course: Course, file: str, one: str, other: str) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            made = self._objects(course, file, one, place)
            return made is not None and made == self._objects(course, file, other, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _objects(self, course: Course, file: str, text: str, place: Path) -> list[bytes] | None:
        """The object files that are made of a text; None where one can't be. Both texts lie in the same
        place: the names of files are in the code."""
        step = course.step
        overlay = place / "include" / step.folder.parent.name / step.folder.name
        source = overlay / file
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text, encoding="utf-8")
        compiler = compiling.of(self.build, course, place / "unused")
        found = []
        for command, object_file in self._commands(compiler, course, file):
            made = place / "object.o"
            command = re.sub(r" -MD\b| -M[TF] \S+", "", command).replace(" -Werror", "")
            command = command.replace(f" -o {object_file}", f" -o {quoted(made)}", 1)
            command = command.replace(" -I", f" -I{quoted(place / 'include')} -I", 1)
            command = command.replace(str(step.folder / file), str(source))
            code, _, _ = process.limited(["sh", "-c", command], compiling.TIMEOUT,
                                         {**self.build.environment, "CCACHE_DISABLE": "1"}, self.build.folder)
            if code != 0:
                return None
            found.append(made.read_bytes())
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
