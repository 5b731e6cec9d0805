"""Programs and the plug-in of 8.2 with a learner's own files in place of the repository's, for
`course run --mine`.

Only what differs is compiled: versions of the learner's that the program calls. Their object files come
before the build's libraries on the linker's command line, so that the linker leaves the repository's own
where they are. The commands are those of the build, which must be up to date, in a ninja file of their own.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import process, symbols
from .build import Build
from .compiling import quoted
from .steps import Step

OWN, MINE = "backends/libcourse_own.so", "backends/libcourse_mine.so"  # in a build tree


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
        program = f"{step.folder.parent.name}/{step.name}"
        objects, link = self._commands(program)
        there = symbols.of([self.build.program(step)])
        taken = {name: one for name, one in self._replaced(objects).items()
                 if symbols.of([self.build.folder / one.name]).strong & there.strong}
        if taken:
            made = self._relative(self.folder / program)
            self._linked(program, made, link, [self._compiled(one, name) for name, one in taken.items()])
        return sorted(taken)

    def add_plugin(self) -> list[Path]:
        """Plans libcourse_mine.so beside libcourse_own.so: the same with the learner's files, whose device is
        "own:mine". Returns the learner's files that it takes; none: there is no such plug-in afterwards."""
        objects, link = self._commands(OWN)
        (self.build.folder / MINE).unlink(missing_ok=True)
        replaced = self._replaced(objects)
        there = symbols.inside(self.build.folder / OWN)
        # Most launchers are templates, which the linker calls weak, as it does every inline function: what no
        # other object has says which file it is.
        names = {one.name: symbols.of([self.build.folder / one.name]) for one in objects} if replaced else {}
        users = Counter(name for found in names.values() for name in found.strong | found.weak)
        taken = {name: one for name, one in replaced.items()
                 if any(users[symbol] == 1 for symbol in
                        (names[one.name].strong | names[one.name].weak) & there)}
        if taken:
            table = next(one for one in objects if one.source.parts[-2:] == ("own", "plugin.cpp"))
            named = table.command.replace('COURSE_OWN_NAME=\\"own\\"', 'COURSE_OWN_NAME=\\"mine\\"')
            table_made = self._compiled(replace(table, command=named), table.source)
            before = [self._compiled(one, name) for name, one in taken.items()]
            self._linked(OWN, MINE, link.replace(table.name, table_made), before)
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

    def _replaced(self, objects: list[Object]) -> dict[Path, Object]:
        """The objects that are made of a file of which the learner has another."""
        own = {self.build.root / name: name for name in self.files}
        return {own[one.source]: one for one in objects if one.source in own}

    def _commands(self, target: str) -> tuple[list[Object], str]:
        """The object files of a target and of its libraries, and the command that links it."""
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

    def _linked(self, target: str, made: str, link: str, before: list[str]) -> None:
        link = link.replace(f" -o {target}", " ".join([f" -o {made}", *before]), 1)
        inputs = re.findall(r"(?<= )[^/\s]\S*\.[oa](?= |$)", link)
        self._rules[made] = _rule("own", made, inputs, link)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.build.folder)


def _rule(rule: str, made: str, inputs: list[str], command: str) -> str:
    def escaped(name: str) -> str:
        return re.sub(r"([$ :])", r"$\1", name)
    words = command.replace("$", "$$")
    return f"build {escaped(made)}: {rule} {' '.join(map(escaped, inputs))}\n  words = {words}"
