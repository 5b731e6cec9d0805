"""scripts/course book: every link of the made site, its pages in a real browser, and what stops it."""

from __future__ import annotations

import copy
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from html.parser import HTMLParser
from importlib import util
from pathlib import Path

import browser
import pytest
from conftest import ROOT, absent
from course_lib import book, book_parts, exercises, steps

if util.find_spec("material") is None or util.find_spec("mkdocs") is None:
    absent("MkDocs Material is not installed: pip install -r scripts/requirements-book.txt")

STEPS = steps.discover(ROOT)
GEMM = "stage2_matrix/03_gemm/index.html"
PAGES = ["index.html", GEMM, "stage7_transformer/04_attention/index.html", "docs/results.html",
         "docs/glossary.html", "stage2_matrix/03_gemm/versions/double_buffered.hip.html", "CONTRIBUTING.html"]


def made(root: Path, folder: Path, *words: object) -> subprocess.CompletedProcess:
    """`course book` of a checkout, with what it makes in `folder`."""
    return subprocess.run([sys.executable, str(root / "scripts" / "course"), "book", "--no-setup", *map(str, words)],
                          env={**os.environ, "COURSE_BUILD_DIR": str(folder)}, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a book")
    done = made(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "book"


# ---- Links -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page has and wants: the names of its places, its links, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.places: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        found = dict(attributes)
        if found.get("id"):
            self.places.append(found["id"])
        if tag == "a" and found.get("href") is not None:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("next", "prev"):
            self.links.append(found["href"])
        elif tag == "link":
            self.loaded.append(found["href"])
        elif found.get("src"):
            self.loaded.append(found["src"])


def broken_links(site: Path) -> list[str]:
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    wrong = []
    for file, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urllib.parse.urlsplit(link)
            name = f"{file.relative_to(site)}: {link}"
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    wrong.append(f"{name} is loaded from elsewhere")
                continue
            target = Path(os.path.normpath(file.parent / urllib.parse.unquote(parts.path))) if parts.path else file
            if not target.is_file():
                wrong.append(f"{name} is not there")
            elif parts.fragment and target in pages \
                    and urllib.parse.unquote(parts.fragment) not in pages[target].places:
                wrong.append(f"{name} has no such place")
    return wrong


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path):
    assert broken_links(site) == []
    assert not re.search(r"url\(['\"]?(https?:)?//", (site / "assets" / "book.css").read_text(encoding="utf-8"))


def test_a_broken_link_would_be_found(tmp_path: Path):
    (tmp_path / "a.html").write_text('<a href="b.html"></a><a href="#x"></a><a href="a.html#y"></a>'
                                     '<p id="z"><a href="#z"></a><img src="https://example.org/x.png">')
    assert broken_links(tmp_path) == ["a.html: b.html is not there", "a.html: #x has no such place",
                                      "a.html: a.html#y has no such place",
                                      "a.html: https://example.org/x.png is loaded from elsewhere"]


def test_every_step_has_a_page_with_its_diffs_its_picture_its_table_and_its_hints(site: Path):
    for step in STEPS:
        folder = step.folder.relative_to(ROOT)
        text = (site / folder / "index.html").read_text(encoding="utf-8")
        assert f"<title>{step.number} {step.name}" in text
        assert text.count('<div class="diff"') == max(0, len(step.versions()) - 1), step.name
        readme = (step.folder / "README.md").read_text(encoding="utf-8")
        assert text.count("<img") >= readme.count("<img") and "<table" in text, step.name
        if exercises.has_exercises(step):
            course = exercises.load(step)
            assert text.count('<details class="question">') == len(course.exercises)
            assert text.count('<details class="tip">') == exercises.HINTS * len(course.exercises)
        assert "<details open" not in text
        for version in step.versions():
            assert (site / folder / "versions" / f"{version}.hip.html").is_file() or f"{version}.hip" not in readme


# ---- In the browser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(site: Path, tmp_path_factory: pytest.TempPathFactory):
    with browser.of_this_machine(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_its_window(site: Path, chromium: browser.Browser, page: str):
    for width in (1280, 390):
        chromium.screen(width)
        chromium.open(site / page)
        chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert chromium.run("document.documentElement.scrollWidth") == width
        assert chromium.run("document.querySelector('article').getBoundingClientRect().right") <= width
        # What is wider scrolls in a box of its own, which is seen whole.
        assert chromium.run("""[...document.querySelectorAll('article :is(table, pre, img, .diff)')].filter(one => {
          let box = one.tagName === 'TABLE' ? one.parentElement : one;
          while (box.tagName !== 'ARTICLE' && !/auto|scroll/.test(getComputedStyle(box).overflowX))
            box = box.parentElement;
          if (box.tagName === 'ARTICLE') box = one;
          return box.getBoundingClientRect().right > innerWidth;
        }).map(one => one.outerHTML.slice(0, 80))""") == []
        assert chromium.run("[...document.querySelectorAll('article img')].every(one => one.naturalWidth > 0)")
    assert chromium.problems == []
    assert {url.split(":")[0] for url in chromium.requests} <= {"file", "data"}


def test_the_numbers_of_lines_stand_beside_them(site: Path, chromium: browser.Browser):
    for width in (1280, 390):
        chromium.screen(width)
        chromium.open(site / next(page for page in PAGES if page.endswith(".hip.html")))
        heights = chromium.run("""['.linenodiv pre', 'td.code code'].map(name => {
          const one = document.querySelector(name), style = getComputedStyle(one);
          return one.getBoundingClientRect().height - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
        })""")
        assert heights[0] > 1000 and abs(heights[0] - heights[1]) < 3, heights


def test_a_diff_is_folded_and_shown_when_it_is_opened(site: Path, chromium: browser.Browser):
    chromium.screen(1280)
    chromium.open(site / GEMM)
    cell = "document.querySelector('section > details .diff ins')"
    assert not chromium.run(f"{cell}.checkVisibility()")
    chromium.run("document.querySelector('section > details > summary').click()")
    assert chromium.run(f"{cell}.checkVisibility()")
    assert chromium.run("[...document.querySelectorAll('section > details[open] thead th')]"
                        ".map(one => one.textContent)") == ["naive", "coalesced"]
    assert chromium.run(f"{cell}.getBoundingClientRect().right") < 1280
    unfolded = "document.querySelector('.diff details')"
    assert chromium.run(f"{unfolded}.querySelector('summary').textContent").endswith("unchanged lines")


def test_hints_are_folded_and_open_one_after_the_other(site: Path, chromium: browser.Browser):
    chromium.open(site / GEMM)
    seen = ("[...document.querySelectorAll('details.question:first-child details.tip')]"
            ".map(one => one.checkVisibility() ? one.open + '' : 'hidden')")
    assert chromium.run(seen) == ["hidden", "hidden", "hidden"]
    for state in (["false", "hidden", "hidden"], ["true", "false", "hidden"], ["true", "true", "false"]):
        chromium.run("[...document.querySelectorAll('details.question:first-child, details.question:first-child "
                     "details.tip')].find(one => !one.open).querySelector('summary').click()")
        assert chromium.run(seen) == state
    hint = exercises.load(next(step for step in STEPS if step.name == "gemm")).exercises[0].hints[0]
    assert chromium.run("document.querySelector('details.tip p').innerText") == hint


FOUND = """new Promise(resolve => {
  const field = document.querySelector('.md-search__input');
  document.querySelector('[data-md-toggle=search]').click();
  field.focus();
  field.value = 'occupancy';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  let rounds = 0;
  const timer = setInterval(() => {
    const links = [...document.querySelectorAll('.md-search-result__link')].map(one => one.href);
    if (links.length || ++rounds > 100) { clearInterval(timer); resolve(links); }
  }, 100);
})"""


def test_the_search_answers_from_disk_and_from_a_server(site: Path, chromium: browser.Browser):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for start in (site / "index.html", f"http://127.0.0.1:{server.server_port}/index.html"):
            chromium.screen(1280)
            chromium.open(start)
            assert any("/docs/glossary.html" in link for link in chromium.run(FOUND)), start
        server.shutdown()


def test_light_and_dark_have_contrast_and_pictures_follow(site: Path, chromium: browser.Browser):
    light = "(color => color.match(/[\\d.]+/g).slice(0, 3).reduce((sum, one) => sum + +one, 0) / 765)"
    for dark in (False, True):
        chromium.screen(1280, dark=dark)
        chromium.open(site / GEMM)
        paper = chromium.run(f"{light}(getComputedStyle(document.body).backgroundColor)")
        ink = chromium.run("getComputedStyle(document.querySelector('article p')).color")
        assert (paper < 0.2) == dark and (paper > 0.9) == (not dark), paper
        assert ink != chromium.run("getComputedStyle(document.body).backgroundColor")
        assert chromium.run("getComputedStyle(document.querySelector('article img')).colorScheme") == (
            "dark" if dark else "light")


# ---- What is found, and what is not ------------------------------------------------------------


def test_every_step_can_be_found_and_no_hint(site: Path):
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    titles = [entry["title"] for entry in entries]
    texts = " ".join(entry["text"] for entry in entries)
    for step in STEPS:
        assert any(title.startswith(f"{step.number} ") for title in titles), step.number
    hint = exercises.load(next(step for step in STEPS if step.name == "dot")).exercises[0].hints[0]
    assert hint.split(".")[0] not in re.sub(r"<[^>]+>", "", texts)
    assert "Hint 1 of 3" not in texts and not any(".hip" in title for title in titles)


def test_devices_are_tabs_where_there_is_more_than_one(report: dict):
    text = "Before.\n\n<!-- table: vector_add -->\n\nold\n\n<!-- end table -->\n\nAfter.\n"
    other = copy.deepcopy(report)
    other["device"]["name"] = "Another GPU"
    one = {"example": {"vector_add": report}}
    assert book_parts.with_devices(text, one, "..") == text
    both = book_parts.with_devices(text, {**one, "other": {"vector_add": other}}, "..")
    assert both.count('=== "') == 2 and '=== "Example GPU"' in both and '=== "Another GPU"' in both
    assert both.count("    | vectorised |") == 2 and "old" not in both
    assert both.startswith("Before.\n\n===") and both.endswith("\n\nAfter.\n")


def test_links_in_code_are_left_alone(tmp_path: Path):
    (tmp_path / "x.h").touch()
    text = "[a](x.h) `[b](x.h)`\n\n```\n[c](x.h)\n```\n[`d`](x.h#L1) [e](https://x.h) [f](gone.h) [g](#here)\n"
    assert book.Book(tmp_path).linked(text, "README.md") == (
        "[a](x.h.md) `[b](x.h)`\n\n```\n[c](x.h)\n```\n[`d`](x.h.md#L1) [e](https://x.h) [f](gone.h) [g](#here)\n")


@pytest.mark.parametrize("remote, name", [
    ("https://github.com/someone/a.course.git\n", "someone/a.course"), ("git@github.com:some/one.git", "some/one"),
    ("ssh://git@github.com/some/one", "some/one"), ("https://example.org/some/one.git", None), ("/srv/one", None),
    (None, None)])
def test_the_address_on_github(remote: str | None, name: str | None):
    assert book.repository_of(remote) == name


def test_the_badge_and_the_notebook_know_the_address():
    running = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    notebook = book_parts.notebook_page(json.loads((ROOT / book_parts.NOTEBOOK).read_text(encoding="utf-8")))
    assert f"({book_parts.COLAB}me/it/blob/main/{book_parts.NOTEBOOK})" in book_parts.with_repository(running, "me/it")
    assert 'REPOSITORY = "https://github.com/me/it"' in book_parts.with_repository(notebook, "me/it")
    assert book_parts.with_repository(running, None) == running
    assert "![" in running and "![" not in book_parts.without_network(running)


# ---- What stops it -----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout with one step."""
    root = tmp_path / "a course"
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    step = root / "stage1_vector" / "01_sum"
    step.mkdir(parents=True)
    (step / "sum.cpp").touch()
    (step / "README.md").write_text("# 1.1 sum\n\n## A place\n\nSee [the program](sum.cpp).\n")
    (root / "README.md").write_text("# A course\n\n[1.1](stage1_vector/01_sum/) "
                                    "[there](stage1_vector/01_sum/README.md#a-place)\n")
    return root


@pytest.mark.parametrize("more, words", [
    ("[gone](docs/gone.md)", "docs/gone.md"), ("[gone](scripts/gone.py)", "scripts/gone.py"),
    ("[no place](stage1_vector/01_sum/README.md#nowhere)", "nowhere"), ('<img src="gone.svg">', "gone.svg")])
def test_what_leads_nowhere_stops_it(small: Path, tmp_path: Path, more: str, words: str):
    with (small / "README.md").open("a") as file:
        file.write(f"\n{more}\n")
    done = made(small, tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert words in done.stdout + done.stderr
    assert not (tmp_path / "book").exists()


def test_a_book_replaces_a_book_and_nothing_else(small: Path, tmp_path: Path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "letter").touch()
    done = made(small, tmp_path, "--out", kept)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("kept is there already and is no book: name another folder\n")
    (kept / "letter").unlink()
    for _ in range(2):
        done = made(small, tmp_path, "--out", kept)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"kept/index\.html: \d+ pages, open it in a browser\n$", done.stdout)
        assert not (kept / "old.html").exists()
        (kept / "old.html").touch()
    assert not (kept / "404.html").exists() and broken_links(kept) == []
    assert (kept / "stage1_vector" / "01_sum" / "sum.cpp.html").is_file()
