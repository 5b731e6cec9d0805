"""notebooks/first_gpu_kernels.ipynb: run from its first cell to its last on the CPU backend that is built here.

The notebook finds the checkout that it stands in and clones nothing; its clone is tried by itself. What the
learner has is left alone: the workspace is a temporary one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from conftest import ROOT, absent, build_folder

for package in ("nbclient", "nbformat", "ipykernel"):
    if util.find_spec(package) is None:
        absent(f"{package} is not installed: pip install -r scripts/requirements-notebook.txt")

import nbclient  # noqa: E402: only now is it known to be there
import nbformat  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "first_gpu_kernels.ipynb"
KERNEL = ROOT / "stage0_infra" / "06_first_kernels" / "versions" / "guard.hip"
PROGRAMS = ("stage0_infra/first_kernels", "stage1_vector/dot", "stage2_matrix/gemm")


def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def output(cell: nbformat.NotebookNode) -> str:
    return "".join(part.get("text", "") for part in cell.outputs).replace("\r\n", "\n")  # of a terminal


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    """The cells of code after they have run, in order."""
    if not all((build_folder() / program).is_file() for program in PROGRAMS):
        pytest.skip("first_kernels, dot or gemm is not built for the CPU backend")
    results = [build_folder() / "results" / f"{name}.json" for name in ("dot", "gemm")]
    before = [file.read_bytes() if file.is_file() else None for file in results]
    environment = {**os.environ, "COURSE_WORKSPACE": str(tmp_path_factory.mktemp("workspace")), "NO_COLOR": "1",
                   "JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython"))}
    read = notebook()
    # No kernel that is registered on this machine: the Python that runs this.
    client = nbclient.NotebookClient(read, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute(env=environment)
    for file, old in zip(results, before):
        file.write_bytes(old) if old is not None else file.unlink(missing_ok=True)
    return [cell for cell in read.cells if cell.cell_type == "code"]


def starting(cells: list[nbformat.NotebookNode], words: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in cells if cell.source.startswith(words)]


def test_it_is_valid_and_has_no_outputs():
    nbformat.validate(notebook())
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook().cells
               if cell.cell_type == "code")
    assert notebook().metadata.accelerator == "GPU"


def test_both_steps_run_and_are_right(cells: list[nbformat.NotebookNode]):
    for number, name in (("1.3", "dot"), ("2.3", "gemm")):
        (cell,) = starting(cells, f"!python3 scripts/course run {number}")
        text = output(cell)
        assert re.search(rf"^{number} +{name} .* ok *$", text, re.MULTILINE) and "FAIL" not in text, text


def test_both_ladders_are_drawn(cells: list[nbformat.NotebookNode]):
    (cell,) = starting(cells, "!python3 scripts/course report")
    drawn = [part.data["image/svg+xml"] for part in cell.outputs if "image/svg+xml" in part.get("data", {})]
    assert len(drawn) == 2, output(cell)
    assert "1.3 dot" in drawn[0] and "2.3 gemm" in drawn[1]


def test_the_check_names_the_mistake_and_passes_what_is_mended(cells: list[nbformat.NotebookNode]):
    wrong, right = (output(cell) for cell in starting(cells, "!python3 scripts/course check 0.6"))
    assert "wrong: add_one" in wrong and "FAILED" in wrong, wrong
    assert "wrong:" not in right and re.search(r"right: .*add_one", right), right


def test_what_is_mended_is_the_courses_kernel_and_the_mistake_is_one_line():
    written = [cell.source.split("\n", 1)[1] + "\n" for cell in notebook().cells
               if cell.source.startswith("%%writefile")]
    solution = KERNEL.read_text(encoding="utf-8")
    assert written[1] == solution
    differing = [pair for pair in zip(written[0].splitlines(), solution.splitlines()) if pair[0] != pair[1]]
    assert differing == [("  out[i] = x[i] + 1;", "  if (i < n) out[i] = x[i] + 1;")]


def test_elsewhere_it_clones_the_address_and_asks_for_one(tmp_path: Path):
    first = next(cell.source for cell in notebook().cells if cell.cell_type == "code")

    def run(source: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-c", source + "\nprint(os.getcwd())"], cwd=tmp_path, text=True,
                              capture_output=True, timeout=120)

    asked = run(first)
    assert (asked.returncode, asked.stderr) == (
        1, "Write the repository's address into the first line, and run this cell again.\n")
    origin = tmp_path / "origin"
    (origin / "scripts").mkdir(parents=True)
    (origin / "scripts" / "course").touch()
    git = ["git", "-C", str(origin), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    cloned = run(first.replace('REPOSITORY = ""', f'REPOSITORY = "{origin.as_uri()}"'))
    assert (cloned.returncode, cloned.stdout) == (0, f"{tmp_path / 'course'}\n"), cloned.stderr
