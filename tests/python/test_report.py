"""scripts/course report: the page, in a real browser where one is installed, and the command."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path

import browser
import pytest
import tables
from conftest import ROOT, Machine
from course_lib import diffs, drawing, report as reports, results, steps

PROGRAMS = ("memory_pool", "transpose", "gemm", "activation_backward", "train_toy", "train_mnist")


def draw(jobs: Path, folder: Path) -> None:
    drawing.draw(json.loads(jobs.read_text(encoding="utf-8")), folder, ["svg"])


def bench_of(*found: dict, device: str = "Example GPU") -> dict:
    """A file of `course bench`."""
    return {"schema": 1, "kind": "bench", "date": "2030-01-02T03:04:05Z", "quick": False, "rounds": 3,
            "environment": {"device": device, "backend": "cuda", "toolkit": "13.0", "system": "Linux",
                            "processor": "Example <CPU> & co", "processors": 2, "python": "3.11",
                            "torch": "2.11.0", "torch_toolkit": None, "cudnn": None, "numpy": None},
            "reports": list(found),
            "failures": [{"step": "2.3", "program": "gemm", "side": "PyTorch", "round": 1, "code": -9,
                          "line": "killed by signal 9"}]}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some committed results, and a second device on which things went wrong."""
    folder = tmp_path_factory.mktemp("report")
    found = [one for one in results.in_order(tables.load_results(ROOT / "results")["h200"].values())
             if one["program"] in PROGRAMS]
    broken = copy.deepcopy(found[1])
    broken["tables"][0]["problem"] = "a <script>alert(1)</script> & \"more\""
    broken["tables"][0]["rows"][1].update(status="FAIL", ms=None, ms_p10=None, ms_p90=None, rate=None,
                                          of_limit=None, of_peer={}, max_error=None)
    broken["tables"][0]["rows"][2].update(status="skipped", skipped="needs sm_90", ms=None)
    (folder / "set.json").write_text(json.dumps({
        "schema": 1, "kind": "bench_set",
        "runs": [{**bench_of(*found, device="NVIDIA H200"), "failures": []}, bench_of(broken)]}))
    ladders = {step.name: diffs.ladder(step) for step in steps.discover(ROOT) if step.name == "transpose"}
    return reports.write([folder / "set.json"], folder / "a report.html", draw, ladders=ladders)


@pytest.fixture(scope="module")
def chromium(page: Path, tmp_path_factory: pytest.TempPathFactory):
    with browser.of_this_machine(tmp_path_factory.mktemp("chromium")) as opened:
        opened.screen(1280)
        opened.open(page)
        yield opened


# ---- In the browser ----------------------------------------------------------------------------


def test_nothing_is_complained_about_and_nothing_is_fetched(chromium: browser.Browser):
    assert chromium.problems == []
    assert {url.split(":")[0] for url in chromium.requests} == {"file", "data"}
    assert chromium.run("document.querySelectorAll('script[src], link[rel=stylesheet]').length") == 0


PICTURES = """[...document.images].map(image => ({
  alt: image.alt, natural: image.naturalWidth, width: image.clientWidth, height: image.clientHeight,
  shown: image.checkVisibility()}))"""


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("dark", [False, True])
def test_every_picture_is_there_and_nothing_is_wider_than_the_page(
    chromium: browser.Browser, width: int, dark: bool
):
    chromium.screen(width, dark=dark)
    shown = chromium.run(PICTURES)
    assert len(shown) > 12
    for picture in shown:
        assert picture["natural"] > 300 and picture["height"] > 80 and picture["shown"], picture
        # The smallest text has 10 of the 324 points that a picture is wide.
        assert 10 / 324 * picture["width"] >= 9.5, picture
        assert len(picture["alt"]) > 40
    assert chromium.run("document.documentElement.scrollWidth") == width
    # Wide tables scroll in boxes of their own.
    assert chromium.run("[...document.querySelectorAll('.scroll')].every("
                        "box => box.getBoundingClientRect().right <= innerWidth)")


def test_pictures_follow_the_colours_of_the_page(chromium: browser.Browser):
    corner = """(() => {
      const canvas = document.createElement('canvas');
      canvas.width = canvas.height = 8;
      const context = canvas.getContext('2d');
      context.drawImage(document.images[0], 0, 0);
      const paper = getComputedStyle(document.body).backgroundColor;
      return [[...context.getImageData(4, 4, 1, 1).data].slice(0, 3).join(', '), paper];
    })()"""
    for dark, color in ((False, "255, 255, 255"), (True, "13, 17, 23")):
        chromium.screen(1280, dark=dark)
        chromium.open_again()
        assert chromium.run(corner) == [color, f"rgb({color})"]


