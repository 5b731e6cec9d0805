"""compiling.py for steps whose kernels are files in versions/: only the learner's files are compiled.

A program of such a step links its library `step_<name>`, which has an object file for each version. The
learner's object file comes before the library on the command line, so that the linker has all that it asks
for and leaves the repository's own where it is. Were a name missing or spelt otherwise, the repository's
would be taken silently: so the names are compared before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import process, symbols
from .build import Build
from .compiling import JUDGED, UNLINKED, Compiled, Compiler, lock_of, quoted
from .exercises import Course


class VersionCompiler(Compiler):
    PRECOMPILED = {"program": ("common/gpu.h",)}

    def __init__(self, build: Build, course: Course, folder: Path, seconds: float):
        super().__init__(build, course, folder, seconds)
        step = course.step
        self._library = f"libstep_{step.name}.a"
        if self._library not in self.libraries():
            raise self.not_built()

    def needed(self, cpu: Build) -> list[str]:
        program = symbols.of([cpu.program(self.course.step)])
        # Templates are weak wherever they are made. Only those that a file before leaves open are a library's.
        unresolved = symbols.of(cpu.folder / made for made in self._objects("program")).unresolved
        for library in self.libraries():  # each before those that it uses
            found = symbols.of([cpu.folder / library])
            is_used = found.strong & program.strong or found.weak & program.weak & unresolved
            if library.startswith("libstep_") and library != self._library and not is_used:
                if (cpu.folder / library).is_file():
                    self.drop(library)
                continue
            unresolved |= found.unresolved
        return self.parts("program")

    def parts(self, what: str) -> list[str]:
        return [*self._objects(what), *self.libraries(what)]

    def compile(self, files: dict[str, str], shown_as: dict[str, str], fast: bool,
                behind: bool = False, what: str = "program") -> Compiled:
        # An object file is the same for the program and the test.
        newest = self.newest([*self.parts("program"), *(self._object_of(file) for file in files)])
        with ThreadPoolExecutor(process.cpu_count()) as pool:
            made = dict(zip(files, pool.map(
                lambda name: self._compile_one(name, files[name], shown_as, newest, fast, behind), files)))
        messages = "".join(dict.fromkeys(text for _, _, text in made.values()))
        sources = {name: source for name, (source, _, _) in made.items()}
        objects = {name: made_object for name, (_, made_object, _) in made.items()}
        if self._stopped or not all(path and path.is_file() for path in objects.values()):
            return Compiled(None, "" if self._stopped else messages, sources)
        newest = max(newest, self.newest(self.parts(what)))
        key = json.dumps([sorted(map(str, objects.values())), self.link_of(what), newest])
        place = self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]
        program = place / self.name_of(what)
        if not program.is_file():
            refusal = self._refusal(objects, what)  # what was linked before was compared then
            if refusal:
                return Compiled(None, messages, sources, refusal)
            place.mkdir(parents=True, exist_ok=True)
            handle, linked = tempfile.mkstemp(dir=place)
            os.close(handle)
            own = " ".join(map(quoted, objects.values()))
            command = re.sub(r" -o \S+", f" -o {quoted(Path(linked))}", self.link_of(what), count=1)
            command = re.sub(rf"(?<= )(?=\S*{re.escape(self._library)}( |$))", f"{own} ", command, count=1)
            code, text = self.link(command, place, behind, fast)
            if code != 0:
                Path(linked).unlink(missing_ok=True)  # the linker may have done so
                self.is_verdict(code, text, UNLINKED)
                return Compiled(None, "" if self._stopped else messages + text, sources)
            os.chmod(linked, 0o755)
            os.replace(linked, program)
        return Compiled(program, messages, sources)

    def commands_of(self, what: str) -> list[tuple[str, str]]:
        return [self.command_of(self.course.step.folder / file) for file in self.course.files]

    def _objects(self, what: str) -> list[str]:
        """The object files of the program itself, main() above all."""
        return re.findall(r"(?<= )[^/\s]\S*\.o(?= |$)", self.link_of(what).partition(self._library)[0])

    def _object_of(self, file: str) -> str:
        """What the build makes of a file of versions/."""
        return self.command_of(self.course.step.folder / file)[1]

    def _compile_one(self, name: str, text: str, shown_as: dict[str, str], newest: int, fast: bool,
                     behind: bool) -> tuple[Path, Path | None, str]:
        """The source and the object file of a text, and what the compiler said; None where another
        thread has ended it. Both are kept under a name that says all they depend on."""
        command, object_file = self.command_of(self.course.step.folder / name)
        key = hashlib.sha256(json.dumps([text, command, newest, fast]).encode()).hexdigest()[:16]
        place = self.folder / "objects" / key
        source, made, log = place / Path(name).name, place / "object.o", place / "messages.txt"
        rename = {str(source): shown_as.get(name, name)}
        with lock_of(place):
            if log.is_file():
                text = log.read_text(encoding="utf-8")
            else:
                place.mkdir(parents=True, exist_ok=True)
                source.write_text(text, encoding="utf-8")
                handle, new = tempfile.mkstemp(dir=place)
                os.close(handle)
                adapted = self.adapted(command, object_file, quoted(Path(new)), fast)
                original = re.escape(str(self.course.step.folder / name))
                adapted = re.sub(rf"-c '?{original}'?(?= |$)", f"-c {quoted(source)}", adapted)
                code, text = self.run(adapted, place, behind, {})
                if code != 0:
                    Path(new).unlink(missing_ok=True)
                else:
                    os.replace(new, made)
                if self._stopped:
                    return source, None, ""
                if self.is_verdict(code, text, JUDGED, rename):
                    log.write_text(text, encoding="utf-8")
        for path, shown in rename.items():
            text = text.replace(path, shown)
        return source, made, text

    def _refusal(self, objects: dict[str, Path], what: str) -> str:
        """A line on the first of the learner's files that does not define what the step calls."""
        replaced = {self.build.folder / self._object_of(file) for file in objects}
        step_objects = self.build.folder / f"CMakeFiles/step_{self.course.step.name}.dir"
        rest = [path for path in step_objects.rglob("*.o") if path not in replaced]
        rest += [self.build.folder / path for path in self._objects(what)]
        for file, made in objects.items():
            others = symbols.of([*rest, *(path for name, path in objects.items() if name != file)])
            line = symbols.refusal(Path(file).name, symbols.of([made]),
                                   symbols.of([self.build.folder / self._object_of(file)]), others)
            if line:
                return line
        return ""
