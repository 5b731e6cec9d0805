"""The commands of scripts/course, from the words on the command line to the exit code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import sys
import time
from pathlib import Path

from . import (backend, bench, check, exercises, learn, packages, plot, process, profile, python_env,
               report, results, steps, terminal, watch)
from .build import Build, build_root
from .errors import FAILED, INTERRUPTED, MISSING, OK, USAGE, CourseError
from .terminal import Column, say
from .workspace import Progress, Workspace

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str], description: str) -> int:
    """Runs one command. Whatever stops it becomes one line on stderr and an exit code."""
    options = _parse(arguments, description)
    # What scripts/data.py has fetched into the checkout is found from every folder.
    if (ROOT / "data").is_dir():
        os.environ.setdefault("COURSE_DATA", str(ROOT / "data"))
    # A plain `kill` ends as tidily as Ctrl-C, and Ctrl-C does in the background of a script too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return options.command(options)
    except CourseError as error:
        if error.details:
            say(error.details)
        terminal.warn(str(error))
        return error.code
    except KeyboardInterrupt:
        say()
        terminal.warn("interrupted; the same command takes up where this one stopped")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        if process.is_disk_full(error):
            terminal.warn("the disk is full: free some space and run the same command again")
            return MISSING
        raise


def _parse(arguments: list[str], description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "course", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command, text: str, with_steps: bool) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        if with_steps:
            sub.add_argument("steps", nargs="*", metavar="STEP",
                             help="1.1, vector_add, stage1, 1, or a path; none: all")
        sub.add_argument("--backend", choices=("auto", *backend.BACKENDS), default="auto",
                         help="default: what this machine really has")
        if with_steps:
            sub.add_argument("--no-setup", action="store_true",
                             help="install nothing: all that is needed is here")
        return sub

    run = add("run", run_command, "build and run steps, print the table of results", True)
    run.add_argument("--quick", action="store_true", help="small sizes: checks, no fair times")
    run.add_argument("--mine", action="store_true",
                     help="with your own headers of workspace/ that have passed their checks")
    run.add_argument("--json-dir", metavar="DIR", type=Path,
                     help="also keep every program's results as DIR/<program>.json")
    add("test", test_command, "build everything and run the tests", True)
    beside = add("bench", bench_command, "every step beside PyTorch and the vendor's libraries", True)
    beside.add_argument("--peers", metavar="LIST",
                        help=f"some of {','.join(bench.PEERS)}, or none; default: torch and the vendor's "
                             "on a GPU, numpy and loop on the CPU backend")
    beside.add_argument("--rounds", type=int, metavar="N", help="default 3, with --quick 1")
    beside.add_argument("--quick", action="store_true", help="small sizes: shows that all of it works")
    beside.add_argument("--json", metavar="FILE", type=Path,
                        help="the results, or the merged ones (default: bench.json in the build folder)")
    beside.add_argument("--save", metavar="FOLDER", type=Path,
                        help="also keep a file per program, as results/ does")
    beside.add_argument("--minutes", type=float, default=0, metavar="M",
                        help="begin no round of a step that would not end within this time")
    beside.add_argument("--build", metavar="FOLDER", type=Path,
                        help="run the programs of this build as they are: nothing is set up or built")
    beside.add_argument("--python", metavar="PROGRAM", default=os.environ.get("COURSE_PYTHON"),
                        help="the Python that has PyTorch or NumPy (default: $COURSE_PYTHON, or .venv's "
                             "or the one that runs this)")
    beside.add_argument("--compare", metavar=("A.json", "B.json"), type=Path, nargs=2,
                        help="what changed between two runs beyond their spread; runs nothing")
    beside.add_argument("--merge", metavar="FILE", type=Path, nargs="+",
                        help="the results of several devices in one table; runs nothing")
    plotter = add("plot", plot_command, "draw what the programs have learnt, as PNG files", True)
    plotter.add_argument("--json", metavar="FILE", type=Path, nargs="+", default=[],
                         help="draw these results of earlier runs instead of running steps")
    lister = add("list", list_command, "the steps of the course", False)
    lister.add_argument("--json", action="store_true", help="for programs")
    begin = add("start", start_command, "write a step's headers into workspace/, to be filled in",
                True)
    begin.add_argument("--reset", action="store_true",
                       help="begin anew; what is there is kept under a dated name")
    checker = add("check", check_command, "build, correctness, safety and speed of your headers", True)
    checker.add_argument("--solution", action="store_true", help="check the repository's own instead")
    add("watch", watch_command, "check again whenever a header is saved", True)
    hinter = add("hint", hint_command, "the next of an exercise's three hints", False)
    hinter.add_argument("step", metavar="STEP")
    hinter.add_argument("exercise", metavar="EXERCISE", nargs="?",
                        help="default: the first that is not filled in")
    solver = add("solution", solution_command, "your header beside the solution", False)
    solver.add_argument("step", metavar="STEP")
    solver.add_argument("--give-up", action="store_true", help="also where it is not solved yet")
    reached = add("progress", progress_command, "what you have reached; carry it to another machine",
                  False)
    reached.add_argument("--export", metavar="FILE", type=Path, help="write it, with your headers")
    reached.add_argument("--import", metavar="FILE", type=Path, dest="take",
                         help="take over an exported file")
    add("doctor", doctor_command, "what this machine has and lacks for the course", False)
    reporter = add("report", report_command, "one HTML page with all tables and pictures", False)
    reporter.add_argument("files", nargs="*", metavar="FILE", type=Path,
                          help="of `course bench`, of a program's --json, or a folder of such; "
                               "default: what results/ holds")
    reporter.add_argument("--out", metavar="FILE.html", type=Path, help="default: build/report.html")
    reporter.add_argument("--pictures", metavar="DIR", type=Path,
                          help="also keep the pictures there, as SVG and PNG")
    profiler = add("profile", profile_command, "a version's counters, by ncu or rocprof", False)
    profiler.add_argument("step", metavar="STEP")
    profiler.add_argument("--version", required=True, metavar="V", help="of the step, e.g. naive")
    profiler.add_argument("--size", metavar="N", help="passed on to the step's program")
    profiler.add_argument("--build", metavar="DIR", type=Path,
                          help="take the programs of this build as they are")
    return parser.parse_args(arguments)


# ---- Setting up --------------------------------------------------------------------------------


def _chosen_steps(words: list[str]) -> list[steps.Step]:
    found = steps.discover(ROOT)
    if not found:
        raise CourseError(f"no step found in {ROOT}: is the checkout complete?", USAGE)
    return steps.resolve(ROOT, found, words)


def _needed_packages(chosen: str, hardware: backend.Hardware) -> list[str]:
    """The packages to build and test for a backend. A HIP that is there, e.g. AMD's, is kept."""
    groups = packages.read_packages(ROOT / "scripts" / "packages.txt")
    has_toolkit = chosen == "hip" and hardware.hipcc
    return groups["base"] + ([] if has_toolkit else groups.get(chosen, []))


