"""Compiles what a learner wrote into the step's own program, or into its test.

Only the learner's files are compiled, with the commands of the step's build, which must be up to date. A
program links its step's library `step_<name>`, which has an object file for each version. The learner's
object file comes before the library on the command line, so that the linker has all that it asks for and
leaves the repository's own where it is. Were a name missing or spelt otherwise, the repository's would be
taken silently: so the names are compared before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import process, symbols
from .build import Build
from .errors import FAILED, CourseError
from .exercises import Course

TIMEOUT = 600.0  # seconds
PRECOMPILED = "common/gpu.h"  # what every version includes before anything of its step

# In a check a variable that nobody has set holds a large number; an index outside an array and an access
# to what is not aligned as its type asks are reported. ThreadSanitizer's runs leave the last two to the
# others: they double the time that its compilation takes. A file of many kernels does without the last
# one: 7.5's flash is compiled in 4 s in place of 9.
FILLED = "-ftrivial-auto-var-init=pattern -D_GLIBCXX_ASSERTIONS"
BOUNDS = "-fno-sanitize-recover=all -fsanitize=bounds"


def watched(command: str, optimized: bool = True) -> str:
    """The options that a check adds to a command of the build."""
    if " -fsanitize=thread" in command:
        return FILLED
    return f"{FILLED} {BOUNDS},alignment" if optimized else f"{FILLED} {BOUNDS}"


# A compiler that judges a text names a line of it.
JUDGED = re.compile(r"^\S.*?(?::\d+(?::\d+)?:|\(\d+\):) (?:fatal )?error\b", re.MULTILINE)
# A linker that judges a text names what is missing in it, or is there twice.
UNLINKED = re.compile(r"undefined (?:reference|symbol)|multiple definition|duplicate symbol")
# What both say where the machine has failed, and not the text; not looked for in lines that speak of a
# line of it, or quote one.
MACHINE = re.compile(
    r"\b[Kk]illed\b|[Oo]ut of memory|memory exhausted|[Cc]annot allocate memory|bad_alloc|"
    r"internal compiler error|[Cc]annot execute|cannot find|cannot open|can't open|[Nn]ot found$|"
    r"No such file or directory|Permission denied|Input/output error|Too many open files|"
    r"Resource temporarily unavailable|[Ss]egmentation fault|[Bb]us error")
ON_A_LINE = re.compile(r"^\s*\d* \||^\S.*?(?::\d+(?::\d+)?:|\(\d+\):) "
                       r"(?!fatal error|internal compiler error)")
MISSING_INCLUDE = re.compile(r"^(.+?):\d+(?::\d+)?: fatal error: .*(?:No such file|not found)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    program: Path | None  # None: it was refused
    messages: str  # the compiler's, with the learner's paths
    sources: dict[str, Path] = field(default_factory=dict)  # what each file was compiled as, by its name
    refusal: str = ""  # why it was not linked, in a line: it does not define what the step calls

    def places(self, named: dict[str, str]) -> dict[str, str]:
        """What the learner knows each file as, by the path that it was compiled under."""
        return {str(path): named[name] for name, path in self.sources.items() if name in named}


class Compiler:
    """Compiles a step's program with some of its version files replaced."""

    def __init__(self, build: Build, course: Course, folder: Path, seconds: float = TIMEOUT):
        """`folder` holds what it makes, `seconds` is what one command may take."""
        self.build, self.course, self.folder, self._seconds = build, course, folder, seconds
        # What is compiled once is kept here anyway, and ccache can shorten the paths that messages and
        # debug information show, by which the learner's file is known.
        self._environment = {**build.environment, "CCACHE_DISABLE": "1"}
        self._children: list[subprocess.Popen] = []
        self._stopped = False
        self._commands: dict[str, list[str]] = {}
        self._links: dict[str, str] = {}  # the last command of each program
        self._library = f"libstep_{course.step.name}.a"
        if self._library not in self.libraries():
            raise self.not_built()

    def compile(self, files: dict[str, str], shown_as: dict[str, str], fast: bool,
                behind: bool = False, what: str = "program") -> Compiled:
        """The step's "program", or its "test". `files` are texts by file name, `shown_as` the paths that
        the learner knows them by. `fast`: little optimization, for checks; else as the course builds it,
        for times. What was compiled before is taken from the folder. `behind`: whatever else runs goes
        first. Raises CourseError(FAILED) where the machine has failed: that is no verdict on a text, and
        nothing of it is kept."""
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

    def _compile_one(self, name: str, text: str, shown_as: dict[str, str], newest: int, fast: bool,
                     behind: bool) -> tuple[Path, Path | None, str]:
        """The source and the object file of a text, and what the compiler said; None where another
        thread has ended it. Both are kept under a name that says all they depend on."""
        command, object_file = self.command_of(name)
        key = hashlib.sha256(json.dumps([text, command, newest, fast]).encode()).hexdigest()[:16]
        place = self.folder / "objects" / key
        source, made, log = place / Path(name).name, place / "object.o", place / "messages.txt"
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
                code, text = self.run(adapted, place, behind)
                if code != 0:
                    Path(new).unlink(missing_ok=True)
                else:
                    os.replace(new, made)
                if self._stopped:
                    return source, None, ""
                if self.is_verdict(code, text, JUDGED, str(source)):
                    log.write_text(text, encoding="utf-8")
        return source, made, text.replace(str(source), shown_as.get(name, name))

    def _refusal(self, objects: dict[str, Path], what: str) -> str:
        """A line on the first of the learner's files that does not define what the step calls."""
        kept = symbols.Kept(self.build.folder)
        replaced = {self._object_of(file) for file in objects}
        step_objects = self.build.folder / f"CMakeFiles/step_{self.course.step.name}.dir"
        made_by_build = {str(path.relative_to(self.build.folder)) for path in step_objects.rglob("*.o")}
        rest = kept.of([*sorted(made_by_build - replaced), *self._objects(what)])
        for file, made in objects.items():
            mine = symbols.of(path for name, path in objects.items() if name != file)
            line = symbols.refusal(Path(file).name, symbols.of([made]), kept.of([self._object_of(file)]),
                                   symbols.together([rest, mine]))
            if line:
                return line
        return ""

    def precompile(self) -> None:
        """Makes what a check's compilations share, before the first of them."""
        self.adapted(*self.command_of(self.course.files[0]), "", fast=True)

    def needed(self, cpu: Build) -> list[str]:
        """What must be built before compile() can link the program; drops libraries that it, as `cpu` has
        built it, does not use."""
        kept = symbols.Kept(cpu.folder)
        program = kept.of([str(cpu.program(self.course.step).relative_to(cpu.folder))])
        # Templates are weak wherever they are made. Only those that a file before leaves open are a library's.
        unresolved = kept.of(self._objects("program")).unresolved
        for library in self.libraries():  # each before those that it uses
            found = kept.of([library])
            is_used = found.strong & program.strong or found.weak & program.weak & unresolved
            if library.startswith("libstep_") and library != self._library and not is_used:
                if (cpu.folder / library).is_file():
                    self.drop(library)
                continue
            unresolved |= found.unresolved
        return self.parts("program")

    def parts(self, what: str) -> list[str]:
        """What compile() takes from the build, in which it must be up to date."""
        return [*self._objects(what), *self.libraries(what)]

    def libraries(self, what: str = "program") -> list[str]:
        """The build's own libraries that the program links."""
        return re.findall(r"(?<= )[^/\s]\S*\.a(?= |$)", self.link_of(what))

    def _objects(self, what: str) -> list[str]:
        """The object files of the program itself, main() above all."""
        return re.findall(r"(?<= )[^/\s]\S*\.o(?= |$)", self.link_of(what).partition(self._library)[0])

    def _object_of(self, file: str) -> str:
        """What the build makes of a file of versions/."""
        return self.command_of(file)[1]

    def name_of(self, what: str) -> str:
        return self.course.step.name + ("_test" if what == "test" else "")

    def commands(self, what: str) -> list[str]:
        """The build's commands for a program and all that it needs; none where it does not know it."""
        if what not in self._commands:
            answer = process.output(["ninja", "-C", str(self.build.folder), "-t", "commands",
                                     f"{self.course.step.folder.parent.name}/{self.name_of(what)}"])
            self._commands[what] = (answer or "").splitlines()
        return self._commands[what]

    def link_of(self, what: str) -> str:
        if what not in self._links:
            self._links[what] = next(iter(self.commands(what)[-1:]), "")
        return self._links[what]

    def drop(self, library: str) -> None:
        """The program does not use the library: it is not linked."""
        self._links["program"] = self.link_of("program").replace(f" {library}", "", 1)

    def stop(self) -> None:
        """Ends a compile() in another thread, and lets none begin."""
        self._stopped = True
        for child in self._children:
            process.end(child)

    def command_of(self, file: str) -> tuple[str, str]:
        """The command that compiles a file of versions/ in the build, and the object file that it makes."""
        source = self.course.step.folder / file
        found = [line for line in self.commands("program")
                 if re.search(rf"-c \S*{re.escape(str(source))}'?( |$)", line)]
        if not found:
            raise self.not_built()
        return found[-1], re.search(r" -o (\S+)", found[-1])[1]

    def not_built(self) -> CourseError:
        step = self.course.step
        return CourseError(f"the build in {self.build.folder} has no {step.name}: run "
                           f"`scripts/course run {step.number}` first", FAILED)

    def newest(self, names: list[str]) -> int:
        """When the youngest of the files, which must be built, was made; and the program, if it is there."""
        made = [self.build.folder / name for name in names]
        missing = next((path for path in made if not path.is_file()), None)
        if missing:
            raise CourseError(f"{missing} is not built: run `scripts/course run "
                              f"{self.course.step.number}` first", FAILED)
        made += [path for path in (self.build.program(self.course.step),) if path.is_file()]
        return max((path.stat().st_mtime_ns for path in made), default=0)

    def run(self, command: str, place: Path, behind: bool) -> tuple[int | None, str]:
        """One command in the build's folder: its exit code and what it said."""
        if self._stopped:
            return None, ""
        words = [*(["nice", "-n", "10"] if behind else []), "sh", "-c", f"exec 2>&1; {command}"]
        code, text, _ = process.limited(words, self._seconds, self._environment, self.build.folder,
                                        self._started)
        process.raise_if_disk_full(text, place)
        return code, text

    def is_verdict(self, code: int | None, text: str, judged: re.Pattern, own: str = "") -> bool:
        """Whether what a command has said may be kept: it has done its work, or has refused the text with
        a message that fits `judged`. Raises CourseError where the machine has failed instead. `own` is
        the name that `text` has for the learner's file: another that it includes and that is not there is
        its fault, but may be there another time."""
        if code == 0 or self._stopped:
            return code == 0
        missing = MISSING_INCLUDE.search(text)
        if missing and missing[1] == own:
            return False
        failed = next((line.strip() for line in text.splitlines()
                       if not ON_A_LINE.match(line) and MACHINE.search(line)), "")
        # sh gives 126 and more where a command can't be run or was ended.
        if code is not None and 0 < code < 126 and not failed and judged.search(text):
            return True
        if code is None:
            failed = f"not at its end after {self._seconds:.0f} s"
        elif not failed:
            failed = f"exit code {code}, without a word on the file"
        raise CourseError(f"the compiler failed, which says nothing about your file ({failed}): run the same "
                          "command again", FAILED, text.rstrip())

    def link(self, command: str, place: Path, behind: bool, fast: bool) -> tuple[int | None, str]:
        """gold is twice as quick, where the compiler can use it."""
        if fast:
            command = command.replace(" -o ", f" {watched(command)} -o ", 1)
        if fast and self.build.backend == "cpu" and shutil.which("ld.gold"):
            quick = self.run(command.replace(" -o ", " -fuse-ld=gold -o ", 1), place, behind)
            if quick[0] == 0:
                return quick
        return self.run(command, place, behind)

    def adapted(self, command: str, object_file: str, made: str, fast: bool) -> str:
        """The build's command for a learner's text, into another file."""
        command = re.sub(r" -MD\b| -M[TF] \S+| -Werror\b| -Wunused-const-variable=1", "", command)
        # An emptied region leaves names that nothing uses: that is no news to whoever must fill it.
        command = re.sub(r" -Wextra\b", " -Wextra -Wno-unused-variable -Wno-unused-const-variable"
                         " -Wno-unused-parameter -Wno-unused-but-set-variable",
                         command) if " -x cu" not in command else command
        command = command.replace(" -x cu ", " -x cu -lineinfo ", 1)  # for compute-sanitizer; costs no time
        if fast:
            command = re.sub(r" -O[0-9s]\b", f" {self._level} {watched(command, self.course.optimized)}", command)
        if self.build.backend == "cpu":
            common = self._precompiled(command, object_file, fast)
            command = command.replace(" -c ", f" {common} -c ", 1)
        return command.replace(f" -o {object_file}", f" -o {made}", 1)

    @property
    def _level(self) -> str:
        """How much a check's compilation optimizes. What -Og makes runs twice as fast, and most files are as
        quickly compiled as at -O0; one of many kernels takes nearly twice as long."""
        return "-Og" if self.course.optimized else "-O0"

    def _started(self, child: subprocess.Popen) -> None:
        self._children.append(child)
        if self._stopped:
            process.end(child)

    def _precompiled(self, command: str, object_file: str, fast: bool) -> str:
        """The words that bring in what every version includes, precompiled by GCC: most of the time
        of a check. A compiler that can't use the file reads the headers instead."""
        name = f"{Path(PRECOMPILED).stem}-{self.build.backend}{self._level if fast else '-timed'}"
        folder = self.folder.parent / name
        header, made, log = folder / "common.h", folder / "common.h.gch", folder / "made_for.txt"
        new = folder / f"new-{os.getpid()}"
        command = re.sub(r" -c .*", f" -x c++-header -c {quoted(header)} -o {quoted(new)}",
                         command.replace(f" -o {object_file}", "", 1).replace(" -x c++ ", " ", 1))
        with lock_of(folder):
            root = self.build.root / "common"
            texts = [path.read_bytes() for path in sorted(root.rglob("*.h"))]
            key = hashlib.sha256(repr([command.replace(str(new), ""), texts]).encode()).hexdigest()
            if not log.is_file() or log.read_text(encoding="utf-8") != key:
                folder.mkdir(parents=True, exist_ok=True)
                made.unlink(missing_ok=True)
                header.write_text(f'#include "{PRECOMPILED}"\n', encoding="utf-8")
                code, text, _ = process.limited(["sh", "-c", f"exec 2>&1; {command}"], self._seconds,
                                                self._environment, self.build.folder)
                process.raise_if_disk_full(text, folder)
                if code == 0 and new.is_file():
                    os.replace(new, made)
                if code == 0 or JUDGED.search(text) and not MACHINE.search(text):
                    log.write_text(key, encoding="utf-8")
        return f"-include {quoted(header)}" if made.is_file() else ""


_locks: dict[Path, threading.Lock] = {}
_locks_lock = threading.Lock()


def lock_of(folder: Path) -> threading.Lock:
    """Held by the one thread that makes what belongs into the folder."""
    with _locks_lock:
        return _locks.setdefault(folder, threading.Lock())


def quoted(path: Path) -> str:
    return shlex.quote(str(path))
