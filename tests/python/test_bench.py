"""scripts/course bench: problems, rounds, peers, what goes wrong, comparing and merging."""

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
from conftest import REPORT, ROOT, ROW, Machine
from course_lib import bench_file, bench_rounds, peers, problems, results, steps

ENVIRONMENT = {"system": "Linux", "processor": "Example", "processors": 4, "python": "3.12.0",
               "device": "Example GPU", "backend": "cuda", "toolkit": "13.0", "torch": "1.2.3",
               "torch_toolkit": "13.0", "cudnn": None, "numpy": None}


@pytest.fixture
def run(report: dict) -> dict:
    """A valid run that a test may change."""
    return {"schema": 1, "kind": "bench", "date": "2030-01-02T03:04:05Z", "quick": False, "rounds": 3,
            "environment": dict(ENVIRONMENT), "reports": [report], "failures": []}


# ---- Rows --------------------------------------------------------------------------------------


def row(name: str = "naive", ms: float | None = 2.0, spread: float = 0.1, **others) -> dict:
    timed = {"ms": ms, "ms_p10": ms and ms - spread, "ms_p90": ms and ms + spread,
             "rate": ms and 3e9 / ms, "of_peer": {}}
    return {**ROW, "name": name, **timed, **others}


def test_rounds_become_one_row():
    merged = bench_rounds.merge_rows([row(ms=2.0), row(ms=2.4, spread=0.5), row(ms=2.1, max_error=9e-8)])
    assert (merged["ms"], merged["ms_p10"], merged["ms_p90"]) == (2.1, 1.9, 2.9)
    assert merged["rounds"] == 3 and merged["max_error"] == 9e-8
    assert merged["rate"] == pytest.approx(3e9 / 2.1)


def test_a_row_that_failed_once_has_failed():
    failed = row(ms=None, status="FAIL", max_error=None, compared=5)
    merged = bench_rounds.merge_rows([row(), failed, row()])
    assert merged["status"] == "FAIL" and merged["ms"] is None and merged["rate"] is None


def test_a_row_of_some_rounds_keeps_their_times():
    merged = bench_rounds.merge_rows([row(ms=5.0), peers.blank_row("naive", "out of memory")])
    assert (merged["status"], merged["ms"], merged["rounds"]) == ("ok", 5.0, 1)
    results.validate_row(merged, "row")


def measured(*reports: dict, **of_peers: list) -> bench_rounds.Measured:
    return bench_rounds.Measured(steps.Step("1.1", "vector_add", Path()), list(reports), of_peers)


def peer_tables(*rows: dict) -> list[dict]:
    return [{"problem": "n=2^28 float32", "rows": list(rows)}]


def test_a_report_is_merged_with_its_peers(report: dict):
    second = copy.deepcopy(report)
    second["limits"]["copy_bytes_per_s"] = 4.0e12
    second["tables"][0]["rows"][1]["ms"] = 2.2
    second["facts"][0]["value"] = 3.3
    torch = [peer_tables(peers.make_row("PyTorch eager", [1.0, 1.0, 1.2])),
             peer_tables(peers.make_row("PyTorch eager", [1.4]))]
    merged = bench_rounds.merge_report(measured(report, second, torch=torch), {"cublas", "torch"}, ENVIRONMENT)
    results.validate(merged)
    assert merged["limits"]["copy_bytes_per_s"] == 4.1e12
    assert merged["facts"][0]["value"] == pytest.approx(3.2)
    assert merged["environment"] == ENVIRONMENT and merged["rounds"] == 2
    rows = {one["name"]: one for one in merged["tables"][0]["rows"]}
    assert list(rows) == ["cuBLAS", "PyTorch eager", "naive", "vectorised", "wgmma"]
    eager, naive = rows["PyTorch eager"], rows["naive"]
    assert eager["peer"] and eager["ms"] == pytest.approx(1.2) and eager["of_peer"] == {}
    assert naive["ms"] == pytest.approx(2.1)
    assert naive["of_peer"] == pytest.approx({"cuBLAS": 0.82 / 2.1, "PyTorch eager": 1.2 / 2.1})
    # The same work in half the time is twice the rate.
    assert eager["rate"] * eager["ms"] == pytest.approx(naive["rate"] * naive["ms"])
    assert naive["of_limit"] == pytest.approx(naive["rate"] / 4.1e12)
    assert rows["wgmma"]["of_peer"] == {} and rows["wgmma"]["skipped"] == "needs sm_90"


