"""The distribution's packages: which the course needs, which are missing, how they come.

scripts/packages.txt holds one line per group, `group: package package`, with `#` comments. Only
Debian, Ubuntu and what descends from them are set up automatically; elsewhere the names are
printed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from . import process, terminal
from .errors import MISSING, CourseError

# What nothing can be built without, and how to recognise that it is there, whatever brought it.
TOOLS = {
    "cmake": ("cmake",),
    "ninja": ("ninja", "ninja-build"),
    "a C++17 compiler": ("c++", "g++", "clang++"),
}
NO_NETWORK = re.compile(
    r"Temporary failure resolving|Could not resolve|Could not connect|Unable to connect|"
    r"Connection (timed out|refused)|Network is unreachable|Cannot initiate the connection"
)


def read_packages(path: Path) -> dict[str, list[str]]:
    """Group → packages. Raises ValueError naming the line that is not `group: package ...`."""
    groups: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        group, colon, names = line.partition(":")
        if not colon or not re.fullmatch(r"[\w-]+", group.strip()):
            expected = "expected 'group: package package'"
            raise ValueError(f"{path.name}:{number}: {expected}, got '{line}'")
        groups.setdefault(group.strip(), []).extend(names.split())
    return groups


def missing_packages(names: list[str]) -> list[str]:
    """Those of `names` that dpkg does not call installed, in the same order."""
    if not names:
        return []
    # dpkg-query exits 1 as soon as one name is unknown to it, and still answers for the others.
    command = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *names]
    answer = process.output(command, any_exit_code=True) or ""
    installed = {line.split()[0] for line in answer.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def missing_tools() -> list[str]:
    compiler = os.environ.get("CXX", "").split()
    found = {"a C++17 compiler": bool(compiler) and shutil.which(compiler[0]) is not None}
    return [
        tool
        for tool, names in TOOLS.items()
        if not found.get(tool) and not any(shutil.which(name) for name in names)
    ]


def has_apt() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-query") is not None


def privilege() -> list[str] | None:
    """What to put before a command so that it runs as root: nothing, or sudo. None: no way."""
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        return None
    if sys.stdin.isatty():  # sudo may ask for the password
        return ["sudo"]
    return ["sudo", "-n"] if process.output(["sudo", "-n", "true"]) is not None else None


def apt_command(arguments: list[str], prefix: list[str]) -> list[str]:
    """An apt-get that asks nothing and waits for another one to finish."""
    options = ["-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2"]
    return [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", *options, *arguments]


def by_hand(names: list[str]) -> str:
    return "sudo apt-get install " + " ".join(names)


def install(names: list[str], log: Path) -> None:
    """Installs what is missing of `names`. Says what, and how to do it by hand where it cannot.

    Raises CourseError(MISSING) where apt fails, or where it cannot be used and not even a compiler,
    CMake and Ninja are there; with those, CMake fetches the libraries that are missing.
    """
    if not has_apt():
        listed = " ".join(names)
        _go_on_without(f"no apt-get here: the course needs, by their Debian names, {listed}")
        return
    missing = missing_packages(names)
    if not missing:
        return
    prefix = privilege()
    if prefix is None:
        _go_on_without(f"not root and no sudo: ask for `{by_hand(missing)}`")
        return
    terminal.say(f"installing {' '.join(missing)}")
    progress = terminal.Progress("  apt-get")
    # An update may fail for a source that is not needed here: the installation decides.
    process.logged(apt_command(["update"], prefix), log, progress.update)
    command = apt_command(["install", "--no-install-recommends", *missing], prefix)
    code, text = process.logged(command, log, progress.update)
    if code != 0 and "dpkg --configure -a" in text:  # an earlier installation was interrupted
        process.logged([*prefix, "dpkg", "--configure", "-a"], log, progress.update)
        code, text = process.logged(command, log, progress.update)
    progress.finish("  installed" if code == 0 else "")
    if code != 0:
        reasons = [line for line in text.splitlines() if line.startswith("E:")]
        if NO_NETWORK.search(text):
            why = "no network"
        else:
            why = reasons[0] if reasons else f"exit code {code}, see {log}"
        raise CourseError(
            f"apt-get could not install the packages ({why}): run `{by_hand(missing)}` "
            "once that is solved, then the same command again",
            MISSING,
        )


def _go_on_without(line: str) -> None:
    lacking = missing_tools()
    if lacking:
        raise CourseError(f"{', '.join(lacking)} not found, and {line}", MISSING)
    terminal.warn(f"{line}; going on with what is there")
