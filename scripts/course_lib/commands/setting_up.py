"""What the commands share: the steps that are meant, what must be installed, the build to use."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import backend, compiling, exercises, packages, place, python_env, steps
from ..build import Build, build_root
from ..errors import MISSING, USAGE, CourseError
from ..terminal import say
from ..workspace import Progress, Workspace

ROOT = Path(__file__).resolve().parents[3]


def add_steps(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that works on steps and sets up what they need."""
    parser.add_argument("steps", nargs="*", metavar="STEP",
                        help="1.1, vector_add, stage1, 1, or a path; none: all")
    parser.add_argument("--no-setup", action="store_true",
                        help="install nothing: all that is needed is here")


def chosen_steps(words: list[str]) -> list[steps.Step]:
    found = steps.discover(ROOT)
    if not found:
        raise CourseError(f"no step found in {ROOT}: is the checkout complete?", USAGE)
    return steps.resolve(ROOT, found, words)


def needed_packages(chosen: str, hardware: backend.Hardware) -> list[str]:
    """The packages to build and test for a backend. A HIP that is there, e.g. AMD's, is kept."""
    groups = packages.read_packages(ROOT / "scripts" / "packages.txt")
    has_toolkit = chosen == "hip" and hardware.hipcc
    return groups["base"] + ([] if has_toolkit else groups.get(chosen, []))


def requirements(of: str = "") -> list[str]:
    """The Python packages that tests, plots and reports need; or those that only the `book` or the test of
    the `notebook` need beside them."""
    name = f"requirements-{of}.txt" if of else "requirements.txt"
    text = (ROOT / "scripts" / name).read_text(encoding="utf-8")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def python_environment() -> python_env.PythonEnvironment:
    """.venv stands in the checkout, or with everything else in $COURSE_BUILD_DIR."""
    made = build_root(ROOT)
    folder = made if os.environ.get("COURSE_BUILD_DIR") else ROOT
    return python_env.PythonEnvironment(folder / ".venv", made / "setup.log")


def python_with(modules: list[str], no_setup: bool, of: str = "") -> str:
    """A Python that has these modules, which are among the requirements(of): .venv's, the one that runs this,
    or, where neither has them, .venv's after it was made. Raises CourseError(MISSING) where it must not be
    made."""
    python = python_environment()
    found = python_env.find(modules, [str(python.python), sys.executable])
    if not found and no_setup:
        raise CourseError(f"no Python here has {', '.join(modules)}, and --no-setup installs nothing",
                          MISSING)
    if not found:
        python.require(f"requirements-{of}" if of else "requirements", requirements(of))
    return found or str(python.python)


def set_up(wanted: str, no_setup: bool, reason: str = "",
            ) -> tuple[Build, backend.Hardware, python_env.PythonEnvironment]:
    """Installs what is missing, unless it must not, and chooses the backend: all that comes before
    CMake. `reason` is why the command wants this backend, where it was not asked for on the command
    line."""
    needs_linux = place.needs_linux(place.here())
    if needs_linux:
        raise CourseError(needs_linux, MISSING)
    made = build_root(ROOT)
    hardware = backend.detect()
    if no_setup:
        choice = backend.choose(hardware, wanted)
        return (Build(ROOT, made / choice.backend, choice.backend, dict(os.environ)), hardware,
                python_environment())
    is_amd = hardware.amd and not hardware.nvidia and not hardware.hipcc
    if wanted == "auto" and is_amd and not backend.amd_advice(hardware):
        say(f"{hardware.amd[0]} is here: getting HIP's compiler for it")
        packages.install(needed_packages("hip", hardware), made / "setup.log")
        hardware = backend.detect()
    choice = backend.choose(hardware, wanted)
    packages.install(needed_packages(choice.backend, hardware), made / "setup.log")
    say(f"backend {choice.backend}: {reason or choice.reason}")
    if choice.advice:
        say(f"  {choice.advice}")
    python = python_environment()
    environment = python_env.build_environment(python)
    return Build(ROOT, made / choice.backend, choice.backend, environment), hardware, python


def course_of(word: str) -> exercises.Course:
    chosen = chosen_steps([word])
    if len(chosen) > 1:
        raise CourseError(f"'{word}' is {len(chosen)} steps: name one", USAGE)
    return exercises.load(chosen[0])


def one_course(options: argparse.Namespace, what: str) -> exercises.Course:
    """The step that is named, or else the one that was begun last and is not solved."""
    if len(options.steps) > 1:
        raise CourseError(f"`{what}` takes one step", USAGE)
    if options.steps:
        return course_of(options.steps[0])
    progress = Progress(Workspace(ROOT))
    there = {step.number for step in steps.discover(ROOT)}  # the progress may know steps of other checkouts
    begun = [(record.get("started", ""), number) for number, record in progress.steps.items()
             if record.get("state") == "in progress" and number in there]
    if not begun:
        raise CourseError("no exercise is in progress: begin one, e.g. `scripts/course start 1.1`",
                          USAGE)
    return course_of(max(begun)[1])


def builds_of(course: exercises.Course, options: argparse.Namespace) -> list[Build]:
    """The CPU backend's build, which checks, and the GPU's where there is one; both up to date, the first
    with what the step's test needs."""
    reasons = {"cpu": "" if options.backend == "cpu" else "a check begins on the CPU backend"}
    if options.backend != "cpu":
        choice = backend.choose(backend.detect(), options.backend)
        reasons.setdefault(choice.backend, choice.reason)
    builds = []
    for name, reason in reasons.items():
        build, hardware, _ = set_up(name, options.no_setup, reason)
        if not (build.is_configured() and build.program(course.step).is_file()):
            build.configure(hardware)
        build.build([course.step.name])  # configures anew where that has become necessary
        if name == "cpu":
            parts = compiling.Compiler(build, course, build_root(ROOT) / "check" / course.step.name).parts("test")
            build.build(parts)
        builds.append(build)
    return builds
