"""Running other programs: to the end, interrupted cleanly, with what they said kept in a log."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Callable, Mapping, Sequence

from .errors import MISSING, CourseError

Environment = Mapping[str, str]


def shown(command: Sequence[str]) -> str:
    """The command as one would type it."""
    return " ".join(shlex.quote(word) for word in command)


def output(command: Sequence[str], any_exit_code: bool = False) -> str | None:
    """What the command printed, stdout and stderr; None if it is not there, fails or hangs."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=20, check=False, text=True, errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if any_exit_code or done.returncode == 0 else None


def _interrupt(process: subprocess.Popen) -> None:
    """Ends the child after Ctrl-C, giving it time to remove what it has half made.

    A terminal has sent the signal to the child as well; one that did not get it is sent it here.
    """
    for seconds, signal_number in ((2, signal.SIGINT), (15, signal.SIGKILL)):
        try:
            process.communicate(timeout=seconds)
            return
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            with contextlib.suppress(OSError):  # sudo's children are not ours to signal
                process.send_signal(signal_number)


def _start(command: Sequence[str], **how) -> subprocess.Popen:
    """Popen(), with Ctrl-C held back meanwhile: a child whose start it cut short would run on."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda which, _: came.append(which))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        process = subprocess.Popen(command, **how)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        _interrupt(process)
        raise KeyboardInterrupt
    return process


def stream(command: Sequence[str], env: Environment | None = None, cwd: Path | None = None) -> int:
    """Runs the command on the learner's own terminal. Returns its exit code."""
    process = _start(command, env=env, cwd=cwd)
    try:
        return process.wait()
    except KeyboardInterrupt:
        _interrupt(process)
        raise


def logged(
    command: Sequence[str],
    log: Path,
    on_line: Callable[[str], None],
    env: Environment | None = None,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Runs the command with its output in `log` and line by line in `on_line`.

    Returns the exit code and the output. Raises CourseError(MISSING) where the disk is full.
    """
    lines = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        file.write(f"$ {shown(command)}\n")
        process = _start(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        try:
            for line in process.stdout:
                lines.append(line)
                file.write(line)
                on_line(line.rstrip("\n"))
            code = process.wait()
        except BaseException:
            _interrupt(process)
            raise
    text = "".join(lines)
    if code != 0:
        raise_if_disk_full(text, log)
    return code, text


def raise_if_disk_full(text: str, place: Path) -> None:
    if re.search(r"No space left on device|Disk quota exceeded", text):
        raise CourseError(
            f"the disk that holds {place.parent} is full: free some space, or set COURSE_BUILD_DIR "
            "to a folder on another disk, and run the same command again",
            MISSING,
        )


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
