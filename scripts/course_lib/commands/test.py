"""`course test`: builds steps and their tests and runs them."""

from __future__ import annotations

import argparse
import os
import re

from .. import process, python_env, terminal
from ..errors import FAILED, MISSING, OK, CourseError
from ..terminal import say
from .setting_up import ROOT, add_steps, chosen_steps, python_with, requirements, set_up

MOST_AT_ONCE = 8  # files of tests in Python: they compile, which takes up to a GiB of memory each

HELP = "build everything and run the tests"
arguments = add_steps


def command(options: argparse.Namespace) -> int:
    """Builds the chosen steps and their tests and runs them; without steps, all tests there are."""
    chosen = chosen_steps(options.steps)
    build, hardware, python = set_up(options.backend, options.no_setup)
    interpreter = None
    try:
        if options.no_setup:
            interpreter = python_with(["numpy", "pytest"], no_setup=True)
        else:
            python.require("requirements", requirements())
            if os.environ.get("COURSE_NO_SKIP"):  # continuous integration, which leaves no test out
                for of in ("book", "notebook"):
                    python.require(f"requirements-{of}", requirements(of))
            interpreter = str(python.python)
    except CourseError as error:
        terminal.warn(f"{error}. The tests that need NumPy are skipped.")
    build.configure(hardware, interpreter)
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
    if not options.steps and interpreter:
        cache = build.folder.parent / "pytest"
        pytest = [interpreter, "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
        if python_env.find(["xdist"], [interpreter]):
            # The tests of a file share what they have made. A worker that died is not replaced: the test that
            # ended it would end the next one too, and pytest may then wait for ever.
            pytest += ["-n", str(min(process.cpu_count(), MOST_AT_ONCE)), "--dist", "loadfile",
                       "--max-worker-restart", "0"]
        say()
        codes.append(process.stream([*pytest, str(ROOT / "tests" / "python")], cwd=ROOT))
    if any(codes):
        return FAILED
    if not interpreter:
        terminal.warn("what ran has passed; the tests that need Python's packages did not run")
        return MISSING
    return OK
