"""Checkpoints are safetensors files: Python's own package reads what the course writes, and the
course what the package writes, value by value. A training that diverges keeps its last good
checkpoint."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import built

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
    """The test program of step 5.5; it has a hidden case for this test."""
    return built("stage5_training", "sequential_test")


@pytest.fixture(scope="module")
def train_mnist() -> Path:
    return built("stage5_training", "train_mnist")


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


# ---- Trainings that diverge, or cannot be kept ---------------------------------------------------

TINY = ["--quick", "--no-limits", "--size", "24x200"]  # 5 steps per epoch, by
OPERATIONS = ["--batch", "40", "--version", "operations"]


def train(program: Path, *arguments: object, how=OPERATIONS) -> subprocess.CompletedProcess:
    return subprocess.run([program, *TINY, *how, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "COURSE_DATA": "/no/such/folder"})


def test_a_training_that_diverges_keeps_its_last_good_checkpoint(train_mnist: Path, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    assert train(train_mnist, "--epochs", 1, "--checkpoint", path).returncode == 0
    good = path.read_bytes()
    done = train(train_mnist, "--epochs", 4, "--lr", "1e20", "--checkpoint", path, "--resume")
    assert done.returncode == 1
    assert re.fullmatch(rf"train_mnist: .* is not finite: the training has diverged, .*; {path} "
                        r"holds the training after step 5\n", done.stderr)
    assert path.read_bytes() == good
    done = train(train_mnist, "--epochs", 4, "--lr", "1e20", "--checkpoint", tmp_path / "other")
    assert done.returncode == 1
    assert done.stderr.endswith(f"{tmp_path / 'other'} was not written\n")
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", ["0.weight", "optimizer.m.2.bias", "optimizer.v.2.weight"])
@pytest.mark.parametrize("value", [numpy.nan, numpy.inf])
def test_a_checkpoint_that_is_not_finite_is_refused(train_mnist: Path, tmp_path: Path, name, value):
    path = tmp_path / "model.safetensors"
    assert train(train_mnist, "--epochs", 1, "--checkpoint", path).returncode == 0
    tensors, metadata = load_file(path), metadata_of(path)
    tensors[name].flat[0] = value
    save_file(tensors, path, metadata)
    ruined = path.read_bytes()
    line = f'train_mnist: {path} has a tensor "{name}" with values that are not finite\n'
    for arguments in (["--epochs", 4, "--checkpoint", path, "--resume"], ["--evaluate", path]):
        done = train(train_mnist, *arguments)
        assert (done.returncode, done.stderr) == (2, line)
    assert path.read_bytes() == ruined


def test_a_version_that_does_not_fit_writes_no_checkpoint_and_says_so(train_mnist: Path,
                                                                      tmp_path: Path):
    path = tmp_path / "model.safetensors"
    done = train(train_mnist, "--checkpoint", path,
                 how=["--batch", "100", "--version", "persistent"])
    assert done.returncode == 2
    assert done.stderr == "train_mnist: --version persistent: takes batches of up to 64\n"
    assert not path.exists()


ALL = [("train_toy", "stage5_training"), ("train_sales", "stage5_training"),
       ("train_mnist", "stage5_training"), ("train_cnn", "stage6_cnn"),
       ("train_shakespeare", "stage7_transformer")]


@pytest.mark.parametrize("option", ["--checkpoint", "--json"])
@pytest.mark.parametrize("name, stage", ALL)
def test_a_file_that_cannot_be_written_is_refused_first(tmp_path: Path, option, name, stage):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in ((pipe, "is not a regular file"), ("/dev/null", "is not a regular file"),
                      (tmp_path, "is a folder"),
                      (tmp_path / "none" / "x",
                       f"cannot be written: there is no folder {tmp_path / 'none'}"),
                      (tmp_path / ("x" * 250), "cannot be written: File name too long")):
        done = subprocess.run([built(stage, name), "--quick", option, path], capture_output=True,
                              text=True, timeout=10)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{name}: {option}: {path} {why}\n"


@pytest.mark.parametrize("name, stage", ALL)
def test_every_training_says_where_it_diverged_and_refuses_what_is_not_finite(
        tmp_path: Path, name, stage):
    path, ruined = tmp_path / "model.safetensors", tmp_path / "ruined.safetensors"
    version = "persistent" if name == "train_toy" else "operations"

    def run_quick(*arguments):
        command = [built(stage, name), "--quick", "--no-limits", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "COURSE_DATA": "/no/such/folder"})

    rate = "1e38" if name == "train_toy" else "1e20"
    done = run_quick("--version", version, "--lr", rate, "--optimizer", "sgd", "--checkpoint", path)
    assert done.returncode == 1
    assert re.fullmatch(rf"{name}: .+ is not finite: the training has diverged, try a smaller --lr; "
                        rf"{path} (was not written|holds the training after step \d+)\n",
                        done.stderr)
    path.unlink(missing_ok=True)

    assert run_quick("--version", version, "--checkpoint", path).returncode == 0
    tensors = load_file(path)
    first = min(tensors)
    tensors[first].flat[0] = numpy.nan
    save_file(tensors, ruined, metadata_of(path))
    commands = [["--evaluate", ruined], ["--checkpoint", ruined, "--resume"]]
    if name == "train_shakespeare":
        commands.append(["--checkpoint", ruined, "--generate", 5])
    for command in commands:
        # Where the training counts its end into the settings, it has to be the same one.
        more = [] if command[-1] != "--resume" or name == "train_shakespeare" else ["--epochs", 500]
        done = run_quick(*command, *more)
        assert (done.returncode, done.stderr) == (
            2, f'{name}: {ruined} has a tensor "{first}" with values that are not finite\n')
