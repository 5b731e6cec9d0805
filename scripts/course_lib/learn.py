"""What a learner does with an exercise: start it, check it, ask for a hint, see the solution.

Nothing in here parses a command line or sets anything up: commands.py does.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import check, compiling, exercises, fingerprints, races, sanitizer, speed, steps, terminal
from .build import Build, build_root
from .errors import FAILED, OK, USAGE, CourseError
from .exercises import BEGIN, Course, Exercise
from .fingerprints import Signatures
from .terminal import say
from .workspace import ENDINGS, Progress, Workspace

WIDTH = 100


def shown(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def wrapped(text: str, indent: str = "  ") -> str:
    columns = min(WIDTH, terminal.width())
    return textwrap.fill(text, columns, initial_indent=indent, subsequent_indent=indent)


def all_courses(root: Path) -> list[Course]:
    return [exercises.load(step) for step in steps.discover(root) if exercises.has_exercises(step)]


# ---- start -------------------------------------------------------------------------------------


def start(course: Course, workspace: Workspace, reset: bool) -> int:
    """Writes the skeletons and says what to do."""
    kept = workspace.start(course, reset)
    progress = Progress(workspace)
    progress.begin(course.step)
    progress.save()
    for path in kept:
        say(f"kept: {shown(path)}")
    say(f"{course.step.number} {course.step.name}", "bold")
    say(wrapped(lesson(course)))
    say()
    for name in course.files:
        contract = contract_of(course.solution(name))
        if contract:
            say(f"what {name} promises", "bold")
            say("\n".join("  " + line for line in contract))
            say()
    say("fill in", "bold")
    for exercise in course.exercises:
        path = workspace.file(course.step, exercise.file)
        say(f"  {exercise.name}  {shown(path)}:{line_of(path, exercise)}")
        say(wrapped(exercise.region.task, "    "))
    say()
    say(f"then: scripts/course check {course.step.number}   (or: scripts/course watch)", "cyan")
    say(f"the lesson: {shown(course.step.folder / 'README.md')}")
    return OK


def lesson(course: Course) -> str:
    """The first paragraph of the step's README."""
    path = course.step.folder / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    blocks = [block for block in re.split(r"\n\s*\n", text)
              if block.strip() and not block.lstrip().startswith(("#", "```", "|", "<", "!"))]
    return re.sub(r"\s+", " ", blocks[0]).strip() if blocks else ""


def contract_of(text: str) -> list[str]:
    """The comment that a file begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[3:])
    return lines


def line_of(path: Path, exercise: Exercise) -> int:
    """The line of the learner's file in which the exercise begins; 1 where it is gone."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        begin = BEGIN.match(line)
        if begin and exercise.region.task.startswith(begin[2]):
            return number
    return 1


# ---- check -------------------------------------------------------------------------------------


def check_step(course: Course, workspace: Workspace, builds: list[Build], signatures: Signatures,
               solution: bool = False) -> int:
    """Build, correctness, safety and speed of the learner's files. `builds` begins with that of
    the CPU backend; a second one is a GPU's. With `solution` it checks the repository's own."""
    step = course.step
    files = ({name: course.solution(name) for name in course.files} if solution
             else workspace.files(course))
    named = {name: shown(step.folder / name if solution else workspace.file(step, name))
             for name in course.files}
    say(f"{step.number} {step.name}   {', '.join(named[name] for name in files)}", "bold")
    folder = build_root(builds[0].root) / "check"
    compiler = compiling.of(builds[0], course, folder / step.name)
    # What is timed is compiled with all optimization, which takes longer than anything else: it
    # begins now, behind the check, and is dropped where that fails.
    timed = {build.backend: compiling.of(build, course, folder / f"{step.name}-{build.backend}")
             for build in builds}
    with ThreadPoolExecutor(len(builds)) as pool:
        try:
            later = {build.backend: pool.submit(speed.prepare, course, build, timed[build.backend], files,
                                                named) for build in builds}
            if not _check(course, compiler, builds[0], files, named, signatures):
                return FAILED
            if not all(_check_on_gpu(course, build, later[build.backend].result().compiled, named)
                       for build in builds[1:]):
                return FAILED
            progress = Progress(workspace)
            if not solution:
                progress.passed(step, files)
                progress.save()
            code = OK
            for build in builds:
                code = speed.measure(course, build, later[build.backend].result(), progress,
                                     solution) or code
        finally:
            for own in timed.values():
                own.stop()
    if not solution:
        progress.save()
        following = next_step(builds[0].root, progress)
        if following:
            say(f"next: scripts/course start {following.number}   ({following.name})", "cyan")
        else:
            say("every exercise of the course is solved", "green")
    return code


