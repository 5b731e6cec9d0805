"""Programs with a learner's own files in place of the repository's, for `course run --mine`.

Only what differs is compiled: versions of the learner's that the program calls. Their object files come
before the build's libraries on the linker's command line, so that the linker leaves the repository's own
where they are. The commands are those of the build, which must be up to date, in a ninja file of their own.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from . import process, symbols
from .build import Build
from .compiling import quoted
from .steps import Step


@dataclass(frozen=True)
class Object:
    """An object file of the build, and the command that makes it."""

    name: str
    command: str
    source: Path


@dataclass
class OwnPrograms:
    """`mine` holds the learner's files, laid out as the repository is; `files` are their names in it. What
    is made goes to `folder`."""

    build: Build
    mine: Path
    files: list[Path]
    folder: Path
    _rules: dict[str, str] = field(default_factory=dict)  # of the ninja file, by what each makes

    def add(self, step: Step) -> list[Path]:
        """Plans the program of a step. Returns the learner's files that it takes; none: it takes none."""
        objects, link = self._commands(step)
        program = symbols.of([self.build.program(step)])
        own = {self.build.root / name: name for name in self.files}
        taken = {own[one.source]: one for one in objects if one.source in own
                 and symbols.of([self.build.folder / one.name]).strong & program.strong}
        if taken:
            self._linked(step, link, [self._compiled(one, name) for name, one in taken.items()])
        return sorted(taken)

    def make(self) -> None:
        """Builds what was planned."""
        rules = self.folder / "build.ninja"
        text = "\n".join([f"builddir = {self._relative(self.folder)}", "rule own", "  command = $words",
                          "  description = Building $out", "rule compile", "  command = $words",
                          "  description = Building $out", "  depfile = $out.d", "  deps = gcc",
                          *self._rules.values()])
        self.folder.mkdir(parents=True, exist_ok=True)
        rules.write_text(text + "\n", encoding="utf-8")
        self.build.build(list(self._rules), rules)

    def _commands(self, step: Step) -> tuple[list[Object], str]:
        """The object files of a program and of its libraries, and the command that links it."""
        target = f"{step.folder.parent.name}/{step.name}"
        lines = (process.output(["ninja", "-C", str(self.build.folder), "-t", "commands", target])
                 or "").splitlines()
        objects = []
        for line in lines:
            words = shlex.split(line)
            if "-c" in words and "-o" in words:
                name, source = (words[words.index(option) + 1] for option in ("-o", "-c"))
                objects.append(Object(name, line, Path(os.path.normpath(self.build.folder / source))))
        return objects, lines[-1] if lines else ""

    def _compiled(self, one: Object, file: Path) -> str:
        made = self._relative(self.folder / "objects" / one.name)
        source = self.mine / file
        command = re.sub(r" -Werror(=\S+)?", "", one.command).replace(one.name, made)
        command = re.sub(r" -c .*", lambda _: f" -c {quoted(source)}", command)
        self._rules[made] = _rule("compile", made, [str(source)], command)
        return made

    def _linked(self, step: Step, link: str, before: list[str]) -> None:
        program = f"{step.folder.parent.name}/{step.name}"
        made = self._relative(self.folder / program)
        link = link.replace(f" -o {program}", " ".join([f" -o {made}", *before]), 1)
        inputs = re.findall(r"(?<= )[^/\s]\S*\.[oa](?= |$)", link)
        self._rules[made] = _rule("own", made, inputs, link)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.build.folder)


def _rule(rule: str, made: str, inputs: list[str], command: str) -> str:
    def escaped(name: str) -> str:
        return re.sub(r"([$ :])", r"$\1", name)
    words = command.replace("$", "$$")
    return f"build {escaped(made)}: {rule} {' '.join(map(escaped, inputs))}\n  words = {words}"
