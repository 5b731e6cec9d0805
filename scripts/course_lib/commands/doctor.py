"""`course doctor`: what this machine has and lacks for the course."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from pathlib import Path

from .. import amd, backend, packages, process, python_env
from .. import place as places
from ..errors import MISSING, OK
from ..terminal import say
from .setting_up import ROOT, needed_packages, requirements

HELP = "what this machine has and lacks for the course"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beside --backend."""


def command(options: argparse.Namespace) -> int:
    """What the course needs of this machine. Exit code 0 where `course run` can work as it is."""
    hardware = backend.detect()
    choice = backend.choose(hardware, options.backend)
    lacking: list[str] = []  # the commands that bring what is missing

    def show(name: str, value: str, good: bool = True) -> None:
        say(f"  {name:<13} {value}", "" if good else "yellow")

    say("machine", "bold")
    place = places.here()
    name = f"{_distribution()}{' in WSL 2' if place.is_wsl else ''}"
    show("system", f"{name}, {platform.machine()}, {process.cpu_count()} processors")
    show("python", f"{platform.python_version()} ({sys.executable})")

    say("toolchains", "bold")
    for name, command in (("g++", "g++"), ("clang++", "clang++"), ("ninja", "ninja"),
                          ("nvcc", hardware.nvcc), ("hipcc", hardware.hipcc)):
        answer = process.output([command, "--version"]) if command else None
        version = re.search(r"(?:release|version:?)?\s*(\d+\.\d+[\w.-]*)", answer or "")
        show(name, version[1] if version else "not found")
    version = python_env.cmake_version("cmake")
    needed = python_env.CMAKE_REQUIRED
    text = ".".join(map(str, version)) if version else "not found"
    good = version is not None and version >= needed
    if not good:
        text += f"; {'.'.join(map(str, needed))} is needed: `course run` takes it from PyPI"
    show("cmake", text, good)

    say("devices", "bold")
    show("NVIDIA", ", ".join(hardware.nvidia) or "none")
    show("AMD", ", ".join(hardware.amd) or "none")
    for target in filter(None, map(amd.target_of, hardware.amd)):
        show("", f"{target}, {amd.what_it_is(target)}")
    if backend.overridden():
        show("", f"HSA_OVERRIDE_GFX_VERSION has the runtime take it for a {backend.overridden()}", False)
    show("backend", f"{choice.backend}: {choice.reason}")
    if choice.advice:
        show("", choice.advice, False)
    for line in places.gpu_advice(hardware, place):
        show("", line, False)
    needs_linux = places.needs_linux(place)
    if needs_linux:
        lacking.append(needs_linux)

    say("packages", "bold")
    names = needed_packages(choice.backend, hardware)
    if packages.has_apt():
        missing = packages.missing_packages(names)
        show("missing", " ".join(missing) or "none", not missing)
        if missing:
            lacking.append(packages.by_hand(missing))
    else:
        tools = packages.missing_tools()
        show("no apt-get", "needed, by their Debian names: " + " ".join(names), False)
        if tools:
            lacking.append(f"your distribution's packages for {', '.join(tools)}")

    say("Python packages and data", "bold")
    folder = Path(os.environ.get("COURSE_BUILD_DIR") or ROOT) / ".venv"
    python = python_env.PythonEnvironment(folder, Path(os.devnull))
    complete = python.has("requirements", requirements())
    show(".venv", f"{folder}" if complete else "not made yet: `scripts/course test` makes it")
    data = os.environ.get("COURSE_DATA")
    show("COURSE_DATA", (data if Path(data).is_dir() else f"{data} is not there") if data
         else "not set, and no data/ here: `python3 scripts/data.py` fetches MNIST and Shakespeare; "
              "without them programs train on what they make up")

    say()
    if lacking:
        how = "missing: " if needs_linux else "missing: `scripts/course run` installs it, or do it yourself: "
        say(how + "; ".join(lacking), "yellow")
        return MISSING
    say("nothing is missing", "green")
    return OK


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
