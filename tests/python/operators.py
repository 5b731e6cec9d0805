"""Runs the course's operators, every version of each, on NumPy's arrays.

    with Operators(program()) as operators:
        by_version = operators.run("vector_add", {"a": a, "b": b})
        by_version["naive"]["c"]

tests/operators/ is the program behind it: main.cpp describes the protocol, and the comment above each
operator there its inputs, attributes and outputs.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy
import pytest
from conftest import ROOT
from safetensors.numpy import load_file, save_file

SECONDS = 120  # for one case, all versions: what takes longer has stopped


class Refused(Exception):
    """The inputs or attributes are outside the operator's contract; the text says why."""


def built() -> Path | None:
    """The program, if it is built: for the CPU backend, or else for a GPU."""
    build = Path(os.environ.get("COURSE_BUILD_DIR") or ROOT / "build")
    for backend in ("cpu", "hip", "cuda"):
        path = build / backend / "tests" / "operators"
        if path.is_file():
            return path
    return None


def program() -> Path:
    """The program; skips the test where it is not built."""
    found = built()
    if found is None:
        pytest.skip("the target `operators` is not built: run scripts/course test first")
    return found


def waves() -> list[int | None]:
    """The sizes of a wave that the program can run with: both on the CPU backend, the device's own on a
    GPU."""
    found = built()
    return [32, 64] if found is None or found.parent.parent.name == "cpu" else [None]


class Operators:
    """The running program. `wave` is the size of a wave on the CPU backend; None leaves the default."""

    def __init__(self, program: Path, wave: int | None = None):
        self.program = program.resolve()
        self.wave = wave
        self._process: subprocess.Popen | None = None
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="operators-", dir=memory))

    def __enter__(self) -> Operators:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def names(self) -> list[str]:
        return subprocess.run([self.program, "--list"], capture_output=True, text=True, check=True,
                              timeout=SECONDS).stdout.split()

    def run(self, name: str, inputs: dict[str, numpy.ndarray],
            **attributes: object) -> dict[str, dict[str, numpy.ndarray]]:
        """What each version computed: outputs by version. Inputs become float32; attributes that are None are
        left out. Raises Refused, or RuntimeError where the program failed or died; the next run starts another.
        """
        save_file({key: numpy.array(value, numpy.float32, order="C") for key, value in inputs.items()},
                  self._folder / "in.safetensors",
                  {key: str(int(value) if isinstance(value, bool) else value)
                   for key, value in attributes.items() if value is not None})
        answer = self._ask(f"{name} in.safetensors out.safetensors")
        if answer.startswith("refused: "):
            raise Refused(answer.removeprefix("refused: "))
        if answer != "ok":
            said = self._end_and_read()  # after some errors a device takes no more work
            raise RuntimeError(f"{name}: {answer}{': ' if said else ''}{said}")
        outputs: dict[str, dict[str, numpy.ndarray]] = {}
        for key, value in load_file(self._folder / "out.safetensors").items():
            version, _, output = key.rpartition("/")
            outputs.setdefault(version, {})[output] = value
        return outputs

    def _ask(self, request: str) -> str:
        if self._process is None:
            # As ctest runs the steps' tests: static shared memory begins each block as NaN.
            environment = {**os.environ, "HIP_CPU_POISON": "1"}
            if self.wave:
                environment["HIP_CPU_WAVE"] = str(self.wave)
            with open(self._folder / "stderr", "wb") as errors:
                self._process = subprocess.Popen(
                    [self.program], env=environment, cwd=self._folder, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1)
        try:
            self._process.stdin.write(request + "\n")
            ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
            line = self._process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, line = True, ""
        if line:
            return line.rstrip("\n")
        if not ready:
            return f"failed: no answer within {SECONDS} s"
        return f"failed: it ended with {self._end()}"

    def _end_and_read(self) -> str:
        """Ends the program. The end of what it wrote to stderr."""
        self._end()
        return (self._folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()[-500:]

    def _end(self) -> int:
        """Ends the program. Its exit code, negative where a signal ended it."""
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.stdout.close()
        return code
