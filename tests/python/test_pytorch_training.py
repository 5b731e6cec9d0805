"""scripts/pytorch_training.py where it cannot measure: its figures need PyTorch and a GPU."""

from __future__ import annotations

import json
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
    (["mnits"], "'mnits' is unknown; there are xor, mnist, sales, cnn, small, medium, adam"),
    (["--json", "/no/such/a.json"], "--json: there is no folder /no/such"),
    (["--sales-rows", "1023"], "--sales-rows: a batch has 1024 rows"),
    (["--repeat", "0"], "'0' is not a number from 1 to 10^10"),
])
def test_what_cannot_be_asked_for(tmp_path: Path, arguments: list[str], complaint: str):
    result = run(tmp_path, TORCH, *arguments)
    assert result.returncode == 2
    assert result.stderr.endswith(f"{complaint}\n")


# Layers that remember what they were made of, and settings that can be set.
RECORDER = TORCH + """
nn.__getattr__ = lambda name: lambda *values, **named: (name, *values, *named.items())
nn.Sequential = lambda *layers: list(layers)
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=True)),
    cudnn=types.SimpleNamespace(allow_tf32=True, benchmark=False))
"""
LOOK = """
import json, pytorch_training as training, torch
training.use_float32()
print(json.dumps({"cnn": training.cnn_network(), "measurements": list(training.TASKS),
                  "tf32": [torch.backends.cudnn.allow_tf32,
                           torch.backends.cuda.matmul.allow_tf32]}))
"""


def test_the_network_is_that_of_the_course(tmp_path: Path):
    (tmp_path / "torch.py").write_text(RECORDER, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'scripts'}",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True,
                            text=True, check=True)
    found = json.loads(result.stdout)
    same = ["padding", 1]
    assert found["cnn"] == [
        ["Unflatten", 1, [1, 28, 28]],
        ["Conv2d", 1, 8, 3, same], ["ReLU"], ["MaxPool2d", 2],
        ["Conv2d", 8, 16, 3, same], ["ReLU"], ["MaxPool2d", 2],
        ["Flatten"], ["Linear", 784, 64], ["ReLU"], ["Linear", 64, 10]]
    assert found["measurements"] == ["xor", "mnist", "sales", "cnn", "small", "medium"]
    assert found["tf32"] == [False, False]
