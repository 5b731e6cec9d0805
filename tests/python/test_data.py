"""scripts/data.py, against a server of its own: nothing here leaves this machine."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import data
import pytest
from conftest import ROOT

CONTENTS = bytes(range(256)) * 500
TEXT = b"First Citizen:\n" * 1000
GOOD = {"/good/images.gz": gzip.compress(CONTENTS, mtime=0), "/good/text.txt": TEXT}
ANSWERS = {
    **GOOD,
    "/other_level/images.gz": gzip.compress(CONTENTS, compresslevel=1, mtime=0),
    "/truncated/images.gz": GOOD["/good/images.gz"][:-9],
    "/truncated/text.txt": TEXT[:-1],
    "/damaged/images.gz": gzip.compress(CONTENTS[:-1] + b"\0"),
    "/damaged/text.txt": b"f" + TEXT[1:],
    "/page/images.gz": b"<html>Please sign in</html>",
    "/empty/images.gz": b"",
    "/empty/text.txt": b"",
    "/long/images.gz": gzip.compress(CONTENTS + b"\0"),
    "/endless/text.txt": TEXT * 2,
    "/trailing/images.gz": GOOD["/good/images.gz"] + b"trailing",
}


class Server(ThreadingHTTPServer):
    """Answers from ANSWERS, else 404; /broken_off/ ends before the length that it has promised, and
    /silent/ sends nothing until the test is over."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 (the base class chose the name)
        self.server.asked.append(self.path)
        if self.path.startswith("/silent/"):
            self.server.over.wait()
            return
        broken_off = self.path.startswith("/broken_off/")
        body = ANSWERS.get(self.path.replace("/broken_off/", "/good/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if broken_off else body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def image_file(*urls: str) -> data.DataFile:
    return data.DataFile("images/images.gz", len(CONTENTS), hashlib.sha256(CONTENTS).hexdigest(),
                         urls)


def text_file(*urls: str) -> data.DataFile:
    return data.DataFile("text.txt", len(TEXT), hashlib.sha256(TEXT).hexdigest(), urls)


@pytest.fixture
def offer(server: Server, monkeypatch: pytest.MonkeyPatch):
    """offer(image mirrors, text mirrors) makes these the data sets of the course."""

    def offer(images: list[str], texts: list[str]) -> None:
        urls = [server.url(f"/{mirror}/images.gz") for mirror in images]
        more = [server.url(f"/{mirror}/text.txt") for mirror in texts]
        monkeypatch.setattr(data, "DATA_SETS", (
            data.DataSet("images", "many bytes", (image_file(*urls),)),
            data.DataSet("text", "one line", (text_file(*more),)),
        ))

    return offer


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_all_data_sets_are_downloaded_once(folder: Path, server: Server, offer, capsys):
    offer(["good"], ["good"])
    assert data.main([]) == 0
    assert files_below(folder) == ["images/images.gz", "text.txt"]
    assert gzip.decompress((folder / "images" / "images.gz").read_bytes()) == CONTENTS
    assert (folder / "text.txt").read_bytes() == TEXT
    output = capsys.readouterr()
    assert f"text.txt  0.0 MB from 127.0.0.1:{server.server_port}" in output.out
    assert "\r" not in output.out and output.err == ""

    server.asked.clear()
    assert data.main([]) == 0
    assert server.asked == []
    assert capsys.readouterr().out == "images/images.gz  is there\ntext.txt  is there\n"


def test_one_data_set(folder: Path, server: Server, offer):
    offer(["good"], ["good"])
    assert data.main(["text", "text"]) == 0
    assert server.asked == ["/good/text.txt"]
    assert files_below(folder) == ["text.txt"]


def test_what_is_missing_is_brought_and_what_is_damaged_replaced(folder: Path, server, offer):
    offer(["good"], ["good"])
    assert data.main([]) == 0
    (folder / "text.txt").write_bytes(TEXT[:-1])
    (folder / "images" / "images.gz").unlink()
    assert data.main([]) == 0
    assert (folder / "text.txt").read_bytes() == TEXT
    assert data.main(["--check"]) == 0


def test_another_compression_of_the_same_contents_is_right(folder: Path, server, offer):
    offer(["other_level"], ["good"])
    assert data.main([]) == 0
    assert data.main(["--check"]) == 0


@pytest.mark.parametrize("images, reason", [
    ("absent", "HTTP 404"),
    ("truncated", "what it sends is truncated"),
    ("broken_off", "what it sends is truncated"),
    ("empty", "what it sends is truncated"),
    ("damaged", "what it sends is damaged: its SHA-256 is another one"),
    ("page", "what it sends is not a gzip file, or a damaged one"),
    ("trailing", "what it sends is not a gzip file, or a damaged one"),
    ("long", "what it sends is too long"),
])
def test_the_next_mirror_is_tried(folder: Path, offer, capsys, images: str, reason: str):
    offer([images, "good"], ["good"])
    assert data.main(["images"]) == 0
    assert f": {reason}\n" in capsys.readouterr().out
    assert files_below(folder) == ["images/images.gz"]
    assert data.main(["images", "--check"]) == 0


@pytest.mark.parametrize("text, reason", [
    ("truncated", "what it sends is truncated"),
    ("broken_off", "what it sends is truncated"),
    ("empty", "what it sends is truncated"),
    ("damaged", "what it sends is damaged: its SHA-256 is another one"),
    ("endless", "sends more than the file has"),
])
def test_without_a_good_mirror_nothing_is_left(folder: Path, offer, capsys, text: str, reason: str):
    offer(["good"], ["absent", text])
    assert data.main(["text"]) == 3
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert f"data: {folder}/text.txt is missing, and no mirror has it: " in errors
    assert "HTTP 404; " in errors and errors.endswith(f": {reason}\n")
    assert files_below(folder) == []


def test_a_mirror_that_says_nothing_is_left(folder: Path, offer, capsys,
                                            monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "STALL_S", 0.2)
    offer(["good"], ["silent", "good"])
    assert data.main(["text"]) == 0
    assert "timed out\n" in capsys.readouterr().out


def test_a_mirror_that_takes_too_long_is_left(folder: Path, offer, capsys,
                                              monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "TOTAL_S", -1)
    offer(["good"], ["good"])
    assert data.main(["text"]) == 3
    assert "took more than -1 s" in capsys.readouterr().err


def test_a_mirror_that_is_not_there_is_left(folder: Path, server: Server, capsys,
                                            monkeypatch: pytest.MonkeyPatch):
    with Server() as dead:  # a port that nobody listens to any more
        nowhere = dead.url("/good/text.txt")
    urls = (nowhere, "http://no-such-host.invalid/text.txt", server.url("/good/text.txt"))
    monkeypatch.setattr(data, "DATA_SETS", (data.DataSet("text", "", (text_file(*urls),)),))
    assert data.main([]) == 0
    output = capsys.readouterr().out.splitlines()
    assert len(output) == 3
    assert output[0].endswith("Connection refused")


def test_a_full_disk_is_no_fault_of_the_mirror(folder: Path, server: Server, offer, capsys,
                                               monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    offer(["good"], ["good", "good"])
    assert data.main(["text"]) == 3
    assert capsys.readouterr().err == f"data: {folder}: No space left on device\n"
    assert server.asked == ["/good/text.txt"]
    assert files_below(folder) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path, server: Server, offer, capsys,
                                      monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "file"))
    offer(["good"], ["good"])
    assert data.main([]) == 3
    errors = capsys.readouterr().err
    assert errors == f"data: {tmp_path}/file/images/images.gz: Not a directory\n"
    assert server.asked == []


def test_ctrl_c_leaves_no_half_file(folder: Path, offer, capsys, monkeypatch: pytest.MonkeyPatch):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    offer(["good"], ["good"])
    assert data.main(["text"]) == 130
    assert capsys.readouterr().err == "data: interrupted; what is complete stays\n"
    assert files_below(folder) == []


def test_check_names_what_is_wrong_and_downloads_nothing(folder: Path, server: Server, offer,
                                                         capsys):
    offer(["good"], ["good"])
    assert data.main(["--check"]) == 1
    assert capsys.readouterr().out == "images/images.gz  missing\ntext.txt  missing\n"
    assert server.asked == []
    assert data.main([]) == 0
    (folder / "text.txt").write_bytes(b"f" + TEXT[1:])
    capsys.readouterr()
    assert data.main(["--check"]) == 1
    assert capsys.readouterr().out == (
        "images/images.gz  ok\ntext.txt  damaged: its SHA-256 is another one\n")


def test_list_and_unknown_names(folder: Path, capsys):
    assert data.main(["--list"]) == 0
    output = capsys.readouterr().out
    for data_set in data.DATA_SETS:
        assert data_set.name in output
        for file in data_set.files:
            assert file.path in output and all(url in output for url in file.urls)
    assert data.main(["cifar"]) == 2
    assert capsys.readouterr().err == (
        "data: there is no data set 'cifar'; there are mnist, tiny_shakespeare\n")
    assert not folder.exists()


def test_every_file_has_several_mirrors_and_its_place():
    files = [file for data_set in data.DATA_SETS for file in data_set.files]
    assert [file.path for file in files] == [
        *(f"mnist/{part}-ubyte.gz" for part in (
            "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")),
        "tiny_shakespeare.txt",
    ]
    for file in files:
        assert len(set(file.urls)) >= 2 and all(url.startswith("https://") for url in file.urls)


def test_the_folder_is_data_where_nothing_else_is_said(tmp_path: Path):
    environment = {key: value for key, value in os.environ.items() if key != "COURSE_DATA"}
    script = [sys.executable, str(ROOT / "scripts" / "data.py"), "--check", "tiny_shakespeare"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tiny_shakespeare.txt").write_bytes(b"")
    result = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True,
                            check=False)
    assert (result.returncode, result.stdout) == (1, "tiny_shakespeare.txt  truncated\n")


@pytest.mark.skipif("COURSE_DATA" not in os.environ, reason="needs the data sets")
def test_the_real_files_are_right():
    assert data.check_sets(data.DATA_SETS, Path(os.environ["COURSE_DATA"])) == 0
