"""The process that `course bench` keeps for a peer: it answers, ends, or is ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from course_lib import process

# Answers a line by itself. "sleep" hangs, and "sleep well" hangs whatever it is told.
ECHO = """
import signal, sys, time
print("begun", file=sys.stderr, flush=True)
for line in sys.stdin:
    if line == "end\\n":
        sys.exit(3)
    if line == "sleep well\\n":
        signal.signal(signal.SIGABRT, signal.SIG_IGN)
    if line.startswith("sleep"):
        time.sleep(60)
    print(line, end="", flush=True)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.Server, "LAST_WORDS", 0.5)
    server = process.Server([sys.executable, "-c", ECHO], tmp_path / "log")
    yield server
    server.stop()


def test_it_answers_and_is_started_again_after_its_end(server: process.Server):
    assert server.ask("one", 20) == "one\n" and server.ask("two", 20) == "two\n"
    with pytest.raises(process.Ended) as ended:
        server.ask("end", 20)
    assert (ended.value.code, ended.value.line) == (3, "begun")
    assert server.ask("three", 20) == "three\n"
    assert server.log.read_text() == "begun\nbegun\n"


@pytest.mark.parametrize(("request_", "code"), [("sleep", -6), ("sleep well", -9)])
def test_what_does_not_answer_in_time_is_ended(server: process.Server, request_: str, code: int):
    assert server.ask("one", 20) == "one\n"
    with pytest.raises(process.TookTooLong, match="^no answer in 0.01 minutes$") as ended:
        server.ask(request_, 0.6)
    assert ended.value.code == code
    assert server.ask("two", 20) == "two\n"
