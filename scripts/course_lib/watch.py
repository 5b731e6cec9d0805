"""`course watch`: checks again whenever a file in the workspace is saved.

Linux tells of changes through inotify. Where it can't (another system, a network or WSL mount that
sends nothing, no watch left), the files' times and sizes are looked at twice a second; that is always
done beside inotify too, more seldom, since a mount may promise events and never send one.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from pathlib import Path

from .workspace import ENDINGS

POLL = 0.5  # seconds between looks without inotify
POLL_BESIDE = 2.0  # with it
SETTLE = 0.15  # seconds of quiet after a change: editors write in several goes

_CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x80, 0x100, 0x200


class Changes:
    """Says when one of the learner's files below `folder` has changed."""

    def __init__(self, folder: Path, use_inotify: bool = True):
        self.folder = folder
        self._seen = self._look()
        self._inotify = self._open() if use_inotify else None

    @property
    def how(self) -> str:
        return "inotify" if self._inotify is not None else f"a look every {POLL} s"

    def close(self) -> None:
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def wait(self, keys: int | None, seconds: float | None = None) -> tuple[list[Path], str]:
        """The files that have changed, or the key that was pressed on the terminal `keys`; ([],
        "") where `seconds` have passed."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            pause = POLL if self._inotify is None else POLL_BESIDE
            if end is not None:
                pause = min(pause, max(0.0, end - time.monotonic()))
            sources = [fd for fd in (self._inotify, keys) if fd is not None]
            ready = select.select(sources, [], [], pause)[0] if sources else time.sleep(pause) or []
            if keys is not None and keys in ready:
                return [], os.read(keys, 1).decode(errors="replace") or "q"
            if self._inotify is not None and self._inotify in ready:
                os.read(self._inotify, 65536)
            changed = self._changed()
            if changed:
                while True:  # until nothing is being written any more
                    time.sleep(SETTLE)
                    more = self._changed()
                    if not more:
                        return changed, ""
                    changed = sorted({*changed, *more})
            if end is not None and time.monotonic() >= end:
                return [], ""

    def _look(self) -> dict[Path, tuple[int, int]]:
        seen = {}
        for path in (path for path in self.folder.rglob("*") if path.suffix in ENDINGS):
            try:
                state = path.stat()
            except OSError:
                continue  # between an editor's delete and its rename
            seen[path] = (state.st_mtime_ns, state.st_size)
        return seen

    def _changed(self) -> list[Path]:
        now = self._look()
        changed = sorted(path for path, state in now.items() if self._seen.get(path) != state)
        self._seen = now
        return changed

    def _open(self) -> int | None:
        """A descriptor that has something to read when a file below the folder changes."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return None
        if descriptor < 0:
            return None
        mask = _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
        folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
        for folder in folders:
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), mask) < 0:
                os.close(descriptor)
                return None
        return descriptor


class Keys:
    """The terminal's keys one at a time, without Return; put back as it was at the end. Where stdin
    is no terminal there are none."""

    def __init__(self):
        self.descriptor: int | None = None
        self._before = None

    def __enter__(self) -> Keys:
        if sys.stdin.isatty():
            import termios
            import tty
            self.descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self.descriptor)
            tty.setcbreak(self.descriptor)
        return self

    def __exit__(self, *_) -> None:
        if self._before is not None:
            import termios
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)
