"""Configuring and building with the presets of CMakePresets.json, with visible progress."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import amd, process, terminal
from .backend import Hardware
from .errors import FAILED, USAGE, CourseError
from .steps import Step


def build_root(root: Path) -> Path:
    """Where everything goes that is made: build/ in the checkout, or $COURSE_BUILD_DIR.

    Raises CourseError(USAGE) where that cannot be written.
    """
    chosen = os.environ.get("COURSE_BUILD_DIR")
    folder = Path(chosen).expanduser().absolute() if chosen else root / "build"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        if process.is_disk_full(error):
            raise
        raise CourseError(
            f"cannot write to {folder} ({error.strerror}): set COURSE_BUILD_DIR to a folder that "
            "can be written, e.g. COURSE_BUILD_DIR=~/course-build scripts/course run",
            USAGE,
        ) from None
    return folder


@dataclass(frozen=True)
class Build:
    """One build tree: build/<backend>."""

    root: Path  # the repository
    folder: Path
    backend: str
    environment: dict[str, str]

    def program(self, step: Step) -> Path:
        return self.folder / step.folder.parent.name / step.name

    def configure(self, hardware: Hardware, python: str | None = None) -> None:
        """Runs CMake. `python` is the interpreter for the NumPy references, if there is one."""
        environment = dict(self.environment)
        if self.backend == "cuda" and hardware.nvcc and not shutil.which("nvcc"):
            environment.setdefault("CUDACXX", hardware.nvcc)
        command = ["cmake", "--preset", self.backend, "-B", str(self.folder)]
        if python:
            command.append(f"-DPython3_EXECUTABLE={python}")
        targets = {amd.target_of(device) for device in hardware.amd} - {""}
        targets &= hardware.hip_targets or targets
        if self.backend == "hip" and targets:  # in WSL, CMake itself finds none
            command.append(f"-DCMAKE_HIP_ARCHITECTURES={';'.join(sorted(targets))}")
        if not self.is_configured():
            command.append("--fresh")  # forgets what a failed or a moved configuration has found
        progress = terminal.Progress("configuring")
        log = self.folder.parent / f"{self.backend}-configure.log"
        code, text = process.logged(command, log, progress.update, environment, self.root)
        progress.finish()
        if code != 0:
            raise CourseError(
                f"CMake could not configure the {self.backend} build: see above and {log}, and "
                "`scripts/course doctor` for what is missing",
                FAILED,
                _first_error(text, r"^CMake Error"),
            )

    def is_configured(self) -> bool:
        cache = self.folder / "CMakeCache.txt"
        if not cache.is_file() or not (self.folder / "build.ninja").is_file():
            return False
        home = re.search(
            r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(errors="replace"), re.MULTILINE
        )
        return home is not None and home[1] == str(self.root)

    def build(self, targets: list[str], rules: Path | None = None) -> None:
        """Builds the targets; all there are where the list is empty. `rules` are another ninja file, which
        is taken instead of the build's own."""
        command = ["cmake", "--build", str(self.folder), "--parallel", str(process.cpu_count())]
        if rules:
            command += ["--", "-f", str(rules), *targets]
        elif targets:
            command += ["--target", *targets]
        environment = {**self.environment, "NINJA_STATUS": "[%f/%t] "}
        progress = terminal.Progress(f"building for {self.backend}")
        log = self.folder.parent / f"{self.backend}-build.log"
        code, text = process.logged(
            command, log, lambda line: progress.update(_ninja_line(line)), environment, self.root
        )
        built = len(re.findall(r"^\[\d+/\d+\]", text, re.MULTILINE))
        done = code == 0 and built
        commands = f"{built} command{'' if built == 1 else 's'}"
        progress.finish(f"built for {self.backend}, {commands}" if done else "")
        if code != 0:
            raise CourseError(
                f"the {self.backend} build failed: see above and {log}",
                FAILED,
                _first_error(text, r"^(FAILED:|ninja: error|CMake Error)"),
            )


def _ninja_line(line: str) -> str:
    """"[3/80] Building CXX object common/CMakeFiles/x.dir/npy.cpp.o" → "[3/80] npy.cpp"."""
    status = re.match(r"(\[\d+/\d+\]).*?([^/\s]+?)(\.o)?$", line)
    return f"{status[1]} {status[2]}" if status else line


def _first_error(text: str, pattern: str, lines: int = 40) -> str:
    """The part of a log that begins with the first error."""
    start = re.search(pattern, text, re.MULTILINE)
    return "\n".join(text[start.start() if start else 0 :].splitlines()[:lines])
