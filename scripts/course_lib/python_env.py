"""The virtual environment .venv: NumPy for the references, pytest, and a CMake that is new enough.

It is complete when its stamp file says so. The stamp is written last, so a set-up that was
interrupted is taken up again the next time.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from . import process, terminal
from .errors import MISSING, CourseError

NO_NETWORK = re.compile("NewConnectionError|ConnectTimeout|ProxyError|name resolution|unreachable")
CMAKE_REQUIRED = (3, 24)


class PythonEnvironment:
    def __init__(self, folder: Path, log: Path):
        self.folder = folder
        self.log = log
        self.python = folder / "bin" / "python3"

    def _stamp(self, name: str) -> Path:
        return self.folder / f"course-{name}.stamp"

    def has(self, name: str, requirements: list[str]) -> bool:
        """True where exactly these requirements were installed under this name to the end."""
        stamp = self._stamp(name)
        return stamp.is_file() and stamp.read_text(encoding="utf-8") == "\n".join(requirements)

    def require(self, name: str, requirements: list[str]) -> None:
        """Installs `requirements` (pip's syntax) unless that is done already.

        Raises CourseError(MISSING) with what to do where that fails.
        """
        if not self._works():
            self._create()
        if self.has(name, requirements):
            return
        terminal.say(f"installing {' '.join(requirements)} into {self.folder.name}")
        progress = terminal.Progress("  pip")
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check",
                   "--no-input", "--retries", "2", *requirements]
        code, text = process.logged(command, self.log, progress.update)
        progress.finish("  installed" if code == 0 else "")
        if code != 0:
            errors = [line for line in text.splitlines() if line.startswith("ERROR:")]
            why = "no network" if NO_NETWORK.search(text) else (errors or ["failed"])[0]
            raise CourseError(
                f"pip could not install {' '.join(requirements)} ({why}): see {self.log}, then run "
                "the same command again",
                MISSING,
            )
        temporary = self._stamp(name).with_suffix(".new")
        temporary.write_text("\n".join(requirements), encoding="utf-8")
        os.replace(temporary, self._stamp(name))

    def _works(self) -> bool:
        return process.output([str(self.python), "-m", "pip", "--version"]) is not None

    def _create(self) -> None:
        terminal.say(f"making the Python environment {self.folder}")
        # --clear replaces an environment that does not work: interrupted, or of another Python.
        command = [sys.executable, "-m", "venv", "--clear", str(self.folder)]
        code, text = process.logged(command, self.log, lambda line: None)
        if code != 0:
            is_missing = "ensurepip" in text or "No module" in text
            why = "python3-venv is missing" if is_missing else "failed"
            raise CourseError(
                f"cannot make the Python environment {self.folder} ({why}, see {self.log}): "
                "`sudo apt-get install python3-venv`, then run the same command again",
                MISSING,
            )


def find(modules: list[str], candidates: list[str]) -> str | None:
    """The first interpreter that has the modules, without loading them."""
    question = ("import importlib.util, sys; "
                f"sys.exit(any(importlib.util.find_spec(name) is None for name in {modules}))")
    return next((python for python in candidates if process.output([python, "-c", question]) is not None),
                None)


def cmake_version(cmake: str) -> tuple[int, int] | None:
    """(major, minor) of a CMake, None if it does not run."""
    version = re.search(r"cmake version (\d+)\.(\d+)", process.output([cmake, "--version"]) or "")
    return (int(version[1]), int(version[2])) if version else None


def build_environment(python: PythonEnvironment) -> dict[str, str]:
    """The environment to build in: one whose PATH leads to a CMake that is new enough.

    A CMake older than CMAKE_REQUIRED is helped out with one from PyPI in .venv.
    """
    environment = dict(os.environ)
    found = shutil.which("cmake")
    version = cmake_version(found) if found else None
    if version is None or version < CMAKE_REQUIRED:
        have = "no CMake" if version is None else f"CMake {version[0]}.{version[1]}"
        needed = ".".join(map(str, CMAKE_REQUIRED))
        if not python.has("cmake", [f"cmake>={needed}"]):
            terminal.say(f"{have} here, and {needed} is needed: taking it from PyPI")
        python.require("cmake", [f"cmake>={needed}"])
        environment["PATH"] = f"{python.python.parent}{os.pathsep}{environment['PATH']}"
    return environment
