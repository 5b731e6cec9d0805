"""The book of `scripts/course book`: what MkDocs makes a site of, written from what the repository has.

A page of the book stands where its document stands in the repository, so links between documents, and their
pictures, lead where they do there. A link to a source file leads to a page of the book that shows the file,
and one to a folder without a README to the list of its files. On top of its README, the page of a step has
its versions as diffs from neighbour to neighbour, its exercises with their hints, and a tab for each device
that was measured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import tables

from . import book_parts, documents, steps
from .errors import FAILED, CourseError
from .steps import Step
from .terminal import visible

THEME = Path(__file__).with_name("book_theme")
PICTURES = (".svg", ".png")
# Of docs/, what is looked up most often comes first; the others follow in the order of their names.
FIRST_DOCUMENTS = ("glossary.md", "running.md", "results.md")
STAGES = {"infra": "infrastructure", "ml_ops": "operations of ML", "cnn": "convolutional networks"}
REPOSITORY = re.compile(r"(?:https://|git@|ssh://git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?")

# A link or a picture of Markdown, with what is no link but looks like one: a span of code.
LINK = re.compile(r"(?P<code>(`+)(?:(?!\n\n).)+?(?<!`)\2(?!`))|(?<=\])\((?P<target>[^()\s]+)\)|"
                  r'<img src="(?P<picture>[^"]+)"', re.DOTALL)
FENCE = re.compile(r"^ {0,3}(?P<fence>```+|~~~+)[^\n]*\n.*?^ {0,3}(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)


@dataclass
class Book:
    """The pages that were found to be needed, by their path from the root of the repository."""

    root: Path
    pages: dict[str, str] = field(default_factory=dict)
    pictures: set[str] = field(default_factory=set)
    waiting: deque[str] = field(default_factory=deque)

    def want(self, path: Path) -> str | None:
        """The page that shows a file or a folder; None where there is none. It is written later."""
        if not path.is_relative_to(self.root) or not path.exists():
            return None
        name = path.relative_to(self.root).as_posix()
        if path.is_dir():
            name = f"{name}/" if path != self.root else ""
            page = f"{name}README.md" if (path / "README.md").is_file() else f"{name}index.md"
        else:
            page = name if path.suffix == ".md" else f"{name}.md"
        if page not in self.pages:
            self.pages[page] = ""
            self.waiting.append(page)
        return page

    def linked(self, text: str, page: str) -> str:
        """The document with its links leading to pages of the book. What leads nowhere stays, and MkDocs
        refuses it. Raises CourseError(FAILED) for a picture that is not there."""
        folder = (self.root / page).parent

        def place(target: str) -> Path:
            return Path(os.path.normpath(folder / target))

        def one(match: re.Match) -> str:
            if match["picture"]:
                self.picture(place(match["picture"]), page)
                return match[0]
            if not match["target"] or ELSEWHERE.match(match["target"]):
                return match[0]
            target, mark, anchor = match["target"].partition("#")
            path = place(target)
            if path.suffix in PICTURES:
                self.picture(path, page)
                return match[0]
            wanted = self.want(path)
            if wanted is None:
                return match[0]
            return f"({os.path.relpath(self.root / wanted, folder)}{mark}{anchor})"

        parts, at = [], 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(one, text[at:fence.start()]), fence[0]]
            at = fence.end()
        return "".join([*parts, LINK.sub(one, text[at:])])

    def picture(self, path: Path, page: str) -> None:
        if not path.is_file() or not path.is_relative_to(self.root):
            raise CourseError(f"{page} shows {os.path.relpath(path, self.root)}, which is not there", FAILED)
        self.pictures.add(path.relative_to(self.root).as_posix())


def stage_title(folder: Path) -> str:
    number, _, name = folder.name.removeprefix("stage").partition("_")
    return f"Stage {number}: {STAGES.get(name, name.replace('_', ' '))}"


def repository_of(remote: str | None) -> str | None:
    """OWNER/NAME of an address of GitHub, in any of the ways that git takes one."""
    match = REPOSITORY.fullmatch((remote or "").strip())
    return match[1] if match else None


def prepare(root: Path, folder: Path, site: Path, url: str = "", repository: str | None = None) -> Path:
    """Writes all that MkDocs needs into `folder`, which is emptied first, and returns its configuration.

    The site will be made in `site`; `url` is where it will be published, if anywhere, and `repository` the
    OWNER/NAME on GitHub, where that is known. Raises CourseError(FAILED) where the repository's files don't
    agree with each other.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    found = steps.discover(root)
    by_page = {f"{step.folder.relative_to(root).as_posix()}/README.md": step for step in found}
    book = Book(root)
    try:
        reports = tables.load_results(root / "results")
    except ValueError as error:
        raise CourseError(str(error), FAILED) from None
    navigation = _navigation(book, found)
    while book.waiting:
        page = book.waiting.popleft()
        text = _text_of(book, page)
        if page in by_page:
            text = book_parts.step_page(by_page[page], text)
        if _is_document(root, page):
            text = book_parts.with_devices(text, reports, os.path.relpath(root, (root / page).parent))
            text = book_parts.without_network(text)
        if _is_document(root, page) or page.endswith(".ipynb.md"):
            text = book_parts.with_repository(text, repository)
        book.pages[page] = book.linked(text, page)
    for page, text in book.pages.items():
        _write(pages / page, text)
    for picture in book.pictures:
        (pages / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / picture, pages / picture)
    _write(pages / "assets" / "book.css", (THEME / "book.css").read_text(encoding="utf-8") + book_parts.STYLE)
    shutil.copyfile(THEME / "iframe-worker.js", pages / "assets" / "iframe-worker.js")
    own = {"INHERIT": str(THEME / "mkdocs.yml"), "docs_dir": str(pages), "site_dir": str(site), "nav": navigation}
    if url:
        own["site_url"] = url
    if repository:
        address = f"https://github.com/{repository}"
        own["copyright"] = f'The course, to run it: <a href="{address}">{address}</a>'
    configuration = folder / "mkdocs.yml"
    _write(configuration, json.dumps(own, indent=1))  # JSON is YAML
    return configuration