def _python_environment() -> python_env.PythonEnvironment:
    """.venv stands in the checkout, or with everything else in $COURSE_BUILD_DIR."""
    made = build_root(ROOT)
    folder = made if os.environ.get("COURSE_BUILD_DIR") else ROOT
    return python_env.PythonEnvironment(folder / ".venv", made / "setup.log")


def _set_up(wanted: str, no_setup: bool,
            ) -> tuple[Build, backend.Hardware, python_env.PythonEnvironment]:
    """Installs what is missing, unless it must not, and chooses the backend: all that comes before
    CMake."""
    made = build_root(ROOT)
    hardware = backend.detect()
    if no_setup:
        choice = backend.choose(hardware, wanted)
        return (Build(ROOT, made / choice.backend, choice.backend, dict(os.environ)), hardware,
                _python_environment())
    if wanted == "auto" and hardware.amd and not hardware.nvidia and not hardware.hipcc:
        say(f"{hardware.amd[0]} is here: getting HIP's compiler for it")
        packages.install(_needed_packages("hip", hardware), made / "setup.log")
        hardware = backend.detect()
    choice = backend.choose(hardware, wanted)
    packages.install(_needed_packages(choice.backend, hardware), made / "setup.log")
    say(f"backend {choice.backend}: {choice.reason}")
    if choice.advice:
        say(f"  {choice.advice}")
    python = _python_environment()
    environment = python_env.build_environment(python)
    return Build(ROOT, made / choice.backend, choice.backend, environment), hardware, python


