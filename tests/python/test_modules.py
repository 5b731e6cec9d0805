"""Step 8.4's models as files: Python's safetensors package reads what the program writes, and the program
tests what the package has written. And 8.5's drawings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import built

numpy = pytest.importorskip("numpy")
pytest.importorskip("safetensors", reason="pip install -r scripts/requirements.txt")

from safetensors.numpy import load_file, save_file  # noqa: E402

PERCEPTRON = {"0.weight": (128, 784), "0.bias": (128,), "2.weight": (10, 128), "2.bias": (10,)}
FILES = ("perceptron.safetensors", "cnn.safetensors", "characters.safetensors")


@pytest.fixture(scope="module", autouse=True)
def short_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the data sets are here: MNIST and the beginning of Tiny Shakespeare, for a model is tested on the last
    tenth of the text."""
    data, short = Path(os.environ.get("COURSE_DATA", "data")).absolute(), tmp_path_factory.mktemp("data")
    if (data / "mnist").is_dir():
        (short / "mnist").symlink_to(data / "mnist")
    if (data / "tiny_shakespeare.txt").is_file():
        (short / "tiny_shakespeare.txt").write_bytes((data / "tiny_shakespeare.txt").read_bytes()[:50_000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_DATA", str(short))
        yield


def run(*arguments: str | Path) -> subprocess.CompletedProcess:
    program = built("stage8_framework", "modules")
    return subprocess.run([program, "--size", "1x64x1x16", "--version", "resident", *arguments], text=True,
                          capture_output=True, timeout=240)


def results(output: str) -> list[str]:
    """Of each model, what it reaches on data that it has not seen."""
    return [line.split("/")[-1] for line in output.splitlines() if ".safetensors:" in line]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    done = run("--save", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_python_reads_what_the_program_writes(trained: Path):
    tensors = load_file(trained / FILES[0])
    assert {name: values.shape for name, values in tensors.items()} == PERCEPTRON
    assert all(values.dtype == numpy.float32 and numpy.isfinite(values).all() for values in tensors.values())
    assert set(load_file(trained / FILES[1])) == {f"{layer}.{what}" for layer in (0, 3, 7, 9)
                                                  for what in ("weight", "bias")}
    assert "1.qkv.weight" in load_file(trained / FILES[2])


def test_the_program_tests_what_python_writes(trained: Path, tmp_path: Path):
    for name in FILES:
        save_file(load_file(trained / name), tmp_path / name, metadata={"format": "pt"})
    want, got = run("--load", trained), run("--load", tmp_path)
    assert want.returncode == got.returncode == 0, got.stdout + got.stderr
    assert results(got.stdout) == results(want.stdout) and len(results(want.stdout)) == len(FILES)
    # Other parameters, another result: the file is what was tested.
    tensors = load_file(trained / FILES[0])
    tensors["2.bias"] = numpy.array([100, *[0] * 9], numpy.float32)
    save_file(tensors, tmp_path / FILES[0])
    assert results(run("--load", tmp_path).stdout)[0] != results(want.stdout)[0]


@pytest.mark.parametrize("change, said", [
    (lambda tensors: tensors.pop("2.bias"), "2.bias is missing"),
    (lambda tensors: tensors.update({"3.bias": tensors["2.bias"]}), "the module has no 3.bias"),
    (lambda tensors: tensors.update({"2.bias": tensors["2.bias"][:9]}), "2.bias is f32 (9), not f32 (10)"),
    (lambda tensors: tensors.update({"2.bias": tensors["2.bias"].astype(numpy.float16)}), 'type "F16"')])
def test_other_models_are_refused_in_one_line(trained: Path, tmp_path: Path, change, said: str):
    tensors = load_file(trained / FILES[0])
    change(tensors)
    save_file(tensors, tmp_path / FILES[0])
    done = run("--load", tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr and FILES[0] in done.stderr


def test_a_folder_that_is_not_there_is_refused_before_anything_is_trained(tmp_path: Path):
    for option in ("--save", "--load"):
        done = run(option, tmp_path / "none")
        assert done.returncode == 2 and done.stderr.startswith(f"modules: {option}: there is no folder")


@pytest.mark.parametrize("program", ["capture", "fusion"])
@pytest.mark.parametrize("file", ["", ".", "none/none", "/proc/none", "x" * 300])
def test_a_drawing_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path: Path, file: str,
                                                                                program: str):
    done = subprocess.run([built("stage8_framework", program), "--graph", file], text=True, cwd=tmp_path,
                          capture_output=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"{program}: --graph")


# ---- PyTorch, where it is installed, and MNIST is there ------------------------------------------


def read_by_torch(network, folder: Path) -> str:
    """What the program says of this network."""
    import torch
    from course_lib.torch_tasks import load_digits

    images, labels = load_digits(folder, "t10k", torch.device("cpu"))
    images, labels = images[:64], labels[:64]  # as many as the program is told to take
    with torch.no_grad():
        right = (network(images).argmax(1) == labels).float().mean().item()
    return f"{FILES[0]}: test {100 * right:.2f}%"


def test_pytorch_and_the_program_exchange_models(trained: Path, tmp_path: Path):
    torch = pytest.importorskip("torch")
    digits = Path(os.environ.get("COURSE_DATA", "data")) / "mnist"
    if not digits.is_dir():
        pytest.skip("no MNIST: python3 scripts/data.py")
    from course_lib.torch_tasks import Transformer, mlp
    from safetensors.torch import load_file as load_tensors
    from safetensors.torch import save_file as save_tensors

    theirs = mlp([784, 128, 10], torch.nn.ReLU)
    theirs.load_state_dict(load_tensors(trained / FILES[0]))  # all names and shapes, and no more
    said = results(run("--load", trained).stdout)
    assert read_by_torch(theirs, digits) == said[0]
    characters = load_tensors(trained / FILES[2])
    vocabulary = len(characters["token.weight"])
    Transformer(2, 1, 16, 32, vocabulary).load_state_dict(characters)

    torch.manual_seed(1)
    fresh = mlp([784, 128, 10], torch.nn.ReLU)
    for name in FILES[1:]:
        save_file(load_file(trained / name), tmp_path / name)
    save_tensors(fresh.state_dict(), tmp_path / FILES[0])
    assert results(run("--load", tmp_path).stdout)[0] == read_by_torch(fresh, digits)
    save_tensors(Transformer(2, 1, 16, 32, vocabulary).state_dict(), tmp_path / FILES[2])
    assert run("--load", tmp_path).returncode == 0
