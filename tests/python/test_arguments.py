"""The scripts beside scripts/course: what --help says, and what it says where that can't be printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_into_a_full_disk_fails_in_one_line(script: Path):
    command = [sys.executable, str(script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:  # NumPy or PyTorch are not here
        assert done.stdout == "" and done.stderr.count("\n") == 1
        pytest.skip(done.stderr)
    assert "usage:" in done.stdout and done.stderr == ""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stderr.endswith(": No space left on device\n") and done.stderr.count("\n") == 1
