"""`course run`: builds and runs steps, then prints one table of what they reached."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

from .. import learn, process, results, steps, symbols, terminal
from ..build import Build
from ..errors import FAILED, MISSING, OK, USAGE, CourseError
from ..terminal import say
from ..workspace import Progress, Workspace
from .setting_up import ROOT, add_steps, chosen_steps, set_up

HELP = "build and run steps, print the table of results"
EPILOG = ("What is behind -- is passed on to each step's program: `scripts/course run dot -- --help` shows "
          "what dot itself takes, such as --version and --size.")
ANSWERS = ("-h", "--help", "--list")  # a program only answers these: there is no result


def arguments(parser: argparse.ArgumentParser) -> None:
    add_steps(parser)
    parser.add_argument("--quick", action="store_true", help="small sizes: checks, no fair times")
    parser.add_argument("--all", action="store_true",
                        help="every version, also of the trainings that take minutes on the CPU backend")
    parser.add_argument("--mine", action="store_true",
                        help="with your own files of workspace/ that have passed their checks")
    parser.add_argument("--json-dir", metavar="DIR", type=Path,
                        help="also keep every program's results as DIR/<program>.json")


def command(options: argparse.Namespace) -> int:
    """Builds and runs the chosen steps, each to the end whatever the ones before it did."""
    chosen = chosen_steps(options.steps)
    if options.json_dir:
        if options.quick:
            raise CourseError("--json-dir keeps results, --quick makes none worth keeping", USAGE)
        _require_folder(options.json_dir)
    build, hardware, _ = set_up(options.backend, options.no_setup)
    if options.mine:
        build, mine = _with_own_files(build)
        build.configure(hardware, None, [f"-DCOURSE_WORKSPACE={mine}"])
    else:
        build.configure(hardware)
    build.build([step.name for step in chosen])
    if options.mine:
        _say_whose(chosen, build, mine)
    if any(word in ANSWERS for word in options.passed_on):
        codes = [process.stream([str(build.program(step)), *options.passed_on]) for step in chosen]
        return FAILED if any(codes) else OK
    start = time.monotonic()
    outcomes = [run_step(step, build, options) for step in chosen]
    say()
    header, *lines = results.summary_table(outcomes, terminal.width())
    say(header, "bold")
    for outcome, line in zip(outcomes, lines):
        say(line, {0: "", MISSING: "yellow"}.get(outcome.code, "red"))
    say(f"steps: {len(outcomes)}   time: {time.monotonic() - start:.1f} s")
    codes = {outcome.code for outcome in outcomes}
    if codes <= {OK}:
        return OK
    return MISSING if codes <= {OK, MISSING} else FAILED


def _with_own_files(build: Build) -> tuple[Build, Path]:
    """A build tree of its own, and the folder with the learner's files that replace the repository's in
    it. Only a file that has passed its check as it stands is taken."""
    workspace = Workspace(ROOT)
    progress = Progress(workspace)
    folder = build.folder.parent / f"{build.backend}-mine"
    mine = Workspace(ROOT, folder.parent / "mine")
    wanted = {}
    for course in learn.all_courses(ROOT):
        for name in course.files:
            path = workspace.file(course.step, name)
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8")
            if progress.is_passed_text(course.step, name, text):
                wanted[mine.file(course.step, name)] = text
            else:
                say(f"  not used: {learn.shown(path)}, which has not passed "
                    f"`scripts/course check {course.step.number}`", "yellow")
    if not wanted:
        raise CourseError("no file in workspace/ has passed its check: nothing of yours to run",
                          USAGE)
    for path in mine.all_files():
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():  # left alone where it is the same: nothing is built anew
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return Build(build.root, folder, build.backend, build.environment), mine.folder


def _say_whose(chosen: list[steps.Step], build: Build, mine: Path) -> None:
    """Which of the learner's files each program was built from."""
    own = Workspace(ROOT, mine).all_files()
    for step in chosen:
        used = [path for path in own if _is_used(path, mine, step, build)]
        names = ", ".join(str(path.relative_to(mine)) for path in used)
        say(f"{step.number} {step.name} runs " + (f"with your {names}" if used
                                                  else "with nothing of yours: it uses none of it"),
            "green" if used else "yellow")


def _is_used(path: Path, mine: Path, step: steps.Step, build: Build) -> bool:
    """Whether a program has a file of the learner's in it: a version where the program defines what the
    version's object file does, a header where the compiler has noted that it read it."""
    if path.suffix == ".hip":
        # CMake names an object file after its source: of files in the checkout, from its root on.
        name = f"/{mine.name}/{path.relative_to(mine)}.o"
        objects = [made for made in build.folder.glob("CMakeFiles/step_*.dir/**/*.o")
                   if str(made).endswith(name)]
        defined = symbols.of(objects).strong if objects else frozenset()
        return bool(defined & symbols.of([build.program(step)]).strong)
    return any(str(path) in _dependencies(name, step, build) for name in (f"{step.name}.hip.o",
                                                                         f"{step.name}.cpp.o"))


def _dependencies(name: str, step: steps.Step, build: Build) -> str:
    place = f"CMakeFiles/{step.name}.dir/{step.folder.parent.name}/{step.folder.name}/{name}"
    return process.output(["ninja", "-C", str(build.folder), "-t", "deps", place]) or ""


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"cannot make {folder}: {error.strerror}", USAGE) from None


def run_step(step: steps.Step, build: Build, options: argparse.Namespace) -> results.Outcome:
    written = results_of(step, build.folder)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.unlink(missing_ok=True)  # a program that fails must not leave an older success
    command = [str(build.program(step)), "--json", str(written)]
    if options.quick:
        command.append("--quick")
    say()
    command += options.passed_on
    shown = "" if options.quick or options.all or options.passed_on else _only_version(step, build)
    if shown:
        command += ["--version", shown]
        say(f"{step.number} {step.name} trains for minutes with each version on the CPU backend: this is "
            f"{shown} alone; `scripts/course run {step.number} --all` runs every one", "dim")
    say(f"$ {process.shown(_from_here(command))}", "cyan")
    code = process.stream(command)
    report = None
    if written.is_file():
        try:
            report = results.load(written)
        except ValueError as error:
            terminal.warn(str(error))
            code = code or FAILED
    if options.json_dir and report and code == OK:
        kept = options.json_dir / written.name
        temporary = kept.with_suffix(".new")
        shutil.copyfile(written, temporary)
        os.replace(temporary, kept)
    return results.Outcome(step.number, step.name, code, report)


def _only_version(step: steps.Step, build: Build) -> str:
    """The version that stands for a long training on the CPU backend; "" where all are run."""
    version = steps.LONG_TRAININGS.get(step.name, "") if build.backend == "cpu" else ""
    listed = process.output([str(build.program(step)), "--list"]) if version else ""
    return version if any(line.split()[:1] == [version] for line in (listed or "").splitlines()) else ""


def results_of(step: steps.Step, folder: Path) -> Path:
    """Where `run` and `plot` have a program write its results."""
    return folder / "results" / f"{step.name}.json"


def _from_here(command: list[str]) -> list[str]:
    """The command with the shorter of absolute and relative paths, as the learner may repeat it."""
    return [min(word, os.path.relpath(word), key=len) if "/" in word else word for word in command]
