"""`course watch`: checks again whenever a file of the workspace is saved."""

from __future__ import annotations

import argparse

from .. import exercises, fingerprints, learn, terminal, watch
from ..errors import OK, CourseError
from ..terminal import say
from ..workspace import Progress, Workspace
from .setting_up import ROOT, add_steps, builds_of, one_course

HELP = "check again whenever a file is saved"
KEYS = "h hint   n next   s solution   r reset   q quit"
arguments = add_steps


def command(options: argparse.Namespace) -> int:
    """Checks, waits for a saved file or a key, and so on until q or Ctrl-C."""
    workspace = Workspace(ROOT)
    course = one_course(options, "course watch")
    if not workspace.started(course):
        learn.start(course, workspace, False)
    builds = builds_of(course, options)
    signatures = fingerprints.load(ROOT)
    changes = watch.Changes(workspace.folder)
    try:
        with watch.Keys() as keys:
            run = True
            while True:
                if run:
                    say()
                    with terminal.Patience("still checking"):
                        learn.check_step(course, workspace, builds, signatures)
                    say()
                    say(f"watching {learn.shown(workspace.folder)} ({changes.how})   "
                        + (KEYS if keys.descriptor is not None else "Ctrl-C ends"), "dim")
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
                    builds = builds_of(course, options)
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
