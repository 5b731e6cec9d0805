"""Checkpoints are safetensors files: Python's own package reads what the course writes, and the
course what the package writes, value by value."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from references.inputs import uniform  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

SHAPES = {"0.weight": (16, 4), "0.bias": (16,), "2.weight": (3, 16), "2.bias": (3,)}
MODEL = "Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}"
SEED = 7


@pytest.fixture(scope="module")
def program() -> Path:
    """The test program of step 5.5, where it is built; it has a hidden case for this test."""
    build = Path(os.environ.get("COURSE_BUILD_DIR") or ROOT / "build")
    for backend in ("cpu", "hip", "cuda"):
        path = build / backend / "stage5_training" / "sequential_test"
        if path.is_file():
            return path
    pytest.skip(f"no sequential_test in {build}: run scripts/course test 5.5 first")


def run(program: Path, to: Path, come_from: Path | None = None) -> subprocess.CompletedProcess:
    environment = {**os.environ, "COURSE_CHECKPOINT": str(to)}
    if come_from:
        environment["COURSE_CHECKPOINT_FROM"] = str(come_from)
    return subprocess.run([program, "[.checkpoint]"], env=environment, capture_output=True,
                          text=True, timeout=120)


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


def test_python_reads_what_the_course_writes(program: Path, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    done = run(program, path)
    assert done.returncode == 0, done.stdout
    tensors = load_file(path)
    names = [prefix + name for prefix in ("", "optimizer.m.", "optimizer.v.") for name in SHAPES]
    assert sorted(tensors) == sorted(names)
    he, xavier = (numpy.float32(numpy.sqrt(6 / fans)) for fans in (4, 16 + 3))
    for name, shape in SHAPES.items():
        size = int(numpy.prod(shape))
        assert tensors[name].dtype == numpy.float32
        assert tensors[name].shape == shape
        begin = {"0.weight": uniform(SEED, 0, size) * he,
                 "2.weight": uniform(SEED, 2, size) * xavier}.get(name, numpy.zeros(size))
        numpy.testing.assert_array_equal(tensors[name].ravel(), begin)
        for stream, state in ((10, "m"), (11, "v")):
            values = tensors[f"optimizer.{state}.{name}"]
            assert values.shape == shape
            numpy.testing.assert_array_equal(values.ravel(), uniform(SEED, stream, size))
    assert metadata_of(path) == {
        "model": MODEL, "training.steps": "5", "training.epochs": "1", "training.seed": "7",
        "training.optimizer": "adam", "training.more.note": "ä"}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"model": MODEL}])
def test_the_course_reads_what_python_writes(program: Path, tmp_path: Path, metadata):
    generator = numpy.random.default_rng(3)
    tensors = {name: generator.normal(size=shape).astype(numpy.float32)
               for name, shape in SHAPES.items()}
    written, returned = tmp_path / "python.safetensors", tmp_path / "course.safetensors"
    save_file(tensors, written, metadata)
    done = run(program, returned, written)
    assert done.returncode == 0, done.stdout
    back = load_file(returned)
    assert sorted(back) == sorted(tensors)
    for name, values in tensors.items():
        numpy.testing.assert_array_equal(back[name], values)


def test_a_tensor_of_another_type_is_refused(program: Path, tmp_path: Path):
    tensors = {name: numpy.zeros(shape, numpy.float16) for name, shape in SHAPES.items()}
    written = tmp_path / "half.safetensors"
    save_file(tensors, written)
    done = run(program, tmp_path / "none", written)
    assert done.returncode != 0
    assert 'of type "F16"; F32 can be read' in " ".join(done.stdout.split())
    assert not (tmp_path / "none").exists()