# The right edges of the headings and cells that a reader looks for first, behind that of their table's box.
OUT_OF_SIGHT = """[...document.querySelectorAll('.scroll')].filter(box => box.checkVisibility()).flatMap(box => {
  const edge = box.getBoundingClientRect().left + box.clientLeft + box.clientWidth;
  const rows = [...box.querySelectorAll('tr')];
  return [...rows[0].cells].map((head, column) => [head.textContent, column])
    .filter(([name]) => ['time', 'of limit'].includes(name))
    .filter(([, column]) => rows.some(row => row.cells[column].getBoundingClientRect().right > edge + .5))
    .map(([name]) => `${box.ariaLabel}: ${name}`);
})"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_time_and_share_of_the_limit_are_in_sight(chromium: browser.Browser, width: int, dark: bool):
    chromium.screen(width, dark=dark)
    chromium.open_again()
    chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    for name in ("time", "of limit"):
        assert chromium.run(f"[...document.querySelectorAll('.scroll thead button')].filter("
                            f"one => one.textContent === '{name}').length") > 10
    assert chromium.run(OUT_OF_SIGHT) == []


def test_no_column_is_empty(chromium: browser.Browser):
    dashes = """[...document.querySelectorAll('.scroll table')].flatMap(table =>
      [...table.tHead.rows[0].cells].filter((head, column) =>
        [...table.tBodies[0].rows].every(row => row.cells[column].textContent === '-')))"""
    assert chromium.run(f"{dashes}.map(head => head.textContent)") == []
    heads = ("[...document.querySelectorAll('#run1-memory_pool ~ .scroll thead')].map("
             "head => [...head.rows[0].cells].map(cell => cell.textContent))")
    assert chromium.run(heads)[0][:2] == ["version", "time"]
    assert not any("of limit" in names for names in chromium.run(heads))  # an allocation has no limit


def focused(chromium: browser.Browser) -> str:
    return chromium.run("document.activeElement.textContent")


def test_tables_are_sorted_by_keyboard(chromium: browser.Browser):
    chromium.screen(1280)
    chromium.open_again()
    assert chromium.run("document.querySelectorAll('.diff table').length") > 2  # which are not sorted
    assert chromium.run("[...document.querySelectorAll('.scroll thead th')].every(head => "
                        "head.firstElementChild?.tagName === 'BUTTON')")
    chromium.press("Tab")
    assert focused(chromium) == "Skip to the results"
    chromium.press("Enter")
    for _ in range(20):  # through the links of the headings to the second button of the first table
        chromium.press("Tab")
        if focused(chromium) == "time":
            break
    column = ("[...document.querySelector('table').tBodies[0].rows].map("
              "row => row.cells[1].dataset.value)")
    state = "document.activeElement.parentElement.getAttribute('aria-sort')"
    before = chromium.run(column)
    assert chromium.run(state) == "none"
    chromium.press("Enter")
    times = [float(value) for value in before]
    assert chromium.run(state) == "ascending"
    assert [float(value) for value in chromium.run(column)] == sorted(times) != times
    chromium.press(" ")
    assert chromium.run(state) == "descending"
    assert [float(value) for value in chromium.run(column)] == sorted(times, reverse=True)
    chromium.press("Tab")  # text is sorted as text, and only one column says that it is sorted
    assert chromium.run("document.querySelectorAll('table')[0].querySelectorAll("
                        "'[aria-sort=ascending], [aria-sort=descending]').length") == 1


def test_what_has_no_figure_comes_last_either_way(chromium: browser.Browser):
    table = "[...document.querySelectorAll('caption')].find(c => c.textContent.includes('<script>'))"
    result = chromium.run(f"""(() => {{
      const table = {table}.closest('table');
      const button = table.tHead.rows[0].cells[1].firstChild;
      const last = () => [...table.tBodies[0].rows].slice(-2).map(row => row.cells[1].textContent);
      button.click();
      const rising = last();
      button.click();
      return [rising, last()];
    }})()""")
    assert result == [["-", "-"], ["-", "-"]]


def test_the_page_is_one_document_for_all(chromium: browser.Browser):
    assert chromium.run("document.querySelectorAll('h1').length") == 1
    assert chromium.run("document.documentElement.lang") == "en"
    levels = chromium.run("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:]))
    assert chromium.run("[...document.querySelectorAll('.scroll table')].every("
                        "table => table.caption && table.tHead && table.tBodies[0].rows.length)")
    assert chromium.run("[...document.querySelectorAll('.scroll table')].every(table => [...table.rows].every("
                        "row => row.cells.length === table.rows[0].cells.length))")
    assert chromium.run("[...document.querySelectorAll('a[href^=\"#\"]')].every("
                        "link => document.getElementById(link.getAttribute('href').slice(1)))")
    assert chromium.run("(ids => new Set(ids).size === ids.length)("
                        "[...document.querySelectorAll('[id]')].map(element => element.id))")


def test_on_paper_nothing_is_folded_away(chromium: browser.Browser):
    assert chromium.run("document.querySelectorAll('details:not([open])').length") > 0
    assert len(chromium.call("Page.printToPDF", preferCSSPageSize=True)["data"]) > 10_000
    assert chromium.run("document.querySelectorAll('details:not([open])').length") == 0


OVERLAPS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const paper = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.getBoundingClientRect(), text]);
  const name = svg.querySelector('title').textContent.slice(0, 40);
  const found = [];
  boxes.forEach(([a, one], i) => {
    if (a.left < paper.left - .5 || a.right > paper.right + .5 || a.top < paper.top - .5 ||
        a.bottom > paper.bottom + 1) found.push(`${name}: '${one.textContent}' leaves the paper`);
    for (const [b, other] of boxes.slice(i + 1))
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        found.push(`${name}: '${one.textContent}' is over '${other.textContent}'`);
  });
  return found;
})"""


