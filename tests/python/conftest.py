"""What the tests of the scripts share: a small repository, a PATH of stand-ins, and a step with exercises.

No test installs, builds or downloads anything: apt-get, cmake, ctest and the rest are shell scripts
in a temporary folder that write down how they were called.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from course_lib import exercises, steps  # noqa: E402
from course_lib.build import Build  # noqa: E402
from course_lib.workspace import Workspace  # noqa: E402


def committed_problems() -> list[tuple[str, str]]:
    """The programs and problems of all tables in results/h200/."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("results/h200/*.json"))]
    return [(report["program"], table["problem"]) for report in reports for table in report["tables"]]


README = """# A course

| step | program | what it shows | state |
|---|---|---|---|
| 0.1 | [`hello_gpu`](stage0_infra/01_hello_gpu/) | threads introduce themselves | ready |
| 1.1 | [`vector_add`](stage1_vector/01_vector_add/) | adding vectors | ready |
| 1.2 | [`axpy`](stage1_vector/02_axpy/) | y = a x + y | ready |
| 2.3 | `gemm` | multiplying matrices | planned |
"""

ROW = {
    "name": "naive", "lesson": "one thread per element", "peer": False, "status": "ok",
    "skipped": "", "ms": 2.0, "ms_p10": 1.9, "ms_p90": 2.2, "rate": 1.5e12, "rate_unit": "B/s",
    "of_limit": 0.4, "limit": "copy", "of_peer": {"cuBLAS": 0.41}, "max_error": 0.0, "bound": 1e-7,
    "index": 0, "compared": 1000, "failed": 0, "unwritten": 0, "note": "",
}
REPORT = {
    "schema": 1, "step": "1.1", "program": "vector_add", "summary": "c = a + b",
    "date": "2030-01-02T03:04:05Z", "quick": False, "seed": 1,
    "device": {"name": "Example GPU", "backend": "cuda", "toolkit": "13.0", "wave_size": 32,
               "multiprocessors": 132},
    "limits": {"copy_bytes_per_s": 4.2e12, "read_bytes_per_s": 4.4e12,
               "fma_operations_per_s": 6e13},
    "tables": [{
        "problem": "n=2^28 float32", "sampled": "", "reference_ms": None,
        "rows": [
            {**ROW, "name": "cuBLAS", "peer": True, "of_peer": {}, "ms": 0.82, "of_limit": 0.97},
            ROW,
            {**ROW, "name": "vectorised", "ms": 0.8, "rate": 4.1e12, "of_limit": 0.98,
             "of_peer": {"cuBLAS": 1.02}, "max_error": 3e-8},
            {**ROW, "name": "wgmma", "status": "skipped", "skipped": "needs sm_90", "ms": None,
             "ms_p10": None, "ms_p90": None, "rate": None, "of_limit": None, "of_peer": {},
             "max_error": None, "bound": None, "compared": 0},
        ],
    }],
    "facts": [{"name": "launch overhead", "value": 3.1, "unit": "us"}],
}


def run_script(script: str, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "scripts" / script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def built_by(commands: list[str], root: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A build of the tree `root` in the folder `made`, by these commands, which a ninja of its own lists."""
    for command in commands:
        subprocess.run(["sh", "-c", command], cwd=made, check=True)
    (tmp_path / "commands").write_text("\n".join(commands) + "\n")
    (tmp_path / "bin").mkdir()
    ninja = tmp_path / "bin" / "ninja"
    ninja.write_text(f"#!/bin/sh\ncat '{tmp_path}/commands'\n")
    ninja.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ninja.parent}:{os.environ['PATH']}")
    return Build(root, made, "cpu", dict(os.environ))


def commit() -> str:
    """The commit's hash, from which tests draw their cases; empty where there is no git."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return found.stdout.strip()


def hostile_seed() -> str:
    """From which the tests of hostile values draw; HOSTILE_SEED repeats a run of another commit."""
    return os.environ.get("HOSTILE_SEED") or commit() or "1"


def absent(why: str) -> None:
    """Skips, but not in continuous integration (.ci/run sets the variable): there nothing may be left out."""
    if os.environ.get("COURSE_NO_SKIP"):
        pytest.fail(f"{why}, and COURSE_NO_SKIP is set")
    pytest.skip(why, allow_module_level=True)


def build_folder(backend: str = "cpu") -> Path:
    """Where scripts/course builds."""
    return Path(os.environ.get("COURSE_BUILD_DIR") or ROOT / "build") / backend


def built(stage: str, name: str) -> Path:
    """A program of a stage; a test that needs one is skipped where it is not built."""
    for backend in ("cpu", "hip", "cuda"):
        path = build_folder(backend) / stage / name
        if path.is_file():
            return path
    pytest.skip(f"{name} is not built: run scripts/course test first")


@pytest.fixture
def report() -> dict:
    """A valid report that a test may change."""
    return copy.deepcopy(REPORT)


ENVIRONMENT = {"system": "Linux", "processor": "Example", "processors": 4, "python": "3.12.0",
               "device": "Example GPU", "backend": "cuda", "toolkit": "13.0", "torch": "1.2.3",
               "torch_toolkit": "13.0", "cudnn": None, "numpy": None}


@pytest.fixture
def run(report: dict) -> dict:
    """A valid run of `course bench` that a test may change."""
    return {"schema": 1, "kind": "bench", "date": "2030-01-02T03:04:05Z", "quick": False, "rounds": 3,
            "environment": dict(ENVIRONMENT), "reports": [report], "failures": []}


class Machine:
    """A repository with three steps in a folder with spaces, and a PATH that holds only stand-ins.

    calls() are the command lines that the stand-ins were called with, in order.
    """

    CMAKE = """
case "$1" in
  --version) echo "cmake version ${FAKE_CMAKE:-3.25.1}" ;;
  --preset) mkdir -p "$4" && touch "$4/build.ninja"
            echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" > "$4/CMakeCache.txt" ;;
  --build) if [ -n "$FAKE_BUILD_ERROR" ]; then
             echo "FAILED: vector_add.hip.o"; echo "$FAKE_BUILD_ERROR"; exit 1
           fi
           for step in stage0_infra/hello_gpu stage1_vector/vector_add stage1_vector/axpy; do
             mkdir -p "$2/${step%/*}" && cp "$FAKES/program" "$2/$step"
           done
           echo "[1/2] Building HIP object vector_add.hip.o"; echo "[2/2] Linking vector_add" ;;
esac
"""
    # The program answers --list, and otherwise writes its report to where --json ($2) says.
    PROGRAM = """
if [ "$1" = --list ]; then echo "naive       one thread per element"; exit 0; fi
echo "${0##*/} prints its table"
if [ -n "$FAKE_SLEEP" ]; then exec sleep 60; fi
if [ "${0##*/}" = "$FAKE_FAILING" ]; then exit "${FAKE_CODE:-1}"; fi
cp "$FAKES/report.json" "$2"
"""
    PYTHON = """
