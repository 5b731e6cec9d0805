"""scripts/course bench as a command: a build of three programs, a peer without a library, and what goes wrong."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tables
from conftest import REPORT, Machine
from course_lib import bench_file

# A peer without a library: it answers with a time of 1 ms, and dies where it is told to.
PEER = """
import os, signal, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from course_lib import peers
def like(report):
    if report["program"] == os.environ.get("FAKE_DYING"):
        print("out of patience", file=sys.stderr, flush=True)
        os.kill(os.getpid(), int(os.environ.get("FAKE_SIGNAL", "9")))
    if report["program"] == os.environ.get("FAKE_HANGING"):
        time.sleep(60)
    if report["program"] == os.environ.get("FAKE_WRONG"):
        raise RuntimeError("the device was lost\\nand more")
    print("a library says something")
    return [{"problem": table["problem"], "rows": [peers.make_row("PyTorch eager", [1.0, 1.1])]}
            for table in report["tables"]]

with open(os.environ["FAKE_LOG"], "a") as log:
    print("peer", *sys.argv[1:], file=log)
peers.serve(peers.Peer("PyTorch", {"torch": "1.2.3", "torch_toolkit": "13", "cudnn": None}, like))
"""
STEPS = {"hello_gpu": ("0.1", "stage0_infra"), "vector_add": ("1.1", "stage1_vector"),
         "axpy": ("1.2", "stage1_vector")}


class Bench(Machine):
    """A machine with a build of three programs that write their reports, and a peer."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.build = folder / "a build" / "cuda"
        self.python = self.fake("python", f'exec "{sys.executable}" "$@"')
        (self.root / "scripts" / "bench_torch.py").write_text(PEER, encoding="utf-8")
        # Whether PyTorch is there is asked of an interpreter: this one has a module of that name.
        (folder / "modules").mkdir()
        (folder / "modules" / "torch.py").touch()
        self.variables |= {"FAKE_LOG": str(self.log), "PYTHONPATH": str(folder / "modules")}
        for name in STEPS:
            self.program(name)

    def program(self, name: str, body: str = "") -> None:
        number, stage = STEPS[name]
        report = {**copy.deepcopy(REPORT), "step": number, "program": name}
        written = self.fakes / f"{name}.json"
        written.write_text(json.dumps(report), encoding="utf-8")
        self.fake(name, body or f'cp "{written}" "$2"', self.build / stage)

    def bench(self, *arguments: str, peers: str = "torch,cublas,cudnn") -> subprocess.CompletedProcess:
        wanted = ["--peers", peers] if peers else []
        return self.course("bench", *arguments, *wanted, "--build", str(self.build), "--python",
                           str(self.python))

    def results(self) -> dict:
        [run] = bench_file.load(self.build / "bench" / "bench.json")
        return run


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for variable in ("COURSE_BUILD_DIR", "COURSE_DATA", "COURSE_PYTHON", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return Bench(tmp_path)


def test_program_and_peer_take_turns(workbench: Bench):
    done = workbench.bench("stage1", "--rounds", "2")
    assert (done.returncode, done.stderr) == (0, "")
    run = workbench.results()
    assert [report["program"] for report in run["reports"]] == ["vector_add", "axpy"]
    assert (run["rounds"], run["failures"]) == (2, [])
    assert run["environment"]["torch"] == "1.2.3" and run["environment"]["device"] == "Example GPU"
    rows = {row["name"]: row for row in run["reports"][0]["tables"][0]["rows"]}
    assert rows["PyTorch eager"]["ms"] == 1.0 and rows["PyTorch eager"]["rounds"] == 2
    assert rows["naive"]["of_peer"] == {"cuBLAS": 0.41, "PyTorch eager": 0.5}
    # The peer is started once and asked after each run of a program.
    assert [call.split()[0] for call in workbench.calls() if call.split()[0] not in ("python", "cmake")] == [
        "vector_add", "peer", "axpy", "vector_add", "axpy"]
    assert all(call.endswith(" --rounds 2") for call in workbench.calls() if call.startswith("axpy"))
    assert "1.1 vector_add   n=2^28 float32" in done.stdout
    assert "of PyTorch eager" in done.stdout and "beside PyTorch 1.2.3" in done.stdout
    assert f"details: {workbench.build}" in done.stdout or "details: ../" in done.stdout
    assert re.search(r"^1\.1 vector_add: \d+ s \(program \d+, PyTorch \d+\)$", done.stdout, re.MULTILINE)


def test_the_peers_can_be_chosen(workbench: Bench):
    done = workbench.bench("1.1", "--quick", peers="none")
    assert done.returncode == 0
    rows = workbench.results()["reports"][0]["tables"][0]["rows"]
    assert [row["name"] for row in rows] == ["naive", "vectorised", "wgmma"]
    assert any(call.startswith("vector_add --json") and call.endswith("--quick")
               for call in workbench.calls())


def test_without_its_peers_it_goes_on_without(workbench: Bench):
    workbench.fake("python", "exit 1")
    done = workbench.bench("1.1", "--rounds", "1", peers="")
    assert done.returncode == 0
    assert done.stderr == "".join(f"course: {name} is not here and is left out: name the Python that has it "
                                  "with --python or COURSE_PYTHON\n" for name in ("PyTorch", "JAX"))
    run = workbench.results()
    assert run["environment"]["torch"] is None
    assert [row["name"] for row in run["reports"][0]["tables"][0]["rows"]][0] == "cuBLAS"


@pytest.mark.parametrize(("body", "code", "line"), [
    ("echo cannot >&2; exit 1", 1, "cannot"),
    ("kill -9 $$", -9, "killed by signal 9"),
    ("exit 0", 1, "the program wrote no results"),
    ('echo "{" > "$2"', 1, ""),
    ("echo no device >&2; exit 3", 3, "no device"),
])
def test_a_program_that_fails_does_not_stop_the_others(workbench: Bench, body, code, line):
    workbench.program("vector_add", body)
    done = workbench.bench("stage1", "--rounds", "1")
    assert done.returncode == (3 if code == 3 else 1)
    run = workbench.results()
    assert [report["program"] for report in run["reports"]] == ["axpy"]
    [failure] = run["failures"]
    assert (failure["program"], failure["side"], failure["code"]) == ("vector_add", "course", code)
    assert line in failure["line"]
    summary = [text for text in done.stdout.splitlines() if text.startswith("1.1   vector_add")]
    assert summary and summary[0].endswith(("FAIL", "no device", "FAIL (signal 9)"))


def test_a_program_that_is_not_built_is_said_to_be(workbench: Bench):
    (workbench.build / "stage1_vector" / "axpy").unlink()
    assert workbench.bench("stage1", "--rounds", "1").returncode == 1
    assert workbench.results()["failures"][0]["line"] == "the program is not built"


def test_a_peer_that_dies_leaves_blank_rows_and_is_started_again(workbench: Bench):
    workbench.variables["FAKE_DYING"] = "vector_add"
    done = workbench.bench("stage1", "--rounds", "1")
    assert done.returncode == 1
    run = workbench.results()
    first, second = (report["tables"][0]["rows"][1] for report in run["reports"])
    assert (first["name"], first["skipped"]) == ("PyTorch", "PyTorch failed: killed by signal 9")
    assert (second["name"], second["ms"]) == ("PyTorch eager", 1.0)
    assert run["failures"][0]["side"] == "PyTorch"
    assert "PyTorch, 1.1 vector_add, round 1: killed by signal 9" in done.stdout


def test_a_peer_that_hangs_is_ended_and_not_asked_for_that_step_again(workbench: Bench):
    workbench.variables["FAKE_HANGING"] = "axpy"
    assert workbench.bench("stage1", "--rounds", "2", "--peer-minutes", "0.05").returncode == 1
    first, second = (report["tables"][0]["rows"][1] for report in workbench.results()["reports"])
    assert (first["ms"], first["rounds"]) == (1.0, 2), "the other steps have their peer"
    assert (second["name"], second["skipped"]) == ("PyTorch", "PyTorch failed: no answer in 0.05 minutes")
    assert sum(call.startswith("peer") for call in workbench.calls()) == 2, "started, and once more"
    assert " in like\n" in (workbench.build / "bench" / "torch.log").read_text(), "where it stood"


def test_a_peer_that_cannot_answer_goes_on_with_the_next(workbench: Bench):
    workbench.variables["FAKE_WRONG"] = "vector_add"
    assert workbench.bench("stage1", "--rounds", "1").returncode == 1
    assert workbench.results()["reports"][0]["tables"][0]["rows"][1]["skipped"] == "PyTorch failed: the device was lost"
    assert sum(call.startswith("peer") for call in workbench.calls()) == 1


def test_control_c_keeps_what_is_there(workbench: Bench):
    workbench.program("axpy", f'echo begun > "{workbench.fakes}/begun"; exec sleep 60')
    command = workbench.command("bench", "stage1", "--peers", "torch", "--build", str(workbench.build), "--python",
                                str(workbench.python))
    process = subprocess.Popen(command, env=workbench.environment(), cwd=workbench.root, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not (workbench.fakes / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "course: interrupted; what was measured until then is in the file\n"
    run = workbench.results()
    assert [report["program"] for report in run["reports"]] == ["vector_add"]
    assert "1.1   vector_add" in out


def test_a_full_disk_is_one_line(workbench: Bench):
    workbench.program("axpy", "echo 'axpy: cannot be written: No space left on device' >&2; exit 1")
    done = workbench.bench("stage1", "--rounds", "1")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1 and "is full: free some space" in done.stderr
    assert [report["program"] for report in workbench.results()["reports"]] == ["vector_add"]


def test_no_round_is_begun_that_would_not_end_in_time(workbench: Bench):
    workbench.program("vector_add", f'sleep 1.2; cp "{workbench.fakes}/vector_add.json" "$2"')
    done = workbench.bench("stage1", "--rounds", "3", "--minutes", "0.02")
    assert done.returncode == 3
    assert workbench.results()["failures"][0]["line"] == "no time was left for it"
    assert "5 rounds of steps were left out" in done.stdout


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--rounds", "0"], "--rounds is at least 1"),
    (["--peer-minutes", "nan"], "--peer-minutes is above 0"),
    (["--quick", "--save", "there"], "--save keeps results, --quick makes none worth keeping"),
    (["--json", "/no/such/a.json"], "--json: there is no folder /no/such"),
    (["nothing"], "unknown step 'nothing'"),
])
def test_what_cannot_be_asked_for(workbench: Bench, arguments: list[str], complaint: str):
    done = workbench.bench(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and done.stderr.count("\n") == 1


def test_a_peer_that_nobody_knows(workbench: Bench):
    done = workbench.bench(peers="torhc")
    assert done.returncode == 2
    assert "--peers: 'torhc' is unknown; there are torch, jax, cublas, cudnn, rocblas, numpy" in done.stderr


def test_results_are_kept_as_tables_reads_them(workbench: Bench, tmp_path: Path):
    workbench.program("axpy", "exit 1")
    kept = tmp_path / "repository" / "results" / "example"
    done = workbench.bench("stage1", "--rounds", "1", "--save", str(kept))
    assert done.returncode == 1 and "not of axpy, which failed" in done.stdout
    assert [path.name for path in kept.iterdir()] == ["vector_add.json"]
    report = tables.load_results(tmp_path / "repository" / "results")["example"]["vector_add"]
    text = "\n".join(tables.version_table(report["tables"][0]))
    assert "| of PyTorch eager |" in text and "beside PyTorch 1.2.3" in tables.origin(report)


def test_files_are_compared_and_merged(workbench: Bench, tmp_path: Path, run: dict):
    other = copy.deepcopy(run)
    other["reports"][0]["tables"][0]["rows"][1].update(ms=1.5, ms_p10=1.4, ms_p90=1.6)
    for name, value in (("a", run), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    a, b, both = (str(tmp_path / f"{name}.json") for name in ("a", "b", "both"))
    compared = workbench.course("bench", "--compare", a, b)
    line = next(line for line in compared.stdout.splitlines() if "naive" in line)
    assert compared.returncode == 0 and line.split()[-6:] == ["faster", "2.00", "ms", "1.50", "ms", "0.75"]
    merged = workbench.course("bench", "--merge", a, b, "--json", both, "--save", str(tmp_path / "kept"))
    assert merged.returncode == 0 and "Example GPU" in merged.stdout and len(bench_file.load(Path(both))) == 1
    assert (tmp_path / "kept" / "vector_add.json").is_file()
    missing = workbench.course("bench", "--compare", a, str(tmp_path / "absent.json"))
    assert missing.returncode == 2 and "absent.json" in missing.stderr


def test_what_programs_compile_is_kept_for_one_run(workbench: Bench, tmp_path: Path):
    kept = tmp_path / "kept"
    workbench.program("axpy", f'[ -e "$COURSE_CACHE_DIR/kernel" ] && echo old >>"{kept}" || echo new >>"{kept}"; '
                              'mkdir -p "$COURSE_CACHE_DIR"; touch "$COURSE_CACHE_DIR/kernel"; '
                              f'cp "{workbench.fakes / "axpy.json"}" "$2"')
    for _ in range(2):
        assert workbench.bench("1.2", "--rounds", "2", peers="none").returncode == 0
    assert kept.read_text().split() == ["new", "old"] * 2