def test_no_text_of_the_committed_pictures_hides_another(chromium: browser.Browser, tmp_path: Path):
    files = sorted((ROOT / "results").glob("*/pictures/*.svg"))
    drawings = [re.sub(r"^.*?(?=<svg)", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
                for file in files]
    sheet = tmp_path / "sheet.html"
    sheet.write_text("<!DOCTYPE html><meta charset=utf-8>" + "".join(drawings), encoding="utf-8")
    chromium.screen(1280)
    chromium.open(sheet)
    assert chromium.run("document.querySelectorAll('svg text').length") > 10 * len(files)
    assert chromium.run(OVERLAPS) == []


# ---- Without a browser -------------------------------------------------------------------------


def test_the_page_is_small_and_says_what_went_wrong(page: Path):
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 3_000_000
    assert "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;" in text
    assert "Example &lt;CPU&gt; &amp; co" in text
    assert "2.3 gemm (PyTorch) failed: killed by signal 9" in text
    assert ">needs sm_90<" in text and 'class="bad">FAIL<' in text
    assert "{{" not in text
    assert not list(page.parent.glob("*.new"))


def test_tables_show_every_row_and_its_figures(report: dict, tmp_path: Path):
    (tmp_path / "one.json").write_text(json.dumps(report))
    page = reports.write([tmp_path / "one.json"], tmp_path / "one.html", draw, tmp_path / "kept")
    text = page.read_text(encoding="utf-8")
    for word in ("cuBLAS", "naive", "vectorised", "wgmma", "2.00 ms", "15%", "1.50 TB/s", "41%",
                 "3.0e-08", "needs sm_90", "launch overhead", "3.1 us", "Example GPU"):
        assert f">{word}<" in text or f">{word} <" in text, word
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == ["vector_add_ladder.svg"]


# ---- The command -------------------------------------------------------------------------------


def test_the_command_writes_the_page(machine: Machine, report: dict, tmp_path: Path):
    machine.fake_venv()
    python = machine.root / ".venv" / "bin" / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *pip*) exit 0 ;; esac\nexec "{sys.executable}" "$@"\n')
    folder = machine.root / "results" / "example"
    folder.mkdir(parents=True)
    (folder / "vector_add.json").write_text(json.dumps(report))
    done = machine.course("report")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("build/report.html: 0.0 MB, open it in a browser\n")
    out, kept = tmp_path / "x" / "y.html", tmp_path / "pictures"
    done = machine.course("report", str(folder / "vector_add.json"), "--out", str(out), "--pictures",
                          str(kept))
    assert (done.returncode, done.stderr) == (0, "") and out.is_file()
    assert sorted(file.suffix for file in kept.iterdir()) == [".png", ".svg"]
    assert not any("pip" in call for call in machine.calls())
    done = machine.course("report", "nowhere.json")
    assert done.returncode == 2 and done.stderr.startswith("course: nowhere.json: ")
    (folder / "vector_add.json").unlink()
    folder.rmdir()
    done = machine.course("report")
    assert (done.returncode, done.stderr) == (
        2, "course: no results to show: `scripts/course run --save-results` makes them\n")


# Python that runs this finds no Matplotlib.
WITHOUT_MATPLOTLIB = """import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Finder)
"""


def test_without_matplotlib_the_pictures_are_left_out_and_nothing_is_installed(
    machine: Machine, report: dict, tmp_path: Path
):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_MATPLOTLIB)
    machine.variables["PYTHONPATH"] = str(tmp_path)
    (tmp_path / "one.json").write_text(json.dumps(report))
    done = machine.course("report", str(tmp_path / "one.json"))
    assert done.returncode == 0
    assert done.stderr == ("course: pictures that are not drawn yet are left out: no Python here has Matplotlib, "
                           "which `scripts/course test` sets up\n")
    text = (machine.root / "build" / "report.html").read_text(encoding="utf-8")
    assert ">vectorised<" in text and "<img" not in text and "Roofline" not in text
    done = machine.course("report", str(tmp_path / "one.json"), "--pictures", str(tmp_path / "kept"))
    assert done.returncode == 3 and done.stderr.startswith("course: no Python here has Matplotlib")
    assert machine.calls() == [] and not (machine.root / ".venv").exists()
