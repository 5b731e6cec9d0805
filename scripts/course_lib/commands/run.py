"""`course run`: builds and runs steps, then prints one table of what they reached."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

from .. import contribute, documents, learn, process, results, steps, terminal
from ..build import Build
from ..errors import FAILED, MISSING, OK, USAGE, CourseError
from ..own_programs import OwnPrograms
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
    parser.add_argument("--save-results", action="store_true",
                        help="also keep them as results/<device>/, for you to contribute: of this device and of the "
                             "repository's own kernels")


def command(options: argparse.Namespace) -> int:
    """Builds and runs the chosen steps, each to the end whatever the ones before it did."""
    chosen = chosen_steps(options.steps)
    if options.json_dir:
        if options.quick:
            raise CourseError("--json-dir keeps results, --quick makes none worth keeping", USAGE)
        _require_folder(options.json_dir)
    if options.save_results and (options.quick or options.mine or options.passed_on):
        raise CourseError("--save-results keeps what all versions of the repository reach at their own sizes: it "
                          "goes without --quick, --mine and options of the programs", USAGE)
    build, hardware, _ = set_up(options.backend, options.no_setup)
    mine = _own_files(build) if options.mine else None
    build.configure(hardware)
    build.build([step.name for step in chosen])
    builds = _with_own_files(chosen, build, mine) if mine else dict.fromkeys(chosen, build)
    if any(word in ANSWERS for word in options.passed_on):
        codes = [process.stream([str(builds[step].program(step)), *options.passed_on]) for step in chosen]
        return FAILED if any(codes) else OK
    start = time.monotonic()
    outcomes = [run_step(step, builds[step], options) for step in chosen]
    say()
    header, *lines = results.summary_table(outcomes, terminal.width())
    say(header, "bold")
    for outcome, line in zip(outcomes, lines):
        say(line, {0: "", MISSING: "yellow"}.get(outcome.code, "red"))
    if options.save_results:
        contribute.save([one.report for one in outcomes if one.code == OK and one.report], ROOT / "results")
    say(f"steps: {len(outcomes)}   time: {time.monotonic() - start:.1f} s")
    codes = {outcome.code for outcome in outcomes}
    if codes <= {OK}:
        return OK
    return MISSING if codes <= {OK, MISSING} else FAILED


def _own_files(build: Build) -> Workspace:
    """A folder with the learner's files that replace the repository's. Only a file that has passed its
    check as it stands is taken."""
    workspace = Workspace(ROOT)
    progress = Progress(workspace)
    mine = Workspace(ROOT, build.folder.parent / "mine")
    wanted = {}
    for course in learn.all_courses(ROOT):
        for name in course.files:
            path = workspace.file(course.step, name)
            if not path.is_file():
                continue
            text = documents.text_for_user(path)
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
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return mine


def _with_own_files(chosen: list[steps.Step], build: Build, mine: Workspace) -> dict[steps.Step, Build]:
    """Where the program of each step is: with the learner's files, where it uses any, in a folder of its
    own."""
    folder = build.folder.parent / f"{build.backend}-mine"
    programs = OwnPrograms(build, mine.folder,
                           [path.relative_to(mine.folder) for path in mine.all_files()], folder)
    used = {step: programs.add(step) for step in chosen}
    loads = [step for step in chosen if step.name == "backends"]
    plugin = programs.add_plugin() if loads else []
    if plugin or any(used.values()):
        programs.make()
    for step in chosen:
        _say_whose(step, used[step])
    if plugin:
        say(f"own:mine, a device beside own, runs your {', '.join(map(str, plugin))}", "green")
    own = Build(build.root, folder, build.backend, build.environment)
    return {step: own if used[step] else build for step in chosen}


def _say_whose(step: steps.Step, used: list[Path]) -> None:
    """Which of the learner's files a program is built from."""
    names = ", ".join(map(str, used))
    say(f"{step.number} {step.name} runs " + (f"with your {names}" if used
                                              else "with nothing of yours: it uses none of it"),
        "green" if used else "yellow")


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
