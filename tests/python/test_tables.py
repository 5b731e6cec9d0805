"""scripts/tables.py and the reports it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tables
from conftest import ROOT
from course_lib import bench_file, results


@pytest.fixture
def repository(tmp_path: Path, report: dict) -> Path:
    """A repository with one result, and two READMEs whose tables are empty."""
    (tmp_path / "results" / "example").mkdir(parents=True)
    save(tmp_path, report)
    step = tmp_path / "stage1_vector" / "01_vector_add"
    step.mkdir(parents=True)
    (step / "README.md").write_text(
        "# vector_add\n\n<!-- table: vector_add -->\n<!-- end table -->\n\nThe end.\n"
    )
    (tmp_path / "README.md").write_text(
        "# Course\n\n<!-- table: summary -->\n<!-- end table -->\n"
    )
    return tmp_path


def save(repository: Path, report: dict) -> None:
    path = repository / "results" / "example" / "vector_add.json"
    path.write_text(json.dumps(report))


def run(repository: Path, *arguments: str) -> int:
    return tables.main(["--root", str(repository), *arguments])


def test_tables_are_written_once_and_then_agree(repository: Path):
    assert run(repository, "--check") == 1
    assert run(repository) == 0
    assert run(repository, "--check") == 0
    text = (repository / "stage1_vector" / "01_vector_add" / "README.md").read_text()
    assert "| naive | 2.00 ms | 1.50 TB/s | 40% (copy) | 41% | 0 | ok |" in text
    assert "| wgmma | - | - | - | - | - | needs sm_90 |" in text
    assert "| launch overhead | 3.1 us |" in text
    assert "*Example GPU, cuda 13.0, 2030-01-02; measured limits: 4.20 TB/s copy" in text
    assert text.startswith("# vector_add\n\n<!--") and text.endswith("-->\n\nThe end.\n")
    summary = (repository / "README.md").read_text()
    assert "1.1   vector_add  vectorised    800 us  4.10 TB/s       98%" in summary
    assert "*Example GPU, cuda 13.0, 2030-01-02*" in summary


def test_check_fails_on_a_changed_figure(repository: Path, capsys):
    assert run(repository) == 0
    readme = repository / "stage1_vector" / "01_vector_add" / "README.md"
    readme.write_text(readme.read_text().replace("1.50 TB/s", "1.60 TB/s"))
    capsys.readouterr()
    assert run(repository, "--check") == 1
    errors = capsys.readouterr().err
    assert errors.startswith("stage1_vector/01_vector_add/README.md: line ")
    assert "1.60 TB/s" in errors and "run `scripts/tables.py`" in errors
    assert "1.60 TB/s" in readme.read_text()  # --check writes nothing


def test_missing_results_fail_and_leave_the_readme(repository: Path, capsys):
    assert run(repository) == 0
    readme = repository / "stage1_vector" / "01_vector_add" / "README.md"
    before = readme.read_text()
    (repository / "results" / "example" / "vector_add.json").unlink()
    for arguments in ((), ("--check",)):
        assert run(repository, *arguments) == 1
        assert "no results/<device>/vector_add.json: make it with" in capsys.readouterr().err
    assert readme.read_text() == before


def test_an_open_marker_is_an_error(repository: Path, capsys):
    (repository / "README.md").write_text("<!-- table: summary -->\nand on\n")
    assert run(repository) == 1
    assert "has no `<!-- end table -->`" in capsys.readouterr().err


def test_quick_results_are_not_shown(repository: Path, report: dict, capsys):
    save(repository, {**report, "quick": True})
    assert run(repository) == 1
    assert "made with --quick" in capsys.readouterr().err


def test_a_failed_version_is_shown_as_failed(repository: Path, report: dict):
    report["tables"][0]["rows"][1].update(status="FAIL", max_error=None, ms=None, rate=None)
    save(repository, report)
    assert run(repository) == 0
    text = (repository / "stage1_vector" / "01_vector_add" / "README.md").read_text()
    assert "| naive | - | - | 40% (copy) | 41% | NaN | FAIL |" in text
    summary = (repository / "README.md").read_text().splitlines()
    assert next(line for line in summary if "vector_add" in line).endswith("FAIL")


def test_every_device_has_its_table(repository: Path, report: dict):
    report["device"].update(name="Another", backend="cpu")
    other = repository / "results" / "another"
    other.mkdir()
    (other / "vector_add.json").write_text(json.dumps(report))
    assert run(repository) == 0
    text = (repository / "README.md").read_text()
    assert text.index("*Another, CPU backend,") < text.index("*Example GPU, cuda 13.0,")
    step = (repository / "stage1_vector" / "01_vector_add" / "README.md").read_text()
    places = [step.index(part) for part in (
        "*Another, CPU backend,", "| naive |", "<summary>Example GPU, cuda 13.0, 2030-01-02</summary>\n\n",
        "*Example GPU, cuda 13.0,", "</details>")]
    assert places == sorted(places) and step.count("<details") == 1, "one device's tables are open"


def test_the_device_with_the_most_programs_comes_first(repository: Path, report: dict):
    other = repository / "results" / "another"
    other.mkdir()
    (other / "vector_add.json").write_text(json.dumps(report))
    assert list(tables.load_results(repository / "results")) == ["another", "example"]
    (repository / "results" / "example" / "dot.json").write_text(json.dumps({**report, "program": "dot"}))
    assert list(tables.load_results(repository / "results")) == ["example", "another"]


@pytest.mark.parametrize("date", ["2029-12-31T10:00:00Z", "2030-12-31T10:00:00Z"])
def test_of_as_many_programs_those_that_were_measured_last_come_first(repository: Path, report: dict, date: str):
    other = repository / "results" / "another"
    other.mkdir()
    (other / "vector_add.json").write_text(json.dumps({**report, "date": date}))
    assert next(iter(tables.load_results(repository / "results"))) == ("example" if date < "2030" else "another")


def test_peers_stand_above_the_rows_that_they_are_held_against(repository: Path, report: dict):
    rows = report["tables"][0]["rows"]
    rows.insert(0, {**rows[0], "name": "PyTorch eager", "ms": 20.0})
    rows[2]["of_peer"]["PyTorch eager"] = 10.0
    save(repository, {**report, "environment": {"torch": "1.2.3"}})
    assert run(repository) == 0
    text = (repository / "stage1_vector" / "01_vector_add" / "README.md").read_text()
    assert "| of PyTorch eager |" in text and "2030-01-02; beside PyTorch 1.2.3;" in text
    names = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert names[:3] == ["| version", "| PyTorch eager", "| cuBLAS"]
    assert "| 10.0x |" in text
    assert run(repository, "--check") == 0


# ---- ONNX's vectors ----------------------------------------------------------------------------


ONNX = {"onnx": "9.8.7",
        "verdicts": {"Add 14": {"1.1 vector_add": {"passed": ["add", "add_bcast"],
                                                   "element type": ["add_int8"]}}},
        "missing": {"Abs 13": ["abs"], "If 11": ["if_opt"], "If 13": ["if_seq"]}, "graphs": ["celu_expanded"]}


def save_onnx(repository: Path, record: object) -> Path:
    (repository / "results" / "onnx.json").write_text(json.dumps(record))
    (repository / "docs").mkdir(exist_ok=True)
    page = repository / "docs" / "operators.md"
    page.write_text("# Operators\n\n<!-- table: onnx -->\n<!-- end table -->\n")
    return page


def test_what_passes_of_onnx_is_counted(repository: Path):
    page = save_onnx(repository, ONNX)
    assert run(repository) == 0 and run(repository, "--check") == 0
    text = page.read_text()
    assert "**ONNX 9.8.7 brings 7 vectors of nodes. 3 are of operators that the course has, and 2 of" in text
    assert "| [1.1 vector_add](../stage1_vector/01_vector_add/) | Add 14 | 3 | 2 | element type (1) |" in text
    assert "Another 3 vectors are of 2 operators that the course does not have: Abs (1), If (2)." in text
    page.write_text(text.replace("| 3 | 2 |", "| 3 | 3 |"))
    assert run(repository, "--check") == 1


@pytest.mark.parametrize("change, wrong", [
    ({"graphs": [1]}, "'graphs' cannot be"),
    ({"missing": {"Abs 13": "abs"}}, "missing: 'Abs 13' cannot be"),
    ({"verdicts": {"Add 14": []}}, "verdicts: 'Add 14' cannot be"),
    ({"verdicts": {"Add 14": {"1.1 vector_add": {"passed": 2}}}}, "'passed' cannot be"),
    ({"verdicts": {"Add 14": {"vector_add": {"passed": []}}}}, "is no step, such as '1.1 vector_add'"),
])
def test_a_record_of_onnx_that_is_none_is_one_line(repository: Path, capsys, change: dict, wrong: str):
    save_onnx(repository, ONNX | change)
    assert run(repository) == 1
    errors = capsys.readouterr().err
    assert wrong in errors and errors.count("\n") == 1, errors


# ---- Reports -----------------------------------------------------------------------------------


def test_a_report_is_valid(report: dict):
    results.validate(report)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(schema=2), "schema 2 is not known"),
        (lambda r: r.pop("device"), "the report has no 'device'"),
        (lambda r: r["device"].update(wave_size="32"), "device: 'wave_size' cannot be \"32\""),
        (lambda r: r.update(quick=0), "'quick' cannot be 0"),
        (lambda r: r.update(seed=True), "'seed' cannot be true"),
        (lambda r: r["tables"][0].pop("rows"), "tables[0] has no 'rows'"),
        (lambda r: r["tables"][0]["rows"][1].update(ms="fast"), "'ms' cannot be \"fast\""),
        (lambda r: r["tables"][0]["rows"][1].update(status="OK"), "status 'OK' is not"),
        (lambda r: r["tables"][0]["rows"][1].update(rate_unit="GB/s"), "rate_unit 'GB/s'"),
        (lambda r: r["tables"][0]["rows"][1].update(of_peer={"x": None}), "of_peer['x']"),
        (lambda r: r["facts"].append({"name": "x", "value": 1}), "facts[1] has no 'unit'"),
    ],
)
def test_an_invalid_report_is_refused_by_name(report: dict, change, words: str):
    change(report)
    with pytest.raises(ValueError) as caught:
        results.validate(report)
    assert words in str(caught.value)


def test_a_broken_file_is_named(tmp_path: Path):
    path = tmp_path / "dot.json"
    path.write_text('{"schema": 1')
    with pytest.raises(ValueError, match="dot.json: "):
        results.load(path)


def test_the_committed_results_are_valid():
    for path in ROOT.glob("results/*/*.json"):
        assert results.load(path)["quick"] is False


def test_figures_read_as_the_programs_print_them():
    assert [results.format_ms(ms) for ms in (None, 0.0031, 0.25, 19.94, 1234)] == [
        "-", "3.10 us", "250 us", "19.9 ms", "1.23 s"]
    assert results.format_rate(6.9e12, "operations/s") == "6.90 TFLOP/s"
    assert results.format_rate(4.2e9, "B/s") == "4.20 GB/s"
    assert [results.format_share(s) for s in (None, 0.0001, 0.042, 0.95, 1.02, 32.34)] == [
        "-", "<0.1%", "4.2%", "95%", "102%", "32.3x"]


# ---- Keys that came later ----------------------------------------------------------------------


def test_of_bound_is_a_column_where_results_have_it(report):
    table = report["tables"][0]
    assert "of bound" not in "\n".join(tables.version_table(table))
    for row, share in zip(table["rows"], (None, 0.0, 0.125, None)):
        row["of_bound"] = share
    results.validate(report)
    lines = tables.version_table(table)
    assert "| max error | of bound | verdict |" in lines[2]
    columns = [line.split(" | ")[-2] for line in lines[4:-1]]
    assert columns == ["inf", "0", "12%", "-"], columns
    assert "of bound" in bench_file.table_lines(table, 1000)[0]
    table["rows"][1]["of_bound"] = "much"
    with pytest.raises(ValueError, match="'of_bound' cannot be"):
        results.validate(report)


def test_the_headline_stands_for_the_step(report):
    first = report["tables"][0]
    other = {**first, "problem": "n=2^10 float32",
             "rows": [{**row, "name": f"small {row['name']}"} for row in first["rows"]]}
    report["tables"].append(other)
    assert results.best_row(report)["name"] == "vectorised"
    report.update(headline="n=2^10 float32", commit="0123abcd")
    results.validate(report)
    assert results.best_row(report)["name"] == "small vectorised"
    report["headline"] = "of no table"
    assert results.best_row(report)["name"] == "vectorised"
    report["commit"] = 7
    with pytest.raises(ValueError, match="'commit' cannot be 7"):
        results.validate(report)


def test_the_share_of_refused_mutants_comes_from_its_file(repository: Path, capsys):
    readme = repository / "README.md"
    readme.write_text("<!-- table: mutants -->\n<!-- end table -->\n")
    assert run(repository) == 1 and "no results/mutants.json" in capsys.readouterr().err
    counts = {"mutants": 10, "uncompiled": 1, "equivalent": 1, "refused": 7}
    (repository / "results" / "mutants.json").write_text(json.dumps({"steps": {
        "1.1": {"date": "2030-01-02", "commit": "0123abc", **counts},
        "1.2": {"date": "2030-02-01", "commit": "1230abc", **counts}}, "passing": []}))
    assert run(repository) == 0
    assert "refuses 14 of 16 mutants (87.5%)**, kernels of 2 steps" in readme.read_text()
    assert "(2030-01-02 to 2030-02-01; 2 more" in readme.read_text()
    assert run(repository, "--check") == 0
    readme.write_text(readme.read_text().replace("14 of", "15 of"))
    assert run(repository, "--check") == 1
