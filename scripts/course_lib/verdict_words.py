"""Says what verdict.py has found, in the order in which it helps: which exercises are right, wrong or still
empty, what alone makes one fail, which shapes, the first wrong element; then what the GPU's compiler, the
step's tests and ThreadSanitizer say, and which known mistake it looks like."""

from __future__ import annotations

import re
import textwrap

from . import check, step_tests
from .exercises import Course, Exercise
from .terminal import say
from .verdict import Verdict

MOST_TESTS = 3  # failing test cases that are shown


def say_build(verdict: Verdict, seconds: float) -> None:
    compiled = verdict.compiled
    if compiled.messages.strip():
        say(compiled.messages.rstrip())
    if compiled.program is None:
        say(f"build        failed: {compiled.refusal or 'see the compiler above'}", "red")
    elif verdict.device:
        say(f"build        failed: a GPU's compiler does not take this   ({verdict.device_by})", "red")
        for line in verdict.device:
            say(f"  {line}")
    else:
        by = f", as device code by {verdict.device_by}" if verdict.device_by else ""
        say(f"build        ok   for the host{by}   ({seconds:.1f} s)", "green")


def say_correctness(course: Course, verdict: Verdict, seconds: float) -> None:
    shapes = len(course.shapes) or 1
    failed = sum(not run.ok for runs in verdict.runs.values() for run in runs)
    if not failed and not verdict.failures:
        orders = len({run.setting for runs in verdict.runs.values() for run in runs})
        say(f"correctness  ok   {count(shapes, 'shape')} and the step's own tests, waves of 32 and 64, "
            f"{count(orders, 'order')} of threads and blocks   ({seconds:.1f} s)", "green")
    else:
        total = sum(map(len, verdict.runs.values()))
        what = (f"{failed} of {count(total, 'run')}" if failed else
                f"all {count(total, 'run')} are right, {len(verdict.failures)} of the step's tests fail")
        say(f"correctness  FAILED   {what}   ({seconds:.1f} s)", "red")
        say_states(verdict)
    for exercise in verdict.wrong:
        _say_wrong(course, verdict, exercise)
    for failure in verdict.failures[:MOST_TESTS]:
        say(f"  {step_tests.words_of(failure)}")
    if len(verdict.failures) > MOST_TESTS:
        say(f"  and {count(len(verdict.failures) - MOST_TESTS, 'test')} more")


def say_states(verdict: Verdict) -> None:
    """Which exercises are right, wrong or empty; nothing where all are right."""
    if not (verdict.wrong or verdict.empty):
        return
    for what, some in (("right", verdict.right), ("wrong", verdict.wrong), ("still empty", verdict.empty)):
        if some:
            say(f"  {what}: {', '.join(exercise.name for exercise in some)}")


def _say_wrong(course: Course, verdict: Verdict, exercise: Exercise) -> None:
    runs = verdict.runs[exercise.versions]
    wrong = [run for run in runs if not run.ok]
    if not wrong:
        return
    several = len(verdict.wrong) > 1
    if several:
        say(f"  {exercise.name}", "bold")
    only = verdict.only.get(exercise.name)
    if only:
        say(f"  fails {only}")
    failing = list(dict.fromkeys(run.shape for run in wrong if run.shape))
    passing = [shape for shape in course.shapes if shape not in failing
               and any(run.shape == shape for run in runs)]
    ended = not any(run.fault in check.ENDLESS for run in runs)  # else not every shape was tried
    if failing and ended:
        shared = "" if only else check.common_property(failing, passing, dimension_names(runs))
        say(f"  failing shapes: {', '.join(failing)}" + (f"   ({shared})" if shared else ""))
    for version in sorted({o.version for run in wrong for o in run.outcomes if o.status != "ok"}):
        run, outcome = next((run, o) for run in wrong for o in run.outcomes
                            if o.version == version and o.status != "ok")
        say(f"  {version}: {check.words_of(outcome)}, at {outcome.problem or 'its only size'}")
        say(f"    first wrong: element {outcome.index}{owner_of(exercise, outcome, run)}"
            + (f"; {outcome.failed} of {outcome.compared} are wrong" if outcome.failed else ""))


def say_safety(verdict: Verdict, looks_like: dict[str, list[str]]) -> None:
    """`looks_like` has the known mistakes of each exercise that fails as they do."""
    runs = [run for some in verdict.runs.values() for run in some]
    faults = {run.fault: run for run in reversed(runs) if run.fault}  # the first of each
    bad = {o.status for run in runs for o in run.outcomes} & {"nan", "unwritten"}
    tested = next((failure for failure in verdict.failures if failure.fault), None)
    race = verdict.race
    failed = bool(verdict.failures) or not all(run.ok for run in runs)  # then the states were said before
    if faults or bad or race or tested:
        why = [*(check.FAULT_WORDS[fault] for fault in faults),
               *(["a result is NaN"] if "nan" in bad else []),
               *(["elements are never written"] if "unwritten" in bad else []),
               *(["a test of the step was stopped"] if tested else []), *(["a data race"] if race else [])]
        say(f"safety       FAILED   {'; '.join(why)}", "red")
    else:
        looked = verdict.races
        race_words = ("nobody looked for races yet" if not looked else
                      f"nobody looked for races: {looked.why}" if not looked.looked else
                      f"no race to look for: {looked.why}" if looked.why else "ThreadSanitizer found no race")
        say(f"safety       ok   no access outside a buffer, no barrier missed; {race_words}", "green")
    if not failed:
        say_states(verdict)
    for fault, run in faults.items():
        how = f"--size {run.shape or 'default'} {run.setting.words()}".rstrip()
        say(f"  {check.FAULT_WORDS[fault]}   ({how})")
        say(textwrap.indent(run.message, "    "))
    if race:
        say(f"  {race.words()}")
    for name, mistakes in looks_like.items():
        if mistakes:
            say(f"  {name} looks like {' or '.join(mistakes)}", "yellow")


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def dimension_names(runs: list[check.Run]) -> list[str]:
    """The names of a shape's numbers, in the order of --size."""
    numbers = max((run.shape.count("x") + 1 for run in runs), default=1)
    names = next((list(run.dimensions) for run in runs if len(run.dimensions) == numbers), [])
    return names or (["n"] if numbers == 1 else [f"size {d + 1}" for d in range(numbers)])


def owner_of(exercise: Exercise, outcome: check.Outcome, run: check.Run) -> str:
    """", which block 1, thread 5 computes", where the exercise says who owns an element."""
    if not exercise.owner:
        return ""
    values = {name: int(size) for name, size in re.findall(r"\b(\w+)=(\d+)\b", outcome.problem)}
    for name, power in re.findall(r"\b(\w+)=2\^(\d+)\b", outcome.problem):
        values[name] = 2 ** int(power)
    values.update(i=outcome.index, wave=int(run.setting.wave or 32))
    try:
        # The expressions are the repository's own, beside the kernel that they describe.
        owner = {key: eval(text, {"__builtins__": {}}, values)  # noqa: S307
                 for key, text in exercise.owner.items()}
    except (NameError, TypeError, ZeroDivisionError, SyntaxError):
        return ""
    return ", which " + ", ".join(f"{key} {value}" for key, value in owner.items()) + " computes"