def test_only_the_peers_that_are_wanted_are_shown(report: dict):
    merged = bench_rounds.merge_report(measured(report), set(), ENVIRONMENT)
    assert [one["name"] for one in merged["tables"][0]["rows"]] == ["naive", "vectorised", "wgmma"]
    assert merged["tables"][0]["rows"][0]["of_peer"] == {}


@pytest.mark.parametrize(("sampled", "reference_ms", "ms", "reason"), [
    ("", 12.0, 12.0, ""), ("checked on 3 of 9 rows", 12.0, None, "only a part was checked"),
    ("", None, None, "the check was not timed on its own")])
def test_the_plain_loop_is_a_peer_where_it_did_all_the_work(report, sampled, reference_ms, ms, reason):
    report["tables"][0].update(sampled=sampled, reference_ms=reference_ms)
    merged = bench_rounds.merge_report(measured(report), {"loop"}, ENVIRONMENT)
    loop = merged["tables"][0]["rows"][0]
    assert (loop["name"], loop["ms"], loop["skipped"]) == ("C++ loop", ms, reason)


def test_work_that_a_peer_cannot_do_is_a_blank_row(report: dict):
    def cannot(problem: problems.Problem) -> list[dict]:
        raise peers.CannotDo("PyTorch has no such thing")
    report["tables"][0]["problem"] = "c = a + b   n=2^4 float32"
    report["tables"].append({**report["tables"][0], "problem": "something else"})
    done = peers.measure_report(report, "PyTorch", cannot)
    assert [table["rows"][0]["skipped"] for table in done] == [
        "PyTorch has no such thing", "no PyTorch counterpart"]
    for table in done:
        results.validate_row(table["rows"][0], "row")
        assert table["rows"][0]["ms"] is None and table["rows"][0]["name"] == "PyTorch"
    peers.validate(peers.peer_file("PyTorch", {"torch": "1.2.3"}, done))


def test_short_calls_are_timed_in_batches():
    counts: list[int] = []

    def run(count: int) -> float:
        counts.append(count)
        return 0.01 * count
    times = peers.time_call(run, budget_ms=1, settle_ms=0)
    assert counts[:2] == [1, 1] and set(counts[2:]) == {20}
    assert times == pytest.approx([0.01] * 5)


def test_a_batch_takes_as_long_as_is_asked_for():
    """A device that waits 0.1 ms for the first call of a batch."""
    times = peers.time_call(lambda count: 0.1 + 0.4 * count, repeat=3, settle_ms=0, least_ms=5)
    assert times == pytest.approx([0.41] * 3)  # of 10 calls: once, it takes 0.5


def test_calls_before_those_that_are_timed_do_not_rest():
    counts: list[int] = []

    def run(count: int) -> float:
        counts.append(count)
        return 0.5 * count
    assert len(peers.time_call(run, repeat=3, settle_ms=500)) == 3
    assert counts == [1, 1] + 50 * [20] + 3 * [1]  # 500 ms, 10 at a time
    counts.clear()
    peers.time_call(run, repeat=3, settle_ms=0.25)
    assert counts == [1, 1] + [1] + 3 * [1]


def test_json_is_laid_out_as_the_programs_do_it():
    text = results.dump({"a": 1, "rows": [[1.5, 2], [None, 3]], "empty": {}, "b": [{"c": "ü"}]})
    assert text == '{\n "a": 1,\n "rows": [\n  [1.5,2],\n  [null,3]\n ],\n "empty": {},\n "b": [\n' \
                   '  {\n   "c": "ü"\n  }\n ]\n}'


# ---- The file ----------------------------------------------------------------------------------


def test_a_run_is_valid(run: dict):
    bench_file.validate(run)


@pytest.mark.parametrize(("change", "words"), [
    (lambda r: r.update(schema=2), "schema 2"),
    (lambda r: r.update(kind="drawing"), "no bench of schema 1 but 'drawing'"),
    (lambda r: r.update(kind="a\nb"), "no bench of schema 1 but 'a\\nb' of schema 1"),
    (lambda r: r.pop("failures"), "the run has no 'failures'"),
    (lambda r: r["environment"].pop("torch"), "environment has no 'torch'"),
    (lambda r: r.update(environment=1.5), "'environment' cannot be 1.5"),
    (lambda r: r["environment"].update(processors="4"), "environment: 'processors' cannot be"),
    (lambda r: r["reports"][0].pop("device"), "reports[0]: the report has no 'device'"),
    (lambda r: r["failures"].append({"step": "1.1"}), "failures[0] has no 'program'"),
])
def test_an_invalid_run_is_refused_by_name(run: dict, change, words: str):
    change(run)
    with pytest.raises(ValueError) as caught:
        bench_file.validate(run)
    assert words in str(caught.value)


