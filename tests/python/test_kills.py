"""Trainings that a signal ends: one that is killed loses at most what it has not said, and one that is
interrupted saves all that it has. What goes on from there is the training that was never stopped.

COURSE_KILLS says how many times each training is killed (default: twice); the moments follow from
COURSE_KILL_SEED, which each test prints:

    COURSE_KILLS=100 .venv/bin/python -m pytest tests/python/test_kills.py
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import built

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

KILLS = int(os.environ.get("COURSE_KILLS", "2"))
NO_DATA = {**os.environ, "COURSE_DATA": "/no/such/folder"}


@dataclass(frozen=True)
class Training:
    """A program that trains a small model by one version, and saves it again and again."""

    name: str
    folder: str  # of the build
    arguments: str
    counts: str  # what --resume counts: epochs or steps
    last: int  # of them
    each: int  # of them: from one checkpoint and printed line to the next
    ends: bool  # the last one has to be the same whenever it goes on

    @property
    def program(self) -> Path:
        return built(self.folder, self.name)

    def command(self, path: Path, last: int) -> list[str]:
        return [str(self.program), "--quick", "--no-limits", *self.arguments.split(), f"--{self.counts}",
                str(last), "--checkpoint", str(path), *(["--resume"] if path.exists() else [])]


TRAININGS = [
    Training("train_toy", "stage5_training", "", "epochs", 2000, 200, True),
    Training("train_sales", "stage5_training", "--batch 256 --version fused", "epochs", 10 ** 6, 1, False),
    # Between two looks for a signal it takes 16 steps: an epoch of 50 is stopped within.
    Training("train_mnist", "stage5_training", "--size 24x200 --batch 4 --version operations", "epochs",
             10 ** 6, 1, False),
    Training("train_cnn", "stage6_cnn", "--size 8x80 --batch 40 --version operations", "epochs", 10 ** 6, 1,
             False),
    Training("train_shakespeare", "stage7_transformer", "--size 1x1x8x8x1", "steps", 500, 50, True),
]


@pytest.fixture(params=TRAININGS, ids=lambda training: training.name)
def training(request: pytest.FixtureRequest) -> Training:
    return request.param


@dataclass
class Stopped:
    code: int
    printed: int | None  # the last epoch or step that it said was behind it
    error: str
    seconds: float  # to the first line


def stop(training: Training, path: Path, how: signal.Signals, seconds: float, after_line: bool) -> Stopped:
    """Starts the training and sends it the signal so many seconds after its start, or after its first line."""
    begin = time.monotonic()
    process = subprocess.Popen(training.command(path, training.last), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=NO_DATA)
    assert process.stdout is not None
    said = ""
    pattern = re.compile(rf"^{training.counts[:-1]} +(\d+)/{training.last}\s.*\n", re.MULTILINE)
    while after_line and not pattern.search(said):
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said += line
    first = time.monotonic() - begin
    time.sleep(seconds)
    process.send_signal(how)
    rest, error = process.communicate(timeout=120)
    found = pattern.findall(said + rest)
    return Stopped(process.returncode, int(found[-1]) if found else None, error, first)


def saved(path: Path, counts: str) -> int:
    """How many epochs or steps are behind the checkpoint, which must be whole."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert all(numpy.isfinite(values).all() for values in load_file(path).values())  # which reads every byte
    return int(metadata[f"training.{counts}"])


def partials(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{path.name}.*.partial"))


def run_to(training: Training, path: Path, last: int) -> None:
    done = subprocess.run(training.command(path, last), capture_output=True, text=True, timeout=600, env=NO_DATA)
    assert done.returncode == 0, done.stderr


def test_a_training_that_is_killed_loses_at_most_what_it_has_not_said(training: Training, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    seed = int(os.environ.get("COURSE_KILL_SEED") or random.randrange(1 << 32))
    print(f"COURSE_KILL_SEED={seed}")
    moments = random.Random(f"{seed} {training.name}")
    before, start = 0, 0.0
    for kill in range(KILLS):
        # Every other one may come before the first line, while the training begins or goes on.
        after_line = kill % 2 == 0
        stopped = stop(training, path, signal.SIGKILL,
                       moments.uniform(0, 0.1 if after_line else start + 0.1), after_line)
        start = max(start, stopped.seconds)
        where = f"kill {kill} of seed {seed}: {stopped}, {before} before"
        assert stopped.code == -signal.SIGKILL or (stopped.code == 0 and training.ends), where
        least = max(before, stopped.printed or 0)
        now = saved(path, training.counts) if least > 0 or path.exists() else 0
        # Whatever was printed is saved; what is saved next may not be printed yet.
        assert least <= now <= least + training.each, where
        # Only this kill can have left something: the save that ran before has removed the rest.
        assert len(partials(path)) <= 1, where
        before = now
        if training.ends and now == training.last:
            path.unlink()
            before = 0

    for how in (signal.SIGTERM, signal.SIGINT):
        if training.ends and before > training.last // 2:
            path.unlink()
        stopped = stop(training, path, how, 0.05, True)
        assert stopped.code == 128 + how, stopped
        said = re.search(rf"stopped after (\d+) steps, saved in {path}: go on with --resume\n", stopped.error)
        assert said and saved(path, "steps") == int(said[1]), stopped
        before = saved(path, training.counts)
        assert stopped.printed is not None and before >= stopped.printed, stopped
        assert os.listdir(tmp_path) == [path.name]

    # All of these pieces are one training.
    last = training.last if training.ends else before + training.each
    whole = tmp_path / "whole.safetensors"
    run_to(training, path, last)
    run_to(training, whole, last)
    pieces, in_one = load_file(path), load_file(whole)
    assert sorted(pieces) == sorted(in_one)
    assert all(pieces[name].tobytes() == in_one[name].tobytes() for name in pieces), seed
