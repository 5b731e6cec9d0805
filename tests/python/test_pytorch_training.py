"""scripts/pytorch_training.py where it cannot measure: its figures need PyTorch and a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

# As little of PyTorch as the script needs to find out that there is no GPU.
TORCH = """
import sys, types
__version__ = "1.2.3"
Tensor = object
cuda = types.SimpleNamespace(is_available=lambda: False)
nn = types.ModuleType("torch.nn")
nn.Module = object
optim = types.SimpleNamespace(Optimizer=object)
device = object
"""


def run(modules: Path, torch: str, *arguments: str) -> subprocess.CompletedProcess:
    (modules / "torch.py").write_text(torch, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(modules), "PYTHONDONTWRITEBYTECODE": "1"}
    script = [sys.executable, str(ROOT / "scripts" / "pytorch_training.py"), *arguments]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


def test_without_pytorch_it_says_so(tmp_path: Path):
    result = run(tmp_path, "raise ImportError('No module named torch')")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == (
        "pytorch_training: no PyTorch here (No module named torch): pip install torch\n")


def test_without_a_gpu_it_says_so(tmp_path: Path):
    result = run(tmp_path, TORCH)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "pytorch_training: PyTorch 1.2.3 finds no GPU here\n"


@pytest.mark.parametrize("arguments, complaint", [
    (["mnits"], "'mnits' is unknown; there are xor, mnist, sales, adam"),
    (["--json", "/no/such/a.json"], "--json: there is no folder /no/such"),
    (["--sales-rows", "1023"], "--sales-rows: a batch has 1024 rows"),
    (["--repeat", "0"], "'0' is not a number from 1 to 10^10"),
])
def test_what_cannot_be_asked_for(tmp_path: Path, arguments: list[str], complaint: str):
    result = run(tmp_path, TORCH, *arguments)
    assert result.returncode == 2
    assert result.stderr.endswith(f"{complaint}\n")