def _run_exercises(course: Course, compiled: compiling.Compiled, named: dict[str, str],
                   on_gpu: bool) -> dict[tuple[str, ...], list[check.Run]]:
    """The runs of each set of versions: exercise by exercise, as the fingerprints of the known mistakes
    were made."""
    places = compiled.places(named)
    return {versions: check.run_all(compiled.program, course, list(versions), on_gpu, places)
            for versions in dict.fromkeys(exercise.versions for exercise in course.exercises)}


def _check(course: Course, compiler: compiling.Compiler, cpu: Build, files: dict[str, str],
           named: dict[str, str], signatures: Signatures) -> bool:
    """Build, correctness and safety on the CPU backend: whether all is well."""
    step = course.step
    begun = time.monotonic()
    compiled = compiler.compile(files, named, fast=True)
    if compiled.messages.strip():
        say(compiled.messages.rstrip())
    if compiled.refusal:
        say(f"build        failed: {compiled.refusal}", "red")
        return False
    if compiled.program is None:
        say("build        failed: the compiler's words are above", "red")
        return False
    say(f"build        ok   ({time.monotonic() - begun:.1f} s)", "green")

    begun = time.monotonic()
    found = _run_exercises(course, compiled, named, on_gpu=False)
    seconds = time.monotonic() - begun
    if all(run.ok for runs in found.values() for run in runs):
        say(f"correctness  ok   {len(course.shapes) or 1} shapes, waves of 32 and 64, three orders of "
            f"threads   ({seconds:.1f} s)", "green")
        say("safety       ok   no access outside a buffer, no barrier missed, no race, no NaN",
            "green")
        return True
    empty = course.empty(files)
    # A mistake is known by what it does where all the rest is right.
    judged = [e for e in course.exercises if not any(e.shares_versions(other) for other in empty)]
    named_as = {}  # the known mistakes that each exercise behaves like
    for exercise in judged:
        runs = found[exercise.versions]
        if not all(run.ok for run in runs):
            named_as[exercise.name] = fingerprints.recognise(
                runs, signatures.known(course, exercise))

    def look_for_races() -> list[str]:
        for exercise in judged:
            suspects = races.suspects(found[exercise.versions], named_as.get(exercise.name, []))
            race = suspects and races.find(course, files, named, cpu, list(exercise.versions),
                                           suspects[0])
            if race:
                return [race.words()]  # the others are most often the same one
        return []

    report(course, found, empty, named_as, seconds, look_for_races)
    say(f"hint: scripts/course hint {step.number}", "cyan")
    return False


def _check_on_gpu(course: Course, build: Build, compiled: compiling.Compiled, named: dict[str, str]) -> bool:
    """The same shapes on the GPU, for what is right on the CPU backend: whether all is well."""
    if compiled.program is None:
        say(f"on the GPU   the {build.backend} compiler refuses it:", "red")
        say(compiled.messages.rstrip())
        return False
    begun = time.monotonic()
    found = _run_exercises(course, compiled, named, on_gpu=True)
    seconds = time.monotonic() - begun
    if all(run.ok for runs in found.values() for run in runs):
        say(f"on the GPU   ok   {len(course.shapes) or 1} shapes   ({seconds:.1f} s)", "green")
        return True
    say(f"on the GPU   right on the CPU backend, wrong with {build.backend}:", "red")

    def look_for_faults() -> list[str]:
        words = []
        for versions, runs in found.items():
            if not all(run.ok for run in runs):
                words += sanitizer.find(course, compiled, named, list(versions), runs)
        return list(dict.fromkeys(words))

    report(course, found, [], {}, seconds, look_for_faults)
    say(f"hint: scripts/course hint {course.step.number}", "cyan")
    return False