case "$*" in
  *"pip install"*) if [ -n "$FAKE_PIP_ERROR" ]; then echo "$FAKE_PIP_ERROR"; exit 1; fi ;;
esac
"""

    def __init__(self, folder: Path):
        self.root = folder / "a course"
        self.fakes = folder / "fakes"
        self.log = folder / "calls"
        self.variables: dict[str, str] = {}
        self.fakes.mkdir(parents=True)
        for tool in ("sh", "mkdir", "touch", "cp", "sleep", "env", "true"):
            (self.fakes / tool).symlink_to(shutil.which(tool))
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=ignore)
        (self.root / "README.md").write_text(README, encoding="utf-8")
        for step in ("stage0_infra/01_hello_gpu", "stage1_vector/01_vector_add",
                     "stage1_vector/02_axpy"):
            name = step.split("/")[1][3:]
            (self.root / step).mkdir(parents=True)
            for file in (f"{name}.h", f"{name}.cpp", f"{name}_test.cpp"):
                (self.root / step / file).touch()
        (self.root / "scripts" / "packages.txt").write_text(
            "base: cmake ninja-build\ncpu: libboost-context-dev\nhip: hipcc\n", encoding="utf-8"
        )
        (self.fakes / "report.json").write_text(json.dumps(REPORT), encoding="utf-8")
        self.fake("cmake", self.CMAKE)
        self.fake("program", self.PROGRAM)
        self.fake("ctest", 'echo "100% tests passed"; exit "${FAKE_CTEST:-0}"')
        self.fake("ninja", "")
        self.fake("c++", "")
        self.fake("sudo", 'while [ "$1" = -n ]; do shift; done; exec "$@"')
        self.installed("cmake", "ninja-build", "libboost-context-dev")
        self.fake_apt("")

    def fake(self, name: str, body: str, folder: Path | None = None) -> Path:
        path = (folder or self.fakes) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.log}"\n{body}\n', encoding="utf-8")
        path.chmod(0o755)
        return path

    def installed(self, *names: str) -> None:
        """What dpkg-query calls installed; apt-get's stand-in is not needed for more."""
        lines = [f"echo '{name} installed'" for name in names]
        self.fake("dpkg-query", "\n".join([*lines, "exit 1"]))

    def fake_apt(self, error: str) -> None:
        """An apt-get that installs with success, or says `error` and fails."""
        install = f"echo \"{error}\"; exit 100" if error else "exit 0"
        self.fake("apt-get", f'case "$*" in *install*) {install} ;; esac')

    def remove(self, *names: str) -> None:
        for name in names:
            (self.fakes / name).unlink()

    def fake_venv(self) -> Path:
        """A .venv whose Python only writes down what it is asked to do."""
        return self.fake("python3", self.PYTHON, self.root / ".venv" / "bin")

    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.fakes), "FAKES": str(self.fakes), "HOME": str(self.root.parent),
                "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **self.variables}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "scripts" / "course"), *arguments]

    def course(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments), env=self.environment(), cwd=cwd or self.root, text=True,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
        )

    def calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for variable in ("COURSE_BUILD_DIR", "COURSE_DATA", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return Machine(tmp_path)


# ---- A course of one step, with two exercises ----------------------------------------------------

STEP_TEXT = """// 1.1  sum: a sum of two vectors.
//
// Any n.

inline int first(int a) {
  // exercise: one more than a
  // and no less (about 1 line)
  return a + 1;
  // end exercise
}
inline void second(int* b) {
  // exercise: the same in place (about 2 lines)
  const int old = *b;
  *b = old + 1;
  // end exercise
}
"""
STEP_TOML = """shapes = ["1", "256", "257"]

[[exercise]]
name = "first"
file = "versions/sum.hip"
versions = ["naive"]
owner = { block = "i // 16", thread = "i % 16" }
blank = "return 0;"
hints = ["one", "two", "three"]

[[exercise.mistake]]
name = "one too few"
find = "a + 1"
replace = "a"

[[exercise]]
name = "second"
file = "versions/sum.hip"
versions = ["in_place"]
hints = ["four", "five", "six"]
"""


@pytest.fixture
def course(tmp_path: Path) -> exercises.Course:
    folder = tmp_path / "stage1_vector" / "01_sum"
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "sum.hip").write_text(STEP_TEXT)
    (folder / "sum.cpp").touch()
    (folder / "exercise.toml").write_text(STEP_TOML)
    (folder / "README.md").write_text("# 1.1 sum\n\nTwo vectors\nbecome one.\n\nMore.\n")
    return exercises.load(steps.discover(tmp_path)[0])


@pytest.fixture
def workspace(course, tmp_path: Path, monkeypatch) -> Workspace:
    monkeypatch.delenv("COURSE_WORKSPACE", raising=False)
    return Workspace(tmp_path)


def changed(course: exercises.Course, old: str, new: str, file: str = "exercise.toml") -> None:
    path = course.step.folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