def test_runs_are_read_from_files_sets_reports_and_folders(tmp_path: Path, run: dict, report: dict):
    contents = {"run.json": run, "set.json": {"schema": 1, "kind": "bench_set", "runs": [run, run]},
                "report.json": report, "list.json": [], "broken.json": {**run, "kind": "x"},
                "empty.json": {"schema": 1, "kind": "bench_set", "runs": []}}
    for name, value in contents.items():
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    (tmp_path / "deep.json").write_text("[" * 100000)
    assert bench_file.load(tmp_path / "run.json") == [run]
    assert len(bench_file.load(tmp_path / "set.json")) == 2
    [alone] = bench_file.load(tmp_path / "report.json")
    bench_file.validate(alone)
    assert alone["environment"]["device"] == "Example GPU"
    for name in ("list.json", "broken.json", "absent.json", "empty.json", "deep.json"):
        with pytest.raises(ValueError, match=name):
            bench_file.load(tmp_path / name)
    [committed] = bench_file.load(ROOT / "results" / "h200")
    bench_file.validate(committed)
    assert [report["program"] for report in committed["reports"]][:2] == ["hello_gpu", "error_check"]


# ---- Comparing and merging ---------------------------------------------------------------------


def changed(run: dict, **of_naive) -> dict:
    other = copy.deepcopy(run)
    other["reports"][0]["tables"][0]["rows"][1].update(of_naive)
    return other


@pytest.mark.parametrize(("after", "change"), [
    ({"ms": 1.5, "ms_p10": 1.4, "ms_p90": 1.6}, "faster"),
    ({"ms": 2.5, "ms_p10": 2.4, "ms_p90": 2.6}, "slower"),
    ({"ms": 2.15, "ms_p10": 2.1, "ms_p90": 2.3}, ""),  # within the spread
    ({"ms": 2.01, "ms_p10": 2.0, "ms_p90": 2.3}, ""),
    ({"ms": None, "status": "FAIL"}, "fails now"),
    ({"ms": None, "status": "skipped", "skipped": "needs more"}, "not timed now"),
])
def test_what_changed_beyond_the_spread(run: dict, after: dict, change: str):
    found = bench_file.compare(run, changed(run, **after))
    assert [(key[3], what) for key, what, _, _ in found] == ([("naive", change)] if change else [])


def test_a_narrow_spread_does_not_make_a_change_of_nothing(run: dict):
    before = changed(run, ms=2.0, ms_p10=2.0, ms_p90=2.0)
    assert bench_file.compare(before, changed(run, ms=2.02, ms_p10=2.02, ms_p90=2.02)) == []


def test_rows_that_came_and_went(run: dict):
    other = changed(run, name="tiled")
    assert [(key[3], what) for key, what, _, _ in bench_file.compare(run, other)] == [
        ("naive", "gone"), ("tiled", "new")]
    lines = list(bench_file.comparison_lines(run, other))
    assert lines[-1] == "3 of 3 rows are the same within their spread and 2%"


def test_what_makes_runs_hard_to_compare_is_said_first(run: dict):
    other = copy.deepcopy(run)
    other["environment"].update(device="Another", torch="2.0")
    other["reports"][0]["program"] = "axpy"
    assert list(bench_file.comparison_lines(run, other))[:4] == [
        "different devices: Example GPU and Another", "different versions of PyTorch: 1.2.3 and 2.0",
        "only in the first: vector_add", "only in the second: axpy"]


def test_devices_are_merged_side_by_side_and_later_results_replace_earlier(run: dict):
    other = changed(run, ms=1.0)
    other["environment"]["device"] = "Another"
    other["failures"] = [{"step": "2.3", "program": "gemm", "side": "course", "round": 1, "code": -9,
                          "line": "killed by signal 9"}]
    later = changed(run, ms=0.5, of_limit=1.5)
    later["date"] = "2031-01-01T00:00:00Z"
    merged = bench_file.merge([later, other, run])
    assert [one["environment"]["device"] for one in merged] == ["Example GPU", "Another"]
    assert merged[0]["reports"][0]["tables"][0]["rows"][1]["ms"] == 0.5
    assert merged[1]["failures"]
    lines = list(bench_file.merged_lines(merged))
    assert "Example GPU" in lines[0] and "Another" in lines[0] and len(lines) == 2
    assert "naive 500 us" in lines[1] and "vectorised 800 us" in lines[1]


# ---- The command -------------------------------------------------------------------------------

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
    other = changed(run, ms=1.5, ms_p10=1.4, ms_p90=1.6)
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