def report(course: Course, found: dict[tuple[str, ...], list[check.Run]], empty: list[Exercise],
           named_as: dict[str, list[str]], seconds: float, look_closer) -> None:
    """Prints what is wrong with correctness and safety. `found` has the runs of each set of versions;
    `empty` exercises are to be written yet. look_closer() returns more lines on safety, and takes its
    time: it is called when the rest is said."""
    runs = [run for some in found.values() for run in some]
    wrong = [run for run in runs if not run.ok]
    faults = list(dict.fromkeys(run.fault for run in runs if run.fault))
    bad = {o.version for run in runs for o in run.outcomes if o.status != "ok"}
    say(f"correctness  FAILED   {len(wrong)} of {len(runs)} runs   ({seconds:.1f} s)", "red")
    right = [e for e in course.exercises
             if e not in empty and all(run.ok for run in found[e.versions])]
    for what, some in (("right so far", right), ("still empty", empty)):
        if some:
            say(f"  {what}: {', '.join(exercise.name for exercise in some)}")
    shapes_failing = list(dict.fromkeys(run.shape for run in wrong if run.shape))
    shapes_passing = [s for s in course.shapes if s not in shapes_failing
                      and any(run.shape == s for run in runs)]
    if shapes_failing:
        names = dimension_names(runs)
        shared = check.common_property(shapes_failing, shapes_passing, names)
        say(f"  failing shapes: {', '.join(shapes_failing)}" + (f"   ({shared})" if shared else ""))
    for version in sorted(bad):
        run, outcome = next((run, o) for run in wrong for o in run.outcomes
                            if o.version == version and o.status != "ok")
        say(f"  {version}: {words_of(outcome)}, at {outcome.problem or 'its only size'}")
        exercise = next((e for e in course.exercises if version in e.versions), None)
        where = owner_of(exercise, outcome, run) if exercise else ""
        say(f"    first wrong: element {outcome.index}{where}"
            + (f"; {outcome.failed} of {outcome.compared} are wrong" if outcome.failed else ""))

    racing = check.order_dependent(runs)
    lines = look_closer()
    if faults or racing or lines or any(o.status in ("nan", "unwritten") for r in wrong
                                        for o in r.outcomes):
        say("safety       FAILED", "red")
    else:
        say("safety       ok   no access outside a buffer, no barrier missed", "green")
    for fault in faults:
        run = next(run for run in runs if run.fault == fault)
        how = f", waves of {run.wave}, {run.order}" if run.wave else ""
        say(f"  {check.FAULT_WORDS[fault]}   (--size {run.shape or 'default'}{how})")
        say(textwrap.indent(run.message, "    "))
    if racing:
        say(f"  {', '.join(racing)}: the result depends on the order in which threads run"
            + ("" if lines else ": two threads meet at one place with no barrier between them"))
    for line in lines:
        say(f"  {line}")
    for name, mistakes in named_as.items():
        if mistakes:
            say(f"  {name} behaves like {' or '.join(mistakes)}", "yellow")


def words_of(outcome: check.Outcome) -> str:
    if outcome.status == "unwritten":
        return "elements were never written"
    if outcome.status == "nan":
        return "the result is NaN"
    if outcome.max_error is None:
        return "the result is infinite or NaN"
    return f"off by {outcome.max_error:.2g}, allowed are {outcome.bound or 0:.2g}"


def dimension_names(runs: list[check.Run]) -> list[str]:
    """The names of a shape's dimensions, from a table's "M=17 N=33": in the order of --size."""
    for run in runs:
        for outcome in run.outcomes:
            count = run.shape.count("x") + 1
            names = re.findall(r"\b(\w+)=[\d^]+", outcome.problem)
            if len(names) == count:
                return names
    longest = max((run.shape.count("x") + 1 for run in runs), default=1)
    return ["n"] if longest == 1 else [f"size {d + 1}" for d in range(longest)]


def owner_of(exercise: Exercise, outcome: check.Outcome, run: check.Run) -> str:
    """", which block 1, thread 5 computes", where the exercise says who owns an element."""
    if not exercise.owner:
        return ""
    values = {name: int(size) for name, size in re.findall(r"\b(\w+)=(\d+)\b", outcome.problem)}
    for name, power in re.findall(r"\b(\w+)=2\^(\d+)\b", outcome.problem):
        values[name] = 2 ** int(power)
    values.update(i=outcome.index, wave=int(run.wave or 32))
    try:
        # The expressions are the repository's own, beside the kernel that they describe.
        owner = {key: eval(text, {"__builtins__": {}}, values)  # noqa: S307
                 for key, text in exercise.owner.items()}
    except (NameError, TypeError, ZeroDivisionError, SyntaxError):
        return ""
    return ", which " + ", ".join(f"{key} {value}" for key, value in owner.items()) + " computes"


# ---- What comes next, hint, solution ------------------------------------------------------------