# ---- run ---------------------------------------------------------------------------------------


def run_command(options: argparse.Namespace) -> int:
    """Builds and runs the chosen steps, each to the end whatever the ones before it did."""
    chosen = _chosen_steps(options.steps)
    if options.json_dir:
        if options.quick:
            raise CourseError("--json-dir keeps results, --quick makes none worth keeping", USAGE)
        _require_folder(options.json_dir)
    build, hardware, _ = _set_up(options.backend, options.no_setup)
    if options.mine:
        build, mine = _with_own_headers(build)
        build.configure(hardware, None, [f"-DCOURSE_WORKSPACE={mine}"])
    else:
        build.configure(hardware)
    build.build([step.name for step in chosen])
    if options.mine:
        _say_whose(chosen, build, mine)
    start = time.monotonic()
    outcomes = [_run_step(step, build, options) for step in chosen]
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


def _with_own_headers(build: Build) -> tuple[Build, Path]:
    """A build tree of its own, and the folder with the learner's headers that comes before the
    repository in it. Only a header that has passed its check as it stands is taken."""
    workspace = Workspace(ROOT)
    progress = Progress(workspace)
    folder = build.folder.parent / f"{build.backend}-mine"
    include = folder.parent / "mine"
    wanted = {}
    for course in learn.all_courses(ROOT):
        for name in course.files:
            path = workspace.file(course.step, name)
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8")
            if progress.is_passed_text(course.step, name, text):
                wanted[include / path.relative_to(workspace.folder)] = text
            else:
                say(f"  not used: {learn.shown(path)}, which has not passed "
                    f"`scripts/course check {course.step.number}`", "yellow")
    if not wanted:
        raise CourseError("no header in workspace/ has passed its check: nothing of yours to run",
                          USAGE)
    for path in include.rglob("*.h") if include.is_dir() else ():
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():  # left alone where it is the same: nothing is built anew
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return Build(build.root, folder, build.backend, build.environment), include


def _say_whose(chosen: list[steps.Step], build: Build, include: Path) -> None:
    """Which of the learner's headers each program was built from, as the compiler has noted."""
    own = sorted(include.rglob("*.h"))
    for step in chosen:
        object_file = f"CMakeFiles/{step.name}.dir/{step.folder.parent.name}/{step.folder.name}/"
        answer = process.output(["ninja", "-C", str(build.folder), "-t", "deps",
                                 f"{object_file}{step.name}.hip.o"]) or ""
        used = [path for path in own if str(path) in answer]
        names = ", ".join(f"{path.parent.parent.name}/{path.parent.name}/{path.name}" for path in used)
        say(f"{step.number} {step.name} runs " + (f"with your {names}" if used
                                                  else "with nothing of yours: it includes none of it"),
            "green" if used else "yellow")


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"cannot make {folder}: {error.strerror}", USAGE) from None


def _run_step(step: steps.Step, build: Build, options: argparse.Namespace) -> results.Outcome:
    written = _results_of(step, build.folder)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.unlink(missing_ok=True)  # a program that fails must not leave an older success
    command = [str(build.program(step)), "--json", str(written)]
    if options.quick:
        command.append("--quick")
    say()
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


def _from_here(command: list[str]) -> list[str]:
    """The command with the shorter of absolute and relative paths, as the learner may repeat it."""
    return [min(word, os.path.relpath(word), key=len) if "/" in word else word for word in command]


# ---- bench -------------------------------------------------------------------------------------