def _navigation(book: Book, found: list[Step]) -> list:
    """The pages that the book begins with, as MkDocs takes them."""
    root = book.root
    navigation: list = [{"Start": book.want(root / "README.md")}]
    stages: dict[Path, list] = {}
    for step in found:
        page = book.want(step.folder / "README.md")
        if page is None:
            raise CourseError(f"{step.number} {step.name} has no README.md", FAILED)
        stages.setdefault(step.folder.parent, []).append({f"{step.number} {step.name}": page})
    navigation += [{stage_title(folder): pages} for folder, pages in stages.items()]
    more = sorted((root / "docs").glob("*.md"),
                  key=lambda path: (*(path.name != first for first in FIRST_DOCUMENTS), path.name))
    more += [*sorted((root / "notebooks").glob("*.ipynb")), root / "CONTRIBUTING.md"]
    reference = [book.want(path) for path in more if path.is_file()]
    return [*navigation, {"Reference": reference}] if reference else navigation


def _is_document(root: Path, page: str) -> bool:
    return (root / page).is_file()


def _text_of(book: Book, page: str) -> str:
    """A document as it is, or the page that shows a source file or the files of a folder."""
    try:
        if _is_document(book.root, page):
            return documents.read_text(book.root / page)
        if page.endswith("/index.md"):
            folder = (book.root / page).parent
            return book_parts.folder_page(folder.relative_to(book.root), [
                path.name for path in sorted(folder.iterdir()) if path.is_file()])
        path = book.root / page.removesuffix(".md")
        text = documents.read_text(path)
        if path.suffix == ".ipynb":
            return book_parts.notebook_page(json.loads(text))
        return book_parts.source_page(path.relative_to(book.root), visible_text(text))
    except ValueError as error:
        raise CourseError(str(error), FAILED) from None


def visible_text(text: str) -> str:
    return "\n".join(visible(line.replace("\t", "    ")) for line in text.splitlines()) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
