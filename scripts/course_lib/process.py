"""Running other programs: to the end, interrupted cleanly, with what they said kept in a log."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType
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
    """Popen(), with Ctrl-C held back meanwhile: a child whose start it cut short would run on. Signals
    come to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        return subprocess.Popen(command, **how)
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


class Ended(Exception):
    """A server has ended instead of answering: `code` as subprocess gives it (negative: a signal), and
    the last line of its log."""

    def __init__(self, code: int, line: str):
        super().__init__(line)
        self.code, self.line = code, line


class TookTooLong(Ended):
    """A server was ended because it did not answer in time."""


class Server:
    """A process that answers each line of its input with a line of its output; its log is the rest.

    It is started when it is first asked, and again when it is asked after it has ended.
    """

    LAST_WORDS = 10  # seconds from SIGABRT to SIGKILL

    def __init__(self, command: Sequence[str], log: Path, env: Environment | None = None):
        self.command, self.log, self.env = command, log, env
        self._process: subprocess.Popen | None = None
        self._mode = "w"  # of the log, which a second start goes on with

    def ask(self, line: str, seconds: float) -> str:
        """Raises Ended where there is no answer, TookTooLong where there is none in so many seconds, and CourseError
        where the disk is full. What takes too long is ended by SIGABRT, for which it may write where it stood."""
        if self._process is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open(self._mode, encoding="utf-8") as log:
                self._mode = "a"
                try:
                    self._process = _start(self.command, env=self.env, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=log, text=True)
                except OSError as error:
                    raise Ended(127, f"{self.command[0]}: {error.strerror}") from None
        process, is_late = self._process, threading.Event()

        def give_up() -> None:
            is_late.set()
            process.send_signal(signal.SIGABRT)
            try:
                process.wait(self.LAST_WORDS)
            except subprocess.TimeoutExpired:
                process.kill()

        patience = threading.Timer(seconds, give_up)
        patience.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        except KeyboardInterrupt:
            self._process = None
            _interrupt(process)
            raise
        finally:
            patience.cancel()
        if answer and not is_late.is_set():
            return answer
        self._process = None
        code = process.wait()
        if is_late.is_set():
            raise TookTooLong(code, f"no answer in {seconds / 60:g} minutes")
        text = self.log.read_text(encoding="utf-8", errors="replace")
        raise_if_disk_full(text, self.log)
        raise Ended(code, last_line(text))

    def stop(self) -> None:
        """Ends it: there is nothing more to ask."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
                process.communicate(timeout=10)
            if process.poll() is None:
                process.kill()
                process.wait()


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def limited(command: Sequence[str], seconds: float, env: Environment | None = None,
            cwd: Path | None = None, started: Callable[[subprocess.Popen], None] | None = None,
            ) -> tuple[int | None, str, str]:
    """Runs the command for at most that many seconds; None for an exit code: they were not enough.
    Returns the code, stdout and stderr. What it has started itself ends with it.

    `started` is given the process, so that end() can cut it short.
    """
    child = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    _running.add(child)
    if started:
        started(child)
    try:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        out, complaint = child.communicate(timeout=seconds)
        if _interrupted.is_set():  # what it was ended by is no result
            raise KeyboardInterrupt
        return child.returncode, out, complaint
    except subprocess.TimeoutExpired:
        end(child)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold on to it
            child.communicate(timeout=5)
        return None, "", ""
    except BaseException:
        end(child)
        raise
    finally:
        _running.discard(child)


_running: set[subprocess.Popen] = set()  # by limited(), in all threads
_interrupted = threading.Event()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handles Ctrl-C and its like: as Python does, but what limited() runs in other threads, in sessions of
    its own, which no signal of the terminal reaches, ends first. Pools wait for their threads."""
    _interrupted.set()
    for child in _running.copy():
        end(child)
    signal.default_int_handler(number, frame)


def end(child: subprocess.Popen) -> None:
    """Ends what limited() has started, and its children."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


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