def bench_command(options: argparse.Namespace) -> int:
    """Measures the chosen steps beside their peers, or compares or merges what was measured."""
    if options.compare or options.merge:
        if options.steps or options.compare and (options.merge or options.save or options.json):
            raise CourseError("--compare and --merge read files: one of them, without steps", USAGE)
        if options.compare:
            return bench.compare_command(*options.compare)
        return bench.merge_command(options.merge, options.json, options.save)
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else 3
    if rounds < 1 or options.minutes < 0:
        raise CourseError("--rounds is at least 1, and --minutes is not negative", USAGE)
    if options.save and options.quick:
        raise CourseError("--save keeps results, --quick makes none worth keeping", USAGE)
    if options.json and not options.json.absolute().parent.is_dir():
        raise CourseError(f"--json: there is no folder {options.json.parent}", USAGE)
    chosen = _chosen_steps(options.steps)
    if options.build:
        folder = options.build.absolute()
        if not folder.is_dir():
            raise CourseError(f"--build: there is no folder {options.build}", USAGE)
        build = Build(ROOT, folder, bench.backend_of(folder), dict(os.environ))
        wanted = bench.parse_peers(options.peers, build.backend)
        python = _python_environment()
    else:
        bench.parse_peers(options.peers, "cpu")  # complains before anything is built
        build, hardware, python = _set_up(options.backend)
        wanted = bench.parse_peers(options.peers, build.backend)
        if "numpy" in wanted and not options.python:
            try:
                python.require("requirements", _requirements(ROOT / "scripts" / "requirements.txt"))
            except CourseError as error:
                terminal.warn(str(error))
        build.configure(hardware)
        build.build([step.name for step in chosen])
    candidates = [options.python] if options.python else [str(python.python), sys.executable]
    made = build.folder / "bench"
    plan = bench.Plan(
        steps=chosen, programs={step.number: build.program(step) for step in chosen}, peers=wanted,
        python=bench.find_interpreters(wanted, candidates), scripts=ROOT / "scripts", folder=made,
        file=options.json or made / "bench.json", rounds=rounds, quick=options.quick,
        minutes=options.minutes)
    return bench.run_command(plan, build.environment, options.save)


# ---- plot --------------------------------------------------------------------------------------


def plot_command(options: argparse.Namespace) -> int:
    """Draws the series of results into build/plots: those of the files that are named, those of the
    steps that are named, which are run for it, or else those of the last runs."""
    if options.json and options.steps:
        raise CourseError("either steps, which are run, or --json with files, which are read", USAGE)
    codes: list[int] = []
    if options.json:
        files, python = options.json, _python_environment()
    elif options.steps:
        chosen = _chosen_steps(options.steps)
        build, hardware, python = _set_up(options.backend, options.no_setup)
        build.configure(hardware)
        build.build([step.name for step in chosen])
        options.quick, options.json_dir = False, None
        codes = [_run_step(step, build, options).code for step in chosen]
        files = [_results_of(step, build.folder) for step in chosen]
        files = [file for file, code in zip(files, codes) if code == OK]
    else:
        choice = backend.choose(backend.detect(), options.backend)
        files = sorted((build_root(ROOT) / choice.backend / "results").glob("*.json"))
        python = _python_environment()
    drawable = [file for file in files if _has_pictures(file, is_asked_for=bool(options.json))]
    if drawable:
        _draw(drawable, python)
    elif any(codes):
        return FAILED
    elif options.steps:
        raise CourseError("these steps write no series to draw; those that train do", USAGE)
    else:
        raise CourseError("no results to draw are here yet: try `scripts/course plot 5.6`", USAGE)
    return FAILED if any(codes) else OK


def _results_of(step: steps.Step, folder: Path) -> Path:
    """Where `run` and `plot` have a program write its results."""
    return folder / "results" / f"{step.name}.json"


def _has_pictures(file: Path, is_asked_for: bool) -> bool:
    try:
        report = results.load(file)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None
    try:
        has_pictures = bool(plot.pictures_of(report))
    except ValueError as error:
        raise CourseError(f"{file}: {error}", USAGE) from None
    if is_asked_for and not has_pictures:
        raise CourseError(f"{file} has no series to draw: {report['program']} writes none", USAGE)
    return has_pictures


def _draw(files: list[Path], python: python_env.PythonEnvironment) -> None:
    """Matplotlib is in .venv, not in the Python that runs this: it draws in a process of its own."""
    python.require("requirements", _requirements(ROOT / "scripts" / "requirements.txt"))
    folder = build_root(ROOT) / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    progress = terminal.Progress("drawing")
    script = ROOT / "scripts" / "course_lib" / "plot.py"
    command = [str(python.python), str(script), str(folder), *map(str, files)]
    drawn: list[str] = []
    code, _ = process.logged(
        command, folder.parent / "plot.log",
        lambda line: (drawn.append(line), progress.update(Path(line).name)))
    progress.finish()
    if code != 0:
        raise CourseError(f"the pictures could not be drawn: see {folder.parent / 'plot.log'}", FAILED)
    for file in drawn:
        say(min(file, os.path.relpath(file), key=len))


