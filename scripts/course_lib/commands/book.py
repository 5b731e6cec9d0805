"""`course book`: a site to read, with a page for every step."""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import re
import shutil
from pathlib import Path

from .. import book, process, terminal
from ..build import build_root
from ..errors import FAILED, OK, USAGE, CourseError
from ..terminal import say
from .setting_up import ROOT, python_with

HELP = "a site with a page for every step, to read and search without a network"
MARK = "assets/book.css"  # in every book that was made, and in no other folder


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="default: build/book")
    parser.add_argument("--url", metavar="URL", default="",
                        help="where it will be published; a page that is not found there is answered in its style")
    parser.add_argument("--serve", action="store_true", help="show it to a browser here, until Ctrl-C")
    parser.add_argument("--port", type=int, default=8000, help="of --serve; default: 8000")
    parser.add_argument("--no-setup", action="store_true", help="install nothing: all that is needed is here")


def command(options: argparse.Namespace) -> int:
    """Makes the book. One that is there already is replaced when the new one is whole."""
    if not 0 <= options.port < 65536:
        raise CourseError(f"--port {options.port}: there are ports from 0 to 65535", USAGE)
    out = (options.out or build_root(ROOT) / "book").absolute()
    if out.exists() and not (out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))):
        raise CourseError(f"{out} is there already and is no book: name another folder", USAGE)
    python = python_with(["material", "mkdocs"], options.no_setup, "book")
    made = out.with_name(f"{out.name}.new")
    sources = build_root(ROOT) / "book-source"
    remote = process.output(["git", "-C", str(ROOT), "remote", "get-url", "origin"])
    configuration = book.prepare(ROOT, sources, made, options.url, book.repository_of(remote))
    _make(python, configuration, made)
    if not options.url:
        (made / "404.html").unlink(missing_ok=True)  # a server's, whose links begin at its root
    shutil.rmtree(out, ignore_errors=True)
    os.replace(made, out)
    pages = sum(1 for _ in out.rglob("*.html"))
    start = out / "index.html"
    say(f"{min(str(start), os.path.relpath(start), key=len)}: {pages} pages, open it in a browser")
    if options.serve:
        _serve(out, options.port)
    return OK


def _make(python: str, configuration: Path, made: Path) -> None:
    """Has MkDocs make the site. A link that leads nowhere is an error."""
    log = build_root(ROOT) / "book.log"
    progress = terminal.Progress("making the book")
    command = [python, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", str(configuration)]
    code, text = process.logged(command, log, progress.update,
                                env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    progress.finish()
    if code != 0:
        shutil.rmtree(made, ignore_errors=True)
        wrong = [line for line in text.splitlines() if re.match(r"(WARNING|ERROR)\b|.*Error: ", line)]
        raise CourseError(f"the book could not be made: see {log}", FAILED, "\n".join(wrong))


def _serve(folder: Path, port: int) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None:
            pass

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port),
                                                 functools.partial(Quiet, directory=str(folder)))
    except OSError as error:
        raise CourseError(f"port {port}: {error.strerror}; --port takes another one", USAGE) from None
    with server:
        say(f"http://127.0.0.1:{server.server_port}/ until Ctrl-C")
        server.serve_forever()