def next_step(root: Path, progress: Progress) -> steps.Step | None:
    return next((step for step in steps.discover(root)
                 if exercises.has_exercises(step) and progress.state(step) != "passed"), None)


def hint(course: Course, workspace: Workspace, name: str | None) -> int:
    """The next of an exercise's three hints: of the one that is named, or of the first that is not
    filled in yet."""
    chosen = _chosen(course, workspace, name)
    progress = Progress(workspace)
    level = progress.hint(course.step, chosen.name)
    progress.save()
    say(f"{course.step.number} {chosen.name}: {chosen.region.task}", "bold")
    for number in range(1, min(level, exercises.HINTS) + 1):
        say(wrapped(f"{number}. {chosen.hints[number - 1]}"))
    if level >= exercises.HINTS:
        say(f"that was the last hint; scripts/course solution {course.step.number} --give-up shows the "
            "rest", "cyan")
    return OK


def _chosen(course: Course, workspace: Workspace, name: str | None) -> Exercise:
    """The exercise that is named, or the first that is not filled in: of those that the name means, where
    it means several."""
    meant = course.named(name) if name else course.exercises
    empty = course.empty(workspace.texts(course))
    return next((exercise for exercise in meant if exercise in empty), meant[0])


def solution(course: Course, workspace: Workspace, give_up: bool) -> int:
    """A coloured diff of the learner's files against the solution."""
    progress = Progress(workspace)
    if progress.state(course.step) != "passed" and not give_up:
        raise CourseError(
            f"step {course.step.number} is not solved yet: `scripts/course solution "
            f"{course.step.number} --give-up` shows the solution all the same", USAGE)
    texts = workspace.texts(course)
    same = True
    for name in course.files:
        path = workspace.file(course.step, name)
        mine = shown(path) if path.is_file() else f"{name} (not started)"
        lines = difflib.unified_diff(
            texts[name].splitlines() if path.is_file() else course.skeleton(name).splitlines(),
            course.solution(name).splitlines(), mine, shown(course.step.folder / name), lineterm="")
        for line in lines:
            same = False
            style = ("bold" if line.startswith(("+++", "---")) else "green" if line[0] == "+"
                     else "red" if line[0] == "-" else "cyan" if line[0] == "@" else "")
            say(line, style)
    if same:
        say("yours and the solution are the same, line by line", "green")
    return OK


# ---- progress ----------------------------------------------------------------------------------


def export_progress(workspace: Workspace, path: Path) -> int:
    """One file with the progress and the learner's files."""
    progress = Progress(workspace)
    files = {str(file.relative_to(workspace.folder)): file.read_text(encoding="utf-8")
             for file in workspace.all_files()}
    record = {"schema": 1, "steps": progress.steps, "files": files}
    try:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise CourseError(f"cannot write {path}: {error.strerror}", USAGE) from None
    say(f"{len(progress.steps)} steps and {len(files)} files in {path}")
    return OK


def import_progress(workspace: Workspace, path: Path) -> int:
    """Takes over an exported file. A file that is here and differs is kept as it is."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} can't be read: {error}", USAGE) from None
    if (not isinstance(record, dict) or record.get("schema") != 1
            or not isinstance(record.get("steps"), dict)
            or not isinstance(record.get("files"), dict)):
        raise CourseError(f"{path} was not written by `scripts/course progress --export`", USAGE)
    taken = 0
    for name, text in record["files"].items():
        target = workspace.folder / name
        inside = os.path.normpath(target).startswith(os.path.normpath(workspace.folder) + os.sep)
        if not isinstance(text, str) or not inside or not name.endswith(ENDINGS):
            raise CourseError(f"{path}: '{name}' is no file of a workspace", USAGE)
        if target.is_file() and target.read_text(encoding="utf-8") != text:
            terminal.warn(f"{name} is here already and differs: yours stays")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        taken += 1
    progress = Progress(workspace)
    for number, theirs in record["steps"].items():
        if not isinstance(theirs, dict):
            raise CourseError(f"{path}: step {number} is not an object", USAGE)
        mine = progress.steps.setdefault(number, theirs)
        if mine is not theirs and theirs.get("state") == "passed" and mine.get("state") != "passed":
            progress.steps[number] = {**mine, **theirs}
        for device, figures in theirs.get("devices", {}).items():
            mine.setdefault("devices", {}).setdefault(device, figures)
    progress.save()
    say(f"{len(record['steps'])} steps and {taken} files taken from {path}")
    return OK