# ---- test --------------------------------------------------------------------------------------


def test_command(options: argparse.Namespace) -> int:
    """Builds the chosen steps and their tests and runs them; without steps, all tests there are."""
    chosen = _chosen_steps(options.steps)
    build, hardware, python = _set_up(options.backend, options.no_setup)
    requirements = _requirements(ROOT / "scripts" / "requirements.txt")
    without_python = None
    try:
        python.require("requirements", requirements)
    except CourseError as error:
        terminal.warn(f"{error}. The tests that need NumPy are skipped.")
        without_python = error
    build.configure(hardware, None if without_python else python.python)
    targets = []
    if options.steps:
        targets = [step.name for step in chosen]
        targets += [f"{step.name}_test" for step in chosen if step.has_test]
    build.build(targets)

    ctest = ["ctest", "--test-dir", str(build.folder), "--output-on-failure", "--no-tests=error"]
    if options.steps:
        names = "|".join(re.escape(step.name) for step in chosen)
        ctest += ["-R", rf"^({names})(_test)?(\.|$)"]
    codes = [process.stream(ctest, build.environment)]
    if not options.steps and not without_python:
        cache = build.folder.parent / "pytest"
        pytest = [str(python.python), "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
        say()
        codes.append(process.stream([*pytest, str(ROOT / "tests" / "python")], cwd=ROOT))
    if any(codes):
        return FAILED
    if without_python:
        terminal.warn("what ran has passed; the tests that need Python's packages did not run")
        return MISSING
    return OK


def _requirements(path: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


# ---- start, check, watch, hint, solution, progress ---------------------------------------------


def _course_of(word: str) -> exercises.Course:
    chosen = _chosen_steps([word])
    if len(chosen) > 1:
        raise CourseError(f"'{word}' is {len(chosen)} steps: name one", USAGE)
    return exercises.load(chosen[0])


def _one_course(options: argparse.Namespace, what: str) -> exercises.Course:
    """The step that is named, or else the one that was begun last and is not solved."""
    if len(options.steps) > 1:
        raise CourseError(f"`{what}` takes one step", USAGE)
    if options.steps:
        return _course_of(options.steps[0])
    progress = Progress(Workspace(ROOT))
    begun = [(record.get("started", ""), number) for number, record in progress.steps.items()
             if record.get("state") == "in progress"]
    if not begun:
        raise CourseError("no exercise is in progress: begin one, e.g. `scripts/course start 1.1`",
                          USAGE)
    return _course_of(max(begun)[1])


def start_command(options: argparse.Namespace) -> int:
    if not options.steps:
        following = learn.next_step(ROOT, Progress(Workspace(ROOT)))
        if following is None:
            raise CourseError("every exercise of the course is solved", USAGE)
        options.steps = [following.number]
    return learn.start(_one_course(options, "course start"), Workspace(ROOT), options.reset)


def _builds(course: exercises.Course, options: argparse.Namespace) -> list[Build]:
    """The CPU backend's build, which checks, and the GPU's where there is one; both up to date."""
    names = ["cpu"]
    if options.backend != "cpu":
        chosen = backend.choose(backend.detect(), options.backend).backend
        names += [chosen] if chosen != "cpu" else []
    builds = []
    for name in names:
        build, hardware, _ = _set_up(name, options.no_setup)
        if not (build.is_configured() and build.program(course.step).is_file()):
            build.configure(hardware)
        build.build([course.step.name])  # configures anew where that has become necessary
        builds.append(build)
    return builds


def check_command(options: argparse.Namespace) -> int:
    """Checks the learner's headers of one step."""
    course = _one_course(options, "course check")
    workspace = Workspace(ROOT)
    if not options.solution and not workspace.started(course):
        raise CourseError(f"step {course.step.number} is not begun: `scripts/course start "
                          f"{course.step.number}`", USAGE)
    return learn.check_step(course, workspace, _builds(course, options),
                            check.load_signatures(ROOT), options.solution)


WATCH_KEYS = "h hint   n next   s solution   r reset   q quit"


def watch_command(options: argparse.Namespace) -> int:
    """Checks, waits for a saved file or a key, and so on until q or Ctrl-C."""
    workspace = Workspace(ROOT)
    course = _one_course(options, "course watch")
    if not workspace.started(course):
        learn.start(course, workspace, False)
    builds = _builds(course, options)
    signatures = check.load_signatures(ROOT)
    changes = watch.Changes(workspace.folder)
    try:
        with watch.Keys() as keys:
            run = True
            while True:
                if run:
                    say()
                    learn.check_step(course, workspace, builds, signatures)
                    say()
                    say(f"watching {learn.shown(workspace.folder)} ({changes.how})   "
                        + (WATCH_KEYS if keys.descriptor is not None else "Ctrl-C ends"), "dim")
                run = False
                changed, key = changes.wait(keys.descriptor)
                own = {workspace.file(course.step, name) for name in course.files}
                if own & set(changed):
                    run = True
                elif key == "q":
                    return OK
                elif key == "h":
                    learn.hint(course, workspace, None)
                elif key == "s":
                    _said(lambda: learn.solution(course, workspace, False))
                elif key == "r":
                    _said(lambda: learn.start(course, workspace, True))
                    run = True
                elif key == "n":
                    following = learn.next_step(ROOT, Progress(workspace))
                    if following is None or following == course.step:
                        say("this one first" if following else "every exercise is solved", "yellow")
                        continue
                    course = exercises.load(following)
                    if not workspace.started(course):
                        learn.start(course, workspace, False)
                    builds = _builds(course, options)
                    changes.close()
                    changes = watch.Changes(workspace.folder)
                    run = True
    except KeyboardInterrupt:
        say()
        return OK
    finally:
        changes.close()


def _said(action) -> None:
    """A request that can't be met is a line, and no end of the watch."""
    try:
        action()
    except CourseError as error:
        say(str(error), "yellow")


def hint_command(options: argparse.Namespace) -> int:
    return learn.hint(_course_of(options.step), Workspace(ROOT), options.exercise)


def solution_command(options: argparse.Namespace) -> int:
    return learn.solution(_course_of(options.step), Workspace(ROOT), options.give_up)


def progress_command(options: argparse.Namespace) -> int:
    workspace = Workspace(ROOT)
    if options.export and options.take:
        raise CourseError("either --export or --import", USAGE)
    if options.export:
        return learn.export_progress(workspace, options.export)
    if options.take:
        return learn.import_progress(workspace, options.take)
    progress = Progress(workspace)
    courses = [step for step in steps.discover(ROOT) if exercises.has_exercises(step)]
    for step in courses:
        if progress.state(step) != "not started":
            say(f"{step.number} {step.name}: {progress.state(step)}")
    solved = sum(progress.state(step) == "passed" for step in courses)
    say(f"{solved} of {len(courses)} steps are solved")
    return OK


# ---- list --------------------------------------------------------------------------------------


def list_command(options: argparse.Namespace) -> int:
    """The roadmap: every step with what the learner has reached on this machine."""
    present = {step.name: step for step in steps.discover(ROOT)}
    progress = Progress(Workspace(ROOT))
    choice = None
    entries = []
    for row in steps.roadmap(ROOT):
        step = present.get(row.name)
        entry = {"step": row.number, "program": row.name, "lesson": row.summary, "path": "",
                 "state": "planned", "ms": None, "of_limit": None, "of_vendor": None, "medal": None,
                 "device": None}
        if step:
            has = exercises.has_exercises(step)
            entry["path"] = str(step.folder.relative_to(ROOT))
            entry["state"] = progress.state(step) if has else "no exercise"
            devices = progress.steps.get(step.number, {}).get("devices", {})
            wanted = options.backend
            if devices and wanted == "auto":
                choice = choice or backend.choose(backend.detect(), "auto")
                wanted = choice.backend
            here = {name: figures for name, figures in devices.items()
                    if name.startswith(f"{wanted}:")}
            if here:
                device, figures = min(here.items(), key=lambda item: item[1].get("ms") or 0)
                entry.update({key: figures.get(key) for key in
                              ("ms", "of_limit", "of_vendor", "medal")}, device=device)
        entries.append(entry)
    entries.sort(key=lambda entry: results.place_of(entry["step"]))
    if options.json:
        say(json.dumps(entries, indent=1, ensure_ascii=False))
        return OK
    columns = [Column("step"), Column("program"), Column("lesson", flexible=True), Column("state"),
               Column("best", right=True), Column("of limit", right=True, optional=True),
               Column("of vendor", right=True, optional=True), Column("medal", optional=True)]
    rows = [[e["step"], e["program"], e["lesson"], e["state"], results.format_ms(e["ms"]),
             results.format_share(e["of_limit"]), results.format_share(e["of_vendor"]),
             e["medal"] or "-"] for e in entries]
    header, *lines = terminal.format_table(columns, rows, terminal.width())
    say(header, "bold")
    styles = {"planned": "dim", "passed": "green", "in progress": "yellow"}
    for entry, line in zip(entries, lines):
        say(line, styles.get(entry["state"], ""))
    return OK


# ---- doctor ------------------------------------------------------------------------------------


def doctor_command(options: argparse.Namespace) -> int:
    """What the course needs of this machine. Exit code 0 where `course run` can work as it is."""
    hardware = backend.detect()
    choice = backend.choose(hardware, options.backend)
    lacking: list[str] = []  # the commands that bring what is missing

    def show(name: str, value: str, good: bool = True) -> None:
        say(f"  {name:<13} {value}", "" if good else "yellow")

    say("machine", "bold")
    show("system", f"{_distribution()}, {platform.machine()}, {process.cpu_count()} processors")
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
    show("backend", f"{choice.backend}: {choice.reason}")
    if choice.advice:
        show("", choice.advice, False)

    say("packages", "bold")
    names = _needed_packages(choice.backend, hardware)
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
    complete = python.has("requirements", _requirements(ROOT / "scripts" / "requirements.txt"))
    show(".venv", f"{folder}" if complete else "not made yet: `scripts/course test` makes it")
    data = os.environ.get("COURSE_DATA")
    show("COURSE_DATA", (data if Path(data).is_dir() else f"{data} is not there") if data
         else "not set, and no data/ here: `python3 scripts/data.py` fetches MNIST and Shakespeare; "
              "without them programs train on what they make up")

    say()
    if lacking:
        say(f"missing: `scripts/course run` installs it, or do it yourself: {'; '.join(lacking)}",
            "yellow")
        return MISSING
    say("nothing is missing", "green")
    return OK


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


# ---- report, profile ---------------------------------------------------------------------------


def report_command(options: argparse.Namespace) -> int:
    """Writes the page. Its pictures are drawn by the Python of .venv, which has Matplotlib."""
    folders = sorted(folder for folder in (ROOT / "results").glob("*") if folder.is_dir())
    python = _python_environment()
    python.require("requirements", _requirements(ROOT / "scripts" / "requirements.txt"))
    out = options.out or build_root(ROOT) / "report.html"

    def draw(jobs: Path, folder: Path) -> None:
        progress = terminal.Progress("drawing")
        log = build_root(ROOT) / "report.log"
        formats = ["svg", "png"] if options.pictures else ["svg"]
        code, _ = process.logged([str(python.python), str(report.DRAWING), str(jobs), str(folder),
                                  *formats], log, progress.update)
        progress.finish()
        if code != 0:
            raise CourseError(f"the pictures could not be drawn: see {log}", FAILED)

    report.write(options.files or folders, out, draw, options.pictures)
    say(f"{min(str(out), os.path.relpath(out), key=len)}: {out.stat().st_size / 1e6:.1f} MB, "
        "open it in a browser")
    return OK


def profile_command(options: argparse.Namespace) -> int:
    """Prints the counters of one version of a step."""
    chosen = _chosen_steps([options.step])
    if len(chosen) > 1:
        raise CourseError(f"'{options.step}' is {len(chosen)} steps: name one", USAGE)
    tool = profile.find(backend.detect(), options.backend)
    if options.build:
        build = Build(ROOT, options.build.absolute(), tool.backend, dict(os.environ))
    else:
        build, hardware, _ = _set_up(tool.backend)
        build.configure(hardware)
        build.build([chosen[0].name])
    return profile.run(tool, ROOT, chosen[0], build.program(chosen[0]), options.version, options.size)
