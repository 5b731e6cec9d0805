"""scripts/course bench: problems, rounds, peers, comparing and merging. test_bench_command.py has the command."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import tables
from conftest import ENVIRONMENT, REPORT, ROOT, ROW
from course_lib import bench_file, bench_rounds, peers, problems, results, steps


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
