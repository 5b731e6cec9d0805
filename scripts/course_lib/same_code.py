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
from .exercises import Course


class SameCode:
    """Compiles into `folder`, which it makes and leaves empty."""

    def __init__(self, build: Build, folder: Path):
        self.build, self.folder = build, folder
        self._originals: dict[tuple[str, str], bytes | None] = {}
        self._lock = threading.Lock()

    def same(self, course: Course, file: str, original: str, changed: str) -> bool:
        """False as well where one can't be compiled like that."""
        name = course.step.name, file
        with self._lock:
            if name not in self._originals:
                self._originals[name] = self._hash(course, file, original)
        made = self._originals[name]
        return made is not None and made == self._hash(course, file, changed)

    def _hash(self, course: Course, file: str, text: str) -> bytes | None:
        """Of the object file that is made of a text; None where none can be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            place = Path(temporary)
            source, made = place / Path(file).name, place / "object.o"
            source.write_text(text, encoding="utf-8")
            command, object_file = compiling.Compiler(self.build, course, place / "unused").command_of(file)
            command = re.sub(r" -MD\b| -M[TF] \S+", "", command).replace(" -Werror", "")
            command = command.replace(f" -o {object_file}", f" -o {quoted(made)}", 1)
            # The names of files are in the code: of all texts the same ones.
            command = command.replace(" -I", f" -ffile-prefix-map={quoted(place)}=. -I", 1)
            command = command.replace(str(course.step.folder / file), str(source))
            code, _, _ = process.limited(["sh", "-c", command], compiling.TIMEOUT,
                                         {**self.build.environment, "CCACHE_DISABLE": "1"},
                                         self.build.folder)
            return hashlib.sha256(made.read_bytes()).digest() if code == 0 else None
