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

from . import (compiling, documents, exercises, fingerprints, progress_file, sanitizer, speed, steps,
               terminal, verdict_words)
from .build import Build, build_root
from .errors import FAILED, OK, USAGE, CourseError
from .exercises import BEGIN, Course, Exercise
from .fingerprints import Signatures
from .terminal import say
from .verdict import Judge, Verdict, run_written
from .workspace import Progress, Workspace, write_text

WIDTH = 100


def shown(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def files_in_words(paths: list[str]) -> str:
    """One or two files by their paths, more by their folder and number."""
    return ", ".join(paths) if len(paths) < 3 else f"{os.path.commonpath(paths)}/ ({len(paths)} files)"


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
    for number, line in enumerate(documents.text_for_user(path).splitlines(), 1):
        begin = BEGIN.match(line)
        if begin and exercise.region.task.startswith(begin[2]):
            return number
    return 1


# ---- check -------------------------------------------------------------------------------------


def check_step(course: Course, workspace: Workspace, builds: list[Build], signatures: Signatures,
               solution: bool = False) -> int:
    """Judges the learner's files, and times them once all is right. `builds` begins with that of the CPU
    backend; a second one is a GPU's. With `solution` it judges the repository's own."""
    step = course.step
    files = ({name: course.solution(name) for name in course.files} if solution
             else workspace.files(course))
    named = {name: shown(step.folder / name if solution else workspace.file(step, name))
             for name in course.files}
    say(f"{step.number} {step.name}   {files_in_words([named[name] for name in files])}", "bold")
    # What is timed on a GPU is compiled with all optimization, which takes longer than anything else: it
    # begins now, behind the verdict, and is dropped where that is no pass.
    folder = build_root(builds[0].root) / "check"
    gpus = [(build, compiling.Compiler(build, course, folder / f"{step.name}-{build.backend}"))
            for build in builds[1:]]
    with ThreadPoolExecutor(len(builds)) as pool:
        try:
            later = [(build, pool.submit(speed.prepare, course, build, compiler, files, named))
                     for build, compiler in gpus]
            if not _judge(course, builds[0], files, named, signatures):
                return FAILED
            if not all(_check_on_gpu(course, build, prepared.result().compiled, named)
                       for build, prepared in later):
                return FAILED
            progress = Progress(workspace)
            if not solution:
                progress.passed(step, files)
                progress.save()
            speed.show_plain_time(course, builds[0], files)
            code = OK
            for build, prepared in later:
                code = speed.measure(course, build, prepared.result(), progress, solution) or code
        finally:
            for _, compiler in gpus:
                compiler.stop()
    if not solution:
        progress.save()
        following = next_step(builds[0].root, progress)
        if following:
            say(f"next: scripts/course start {following.number}   ({following.name})", "cyan")
        else:
            say("every exercise of the course is solved", "green")
    return code


def _judge(course: Course, cpu: Build, files: dict[str, str], named: dict[str, str],
           signatures: Signatures) -> bool:
    """On the CPU backend, phase by phase: whether every exercise is right."""
    begun = time.monotonic()

    def on_phase(phase: str, verdict: Verdict) -> None:
        nonlocal begun
        seconds, begun = time.monotonic() - begun, time.monotonic()
        if phase == "build":
            verdict_words.say_build(verdict, seconds)
        elif phase == "correctness":
            verdict_words.say_correctness(course, verdict, seconds)
        else:
            looks_like = {exercise.name: fingerprints.recognise(verdict.runs[exercise.versions],
                                                                signatures.known(course, exercise))
                          for exercise in verdict.wrong if not verdict.failures}
            verdict_words.say_safety(verdict, looks_like)

    verdict = Judge(course, cpu).judge(files, named, on_phase)
    to_do = next(iter([*verdict.wrong, *verdict.empty]), None)
    if not verdict.written:
        say(f"nothing is written yet: {', '.join(exercise.name for exercise in verdict.empty)}", "red")
    if to_do:
        say(f"hint: scripts/course hint {course.step.number} {to_do.name}", "cyan")
    return verdict.ok and not verdict.empty


def _check_on_gpu(course: Course, build: Build, compiled: compiling.Compiled, named: dict[str, str]) -> bool:
    """The same shapes on the GPU, for what is right on the CPU backend: whether all is well."""
    if compiled.program is None:
        say(f"on the GPU   the {build.backend} compiler refuses it:", "red")
        say((compiled.refusal or compiled.messages).rstrip())
        return False
    begun = time.monotonic()
    verdict = Verdict(written=list(course.exercises), compiled=compiled)
    run_written(verdict, course, compiled.places(named), on_gpu=True)
    seconds = time.monotonic() - begun
    if verdict.ok:
        say(f"on the GPU   ok   {len(course.shapes) or 1} shapes   ({seconds:.1f} s)", "green")
        return True
    say(f"on the GPU   right on the CPU backend, wrong with {build.backend}:", "red")
    verdict_words.say_correctness(course, verdict, seconds)
    if any(run.fault for runs in verdict.runs.values() for run in runs):
        verdict_words.say_safety(verdict, {})  # else the GPU itself has seen nothing
    for exercise in verdict.wrong:
        for line in sanitizer.find(course, compiled, named, list(exercise.versions),
                                   verdict.runs[exercise.versions]):
            say(f"  {line}")
    say(f"hint: scripts/course hint {course.step.number} {verdict.wrong[0].name}", "cyan")
    return False


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
    files = {str(file.relative_to(workspace.folder)): documents.text_for_user(file)
             for file in workspace.all_files()}
    record = {"schema": progress_file.SCHEMA, "steps": progress.steps, "files": files}
    try:
        progress_file.validate_export(record)
    except ValueError as error:  # a name that the other machine might refuse
        raise CourseError(f"the workspace cannot be exported: {error}", USAGE) from None
    try:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise CourseError(f"cannot write {path}: {error.strerror}", USAGE) from None
    say(f"{len(progress.steps)} steps and {len(files)} files in {path}")
    return OK


def import_progress(workspace: Workspace, path: Path) -> int:
    """Takes over an exported file, once all of it is known to be right. A file that is here and differs is
    kept as it is, and nothing that was reached here is lost."""
    try:
        record = documents.load(path, progress_file.validate_export)
    except ValueError as error:
        raise CourseError(str(error), USAGE) from None
    names = record["files"]
    for name in names:
        above = [parent for parent in Path(name).parents if parent.name]
        if (workspace.folder / name).is_dir() or any(
                str(parent) in names or (workspace.folder / parent).is_file() for parent in above):
            raise CourseError(f"{path}: '{name}' cannot be both a file and a folder", USAGE)
    progress = Progress(workspace)
    taken = 0
    for name, text in names.items():
        target = workspace.folder / name
        if target.is_file() and target.read_text(encoding="utf-8", errors="replace") != text:
            terminal.warn(f"{name} is here already and differs: yours stays")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
        taken += 1
    for number, theirs in record["steps"].items():
        progress.steps[number] = progress_file.merged(progress.steps.get(number, {}), theirs)
    progress.save()
    say(f"{len(record['steps'])} steps and {taken} files taken from {path}")
    return OK
