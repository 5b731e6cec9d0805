"""What the pictures of results show, how they are drawn, and the check of the committed ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from conftest import ROOT, write
from course_lib import diagram_drawing, diagrams, drawing, pictures, work

import pictures as script  # scripts/pictures.py


def test_a_ladder_has_bars_the_limit_and_the_peers(report: dict):
    (ladder,) = pictures.ladders(report)
    assert [(bar["name"], bar["time"], bar["rate"]) for bar in ladder["bars"]] == [
        ("naive", "2.00 ms", "1.50 TB/s"), ("vectorised", "800 us", "4.10 TB/s")]
    assert ladder["best"] == 1
    assert [(line["kind"], line["name"], line["value"]) for line in ladder["lines"]] == [
        ("limit", "measured limit of copying", 4.2e12), ("peer", "cuBLAS", 1.5e12)]
    words = pictures.words_for(ladder)
    assert words.startswith("Ladder of 1.1 vector_add, n=2^28 float32: naive 2.00 ms, 1.50 TB/s;")
    assert "measured limit of copying 4.20 TB/s; cuBLAS 820 us, 1.50 TB/s" in words


def test_a_peer_without_a_rate_gets_it_from_its_time(report: dict):
    report["tables"][0]["rows"][0].update(rate=None, ms=4.0)
    (ladder,) = pictures.ladders(report)
    assert ladder["lines"][1]["value"] == pytest.approx(0.75e12)


def test_without_rates_a_ladder_shows_how_often_faster(report: dict):
    for row in report["tables"][0]["rows"]:
        row.update(rate=None, of_limit=None, limit="none")
    (ladder,) = pictures.ladders(report)
    assert [bar["rate"] for bar in ladder["bars"]] == ["1x", "2.5x"]
    assert [line["kind"] for line in ladder["lines"]] == ["peer"]


def test_what_is_no_ladder_gets_none(report: dict):
    report["tables"].append(copy.deepcopy(report["tables"][0]))  # the same versions, another size
    assert len(pictures.ladders(report)) == 1
    report["tables"][1]["rows"][1]["name"] = "another"
    assert len(pictures.ladders(report)) == 2
    for table in report["tables"]:
        table["rows"][2].update(status="FAIL", ms=None)
    assert pictures.ladders(report) == []
    assert pictures.ladders({**report, "program": "timing"}) == []


@pytest.mark.parametrize(
    ("program", "problem", "unit", "intensity"),
    [
        ("vector_add", "c = a + b   n=2^28 float32", "B/s", 1 / 12),
        ("axpy", "y = alpha * x + y   n=2^28 float32", "B/s", 2 / 12),
        ("activations", "sigmoid forward   n=2^28 float32", "B/s", 3 / 8),
        ("softmax", "65536x4096 float32", "B/s", 5 / 8),
        ("gemm", "NN   M=2^12 N=2^12 K=2^12 float32", "operations/s", 4096 / 6),
        ("conv2d_backward", "grad_X   (64,64,56,56) -> 64 filters 3x3, stride 1x1, padding 1x1 float32",
         "operations/s", 143.77),
        ("dense", "relu(X W^T + b)   batch 64, 784 -> 128 float32", "operations/s", 20.216),
    ],
)
def test_operations_per_byte_follow_from_the_problem(program, problem, unit, intensity):
    done = {"vector_add": 12 * 2**28, "axpy": 12 * 2**28, "activations": 8 * 2**28,
            "softmax": 8 * 65536 * 4096, "gemm": 2 * 4096**3, "conv2d_backward": 2 * 64**3 * 56 * 56 * 9,
            "dense": 2 * 64 * 784 * 128}[program]
    row = {"ms": 2.0, "rate": done / 2e-3, "rate_unit": unit}
    moved, operations = work.work_of(program, {"problem": problem}, row)
    assert operations / moved == pytest.approx(intensity, rel=1e-3)


def test_a_report_s_own_bytes_and_operations_come_first(report: dict):
    row = {**report["tables"][0]["rows"][1], "bytes": 100.0, "operations": 50.0}
    assert work.work_of("vector_add", report["tables"][0], row) == (100.0, 50.0)


def test_work_that_is_not_known_is_none(report: dict):
    row = report["tables"][0]["rows"][1]
    for program, problem in (("transpose", "2^14x2^14 float32"), ("dot", "worded otherwise"),
                             ("optimizers", "lion   n=100 float32"), ("unknown", "n=3 float32"),
                             ("activations", "sigmoid forward"), ("vector_add", "")):
        assert work.work_of(program, {"problem": problem}, row) is None
    assert work.work_of("gemm", {"problem": "M=2"}, {**row, "rate_unit": "operations/s"}) is None
    assert work.work_of("dot", {"problem": "n=4 float32"}, {**row, "ms": None}) is None


def test_the_roofline_counts_what_it_leaves_off(report: dict):
    report["tables"][0]["problem"] = "c = a + b   n=2^28 float32"
    other = copy.deepcopy(report)
    other.update(program="transpose", step="2.1")
    other["tables"][0]["rows"][1]["limit"] = "none"
    data = pictures.roofline([report, other])
    assert [(p["name"], p["best"]) for p in data["points"]] == [
        ("naive", False), ("vectorised", True)]
    assert data["left_off"] == {"unknown": 1, "no limit": 1}
    report["limits"]["fma_operations_per_s"] = None
    other["limits"]["fma_operations_per_s"] = None
    assert pictures.roofline([report, other])["points"] == []  # no roof


TRAINING = {"columns": ["epoch", "loss", "accuracy"], "rows": [[1, 0.3, 96.0], [2, 0.2, 97.0]]}


def test_curves_have_a_panel_for_each_quantity_and_the_peers_beside(report: dict):
    report["series"] = {"training": TRAINING, "worst": {"columns": list("abcd"), "rows": []}}
    (curves,) = pictures.curves(report)
    assert [panel["quantity"] for panel in curves["panels"]] == ["loss", "accuracy"]
    assert curves["panels"][0]["curves"] == [
        {"label": "vectorised, 800 us", "peer": False, "points": [[1, 0.3], [2, 0.2]]}]
    report["tables"][0]["rows"][0]["note"] = "238 us a step, test accuracy 98.90%"
    (curves,) = pictures.curves(report)
    assert curves["panels"][1]["curves"][1] == {
        "label": "cuBLAS, 820 us: at the end", "peer": True, "points": [[1, 98.9], [2, 98.9]]}
    report["peer_series"] = {"PyTorch eager": {"training": TRAINING}}
    (curves,) = pictures.curves(report)
    assert [curve["label"] for curve in curves["panels"][1]["curves"]] == [
        "vectorised, 800 us", "PyTorch eager"]


# ---- Drawing -----------------------------------------------------------------------------------


@pytest.fixture
def jobs(report: dict) -> list[dict]:
    report["series"] = {"training": TRAINING,
                        "xor_loss": {"columns": ["epoch", "a", "b"],
                                     "rows": [[1, 1.0, None], [2, 1e-4, 2e-4]]}}
    report["tables"][0]["problem"] = "c = a + b   n=2^28 float32   with $dollars$ <and> & more"
    return [pictures.job(picture) for picture in pictures.all_pictures([report])]


def test_the_same_data_make_the_same_bytes(jobs: list[dict], tmp_path: Path):
    assert [job["file"] for job in jobs] == ["roofline", "vector_add_ladder", "vector_add_training",
                                             "vector_add_xor_loss"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = drawing.draw(jobs, tmp_path / name, ["svg", "png"])
        assert sorted((tmp_path / name).iterdir()) == sorted(files) and len(files) == 8
    for file in files:
        assert file.read_bytes() == (tmp_path / "one" / file.name).read_bytes()
        if file.suffix == ".svg":
            text = file.read_text(encoding="utf-8")
            job = next(job for job in jobs if job["file"] == file.stem)
            assert job["identifier"] in text and "prefers-color-scheme: dark" in text
            assert "<dc:date>" not in text and "matplotlib.org" not in text


def test_scales():
    assert drawing.linear_ticks(60.8e12) == [0, 20e12, 40e12, 60e12]
    assert drawing.linear_ticks(4.2) == [0, 1, 2, 3, 4]
    assert drawing.decades(1e6, 4e9) == [1e6, 1e7, 1e8, 1e9]
    assert drawing.decades(0.5, 2e5) == [1, 100, 1e4]
    assert drawing.decades(1.5, 9) == [2, 5] and drawing.decades(3e9, 6e9) == [5e9]
    assert drawing.decades(3, 4) == []
    assert drawing.short(2.5e12, "operations/s") == "2.5 TFLOP/s"
    assert drawing.short(4, "x") == "4x"


# ---- Diagrams ----------------------------------------------------------------------------------


def test_the_figures_of_a_diagram_are_those_of_the_results():
    with_figures = {"h200": {name: json.loads((ROOT / "results" / "h200" / f"{name}.json").read_text())
                             for name in ("hello_gpu", "timing")}}
    shown = diagrams.all_diagrams({"a": {}, **with_figures})[0]["data"]
    texts = [item[3] for item in shown["items"] if item[0] == "text"]
    limit = with_figures["h200"]["timing"]["limits"]["read_bytes_per_s"]
    assert f"read: {limit / 1e12:.2f} TB/s" in texts and "sizes and rates: NVIDIA H200" in texts
    with_figures["h200"]["timing"]["limits"]["read_bytes_per_s"] = 1.5e12
    other = diagrams.all_diagrams(with_figures)[0]["data"]
    assert "read: 1.50 TB/s" in [item[3] for item in other["items"] if item[0] == "text"]
    assert pictures.checksum(other) != pictures.checksum(shown)
    del with_figures["h200"]["timing"]["limits"]["read_bytes_per_s"], with_figures["h200"]["hello_gpu"]
    without = diagrams.all_diagrams(with_figures)[0]["data"]
    assert not any(character.isdigit() and item[3] != "L2 cache" for item in without["items"]
                   if item[0] == "text" for character in item[3])


def test_a_tree_s_sums_are_right():
    cells = [item[3] for item in diagrams.tree_with_barriers()["data"]["items"] if item[0] == "text"]
    assert [int(text) for text in cells if text.isdigit()] == [3, 1, 4, 1, 5, 9, 2, 6, 8, 10, 6, 7, 14, 17, 31]


def test_every_part_of_a_diagram_is_on_the_page_and_texts_are_read_on_a_phone():
    for picture in diagrams.all_diagrams({}):
        data = picture["data"]
        for kind, *part in data["items"]:
            numbers = [*part[0]] if kind == "line" else [part[:2]]
            for x, y in numbers:
                assert 0 <= x <= drawing.WIDTH and 0 <= y <= data["height"], (picture["file"], part)
            if kind == "text":
                x, _, text, _, size, align, bold = part
                width = drawing.width_of(text, size, bold)
                left = x - {"left": 0, "center": width / 2, "right": width}[align]
                assert left >= 0 and left + width <= drawing.WIDTH, (picture["file"], text)
                assert size >= drawing.SMALL


def test_diagrams_are_drawn_in_the_same_bytes(tmp_path: Path):
    jobs = [pictures.job(picture) for picture in diagrams.all_diagrams({})]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = drawing.draw(jobs, tmp_path / name, ["svg"], diagram_drawing.KINDS)
    for file, job in zip(files, jobs):
        assert file.read_bytes() == (tmp_path / "one" / file.name).read_bytes()
        text = file.read_text(encoding="utf-8")
        assert job["identifier"] in text and job["words"][:20] in text and "prefers-color-scheme: dark" in text


# ---- scripts/pictures.py -----------------------------------------------------------------------


def show_diagrams(root: Path, alt: str = "") -> None:
    """A file of docs/ that shows all diagrams."""
    write(root, "docs/words.md", "".join(
        f'<img src="pictures/{picture["file"]}.svg" width="432" alt="{alt}">\n'
        for picture in diagrams.all_diagrams({})))


def test_a_diagram_is_shown_and_described_or_found(tmp_path: Path, capsys):
    def errors(*arguments: str) -> str:
        capsys.readouterr()
        script.main(["--root", str(tmp_path), *arguments])
        return capsys.readouterr().err

    (tmp_path / "results").mkdir()
    assert "docs/pictures: no file shows memory_hierarchy.svg" in errors()
    show_diagrams(tmp_path, "something else")
    assert "docs/words.md: says something else of attention_tiles, coalesced_and_strided" in errors("--check")
    assert errors() == "" and errors("--check") == ""
    assert 'alt="A tree over the sums of 8 threads' in (tmp_path / "docs/words.md").read_text()
    drawn = tmp_path / "docs" / "pictures" / "tree_with_barriers.svg"
    drawn.write_text(drawn.read_text().replace("sha256:", "sha256:0"))
    assert "docs/pictures: tree_with_barriers.svg shows other data" in errors("--check")
    assert errors() == "" and errors("--check") == ""


def test_committed_pictures_are_drawn_once_and_then_agree(report: dict, tmp_path: Path, capsys):
    folder = tmp_path / "results" / "example"
    folder.mkdir(parents=True)
    results = folder / "vector_add.json"
    results.write_text(json.dumps(report))
    show_diagrams(tmp_path)

    def run(*arguments: str) -> int:
        return script.main(["--root", str(tmp_path), *arguments])

    assert run("--check") == 1
    assert "vector_add_ladder.svg is missing: run `scripts/pictures.py`" in capsys.readouterr().err
    assert run() == 0 and run("--check") == 0
    (picture,) = (folder / "pictures").iterdir()
    before = picture.stat().st_mtime_ns
    assert run() == 0 and picture.stat().st_mtime_ns == before  # the same data: left as it is
    report["tables"][0]["rows"][1]["ms"] = 1.9
    results.write_text(json.dumps(report))
    (folder / "pictures" / "stray.svg").touch()
    capsys.readouterr()
    assert run("--check") == 1
    errors = capsys.readouterr().err
    assert "vector_add_ladder.svg shows other data than the results" in errors
    assert "stray.svg belongs to no results" in errors
    assert run() == 0 and run("--check") == 0


def test_the_committed_pictures_agree():
    assert script.main(["--root", str(ROOT), "--check"]) == 0
