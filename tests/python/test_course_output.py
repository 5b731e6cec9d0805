"""scripts/course: what is printed, where, and what cannot be."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import time

import pytest
from conftest import Machine
from course_lib import terminal


def test_list(machine: Machine):
    entries = json.loads(machine.course("list", "--json").stdout)
    assert [(e["step"], e["state"]) for e in entries] == [
        ("0.1", "no exercise"), ("1.1", "no exercise"), ("1.2", "no exercise"), ("2.3", "planned")]
    assert entries[1] == {
        "step": "1.1", "program": "vector_add", "lesson": "adding vectors",
        "path": "stage1_vector/01_vector_add", "state": "no exercise", "ms": None, "of_limit": None,
        "of_vendor": None, "medal": None, "device": None}
    text = machine.course("list").stdout
    assert "2.3   gemm        multiplying matrices          planned" in text


def test_list_shows_what_was_reached_on_this_machine(machine: Machine):
    folder = machine.root / "stage1_vector" / "01_vector_add"
    (folder / "versions").mkdir()
    (folder / "versions" / "naive.hip").write_text(
        "// exercise: add (about 1 line)\nint a;\n// end exercise\n")
    (folder / "exercise.toml").write_text(
        '[[exercise]]\nname = "add"\nfile = "versions/naive.hip"\nhints = ["a", "b", "c"]\n')
    best = {"ms": 2.0, "of_limit": 0.5, "of_vendor": None, "medal": "gold"}
    (machine.root / "workspace").mkdir()
    (machine.root / "workspace" / "progress.json").write_text(json.dumps(
        {"schema": 1, "steps": {"1.1": {"state": "passed", "devices": {
            "cpu: this": best, "cuda: another": {**best, "ms": 0.1}}}}}))
    entry = json.loads(machine.course("list", "--json").stdout)[1]
    assert (entry["state"], entry["ms"], entry["device"]) == ("passed", 2.0, "cpu: this")
    assert entry["medal"] is None  # of an older check: the CPU backend has given none since
    text = machine.course("list").stdout
    assert "passed" in text and "2.00 ms" in text and "gold" not in text
    entry = json.loads(machine.course("list", "--json", "--backend", "cuda").stdout)[1]
    assert (entry["ms"], entry["medal"]) == (0.1, "gold")


def test_doctor(machine: Machine):
    done = machine.course("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is missing" in done.stdout
    machine.installed("cmake")
    done = machine.course("doctor")
    assert done.returncode == 3
    assert "sudo apt-get install ninja-build libboost-context-dev" in done.stdout
    assert not [call for call in machine.calls() if call.startswith("apt-get")]  # it only looks


def in_terminal(machine: Machine, columns: int, *arguments: str) -> str:
    """What a command prints into a terminal of this width."""
    try:
        main_end, terminal_end = pty.openpty()
    except OSError as error:  # a bare container may have no /dev/pts
        pytest.skip(f"no terminal to be had: {error}")
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**machine.environment(), "TERM": "xterm"}
    with subprocess.Popen(
        machine.command(*arguments), env=environment, cwd=machine.root, stdin=subprocess.DEVNULL,
        stdout=terminal_end, stderr=terminal_end,
    ) as process:
        os.close(terminal_end)
        text = b""
        while True:
            try:
                chunk = os.read(main_end, 4096)
            except OSError:  # EIO: the other end is closed
                break
            if not chunk:
                break
            text += chunk
    os.close(main_end)
    assert process.returncode == 0, text
    return text.decode()


def test_a_narrow_terminal_and_no_color(machine: Machine):
    wide = in_terminal(machine, 100, "run", "1.1")
    assert "\033[1m" in wide and "\033[K" in wide
    machine.variables["NO_COLOR"] = "1"
    narrow = in_terminal(machine, 60, "run", "1.1")
    assert "\033[1m" not in narrow and "\033[3" not in narrow
    table = narrow[narrow.index("step ") :].splitlines()
    assert all(len(line) <= 60 for line in table)
    assert "vector_add" in table[1] and table[1].endswith("ok")  # what matters most is kept


def test_format_table_keeps_within_the_width():
    columns = [terminal.Column("a"), terminal.Column("text", flexible=True),
               terminal.Column("n", right=True), terminal.Column("more", optional=True)]
    rows = [["1", "a rather long text that may be cut", "12", "optional"]]
    assert terminal.format_table(columns, rows, 1000)[1] == (
        "1  a rather long text that may be cut  12  optional"
    )
    assert terminal.format_table(columns, rows, 30)[1] == "1  a rather lon…  12  optional"
    assert terminal.format_table(columns, rows, 20)[1] == "1  a rather lo…  12"


def test_course_starts_on_a_bare_python(machine: Machine):
    """-S and -E: no site-packages, nothing from the environment."""
    command = machine.command("list")
    bare = [command[0], "-S", "-E", *command[1:]]
    started = time.monotonic()
    done = subprocess.run(bare, env=machine.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["list"], ["list", "--json"]])
def test_what_cannot_be_printed_is_one_line(machine: Machine, words: list[str]):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(machine.command(*words), env=machine.environment(), cwd=machine.root,
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr == "course: the disk is full: free some space and run the same command again\n"


def test_output_may_be_closed(machine: Machine):
    for closed in (">&-", ">&- 2>&-"):
        done = subprocess.run(["/bin/sh", "-c", f'"$@" {closed}', "sh", *machine.command("list")],
                              env=machine.environment(), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [["run", "\x1b[31m"], ["run", "--backend", "\x1b[31m"], ["\x1b[31m"],
                                   ["run", "a\nb\x9b\u202e"], ["bench", "--merge", "\x1b[31m\r"],
                                   ["progress", "--import", "\x1b]0;title\x07"], ["list", "\x1b[31m"]])
def test_arguments_are_shown_in_one_line_and_steer_no_terminal(machine: Machine, words: list[str]):
    done = machine.course(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("course: ")
    assert "\\x" in done.stderr and done.stderr[:-1].isprintable() and done.stderr[-1] == "\n"


def test_texts_of_files_steer_no_terminal(machine: Machine, report: dict):
    report["tables"][0]["rows"][1]["name"] = "naive\x1b[2J\nnext"
    report["tables"][0]["problem"] = "n=1\x9b\u202e"
    path = machine.root / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    done = machine.course("bench", "--compare", str(path), str(path))
    assert done.returncode == 0
    done = machine.course("bench", "--merge", str(path))
    assert done.returncode == 0 and "n=1\\x9b\\u202e" in done.stdout
    assert all(line.isprintable() for line in done.stdout.splitlines())
    report["quick"] = "\x1b[2J"
    path.write_text(json.dumps(report), encoding="utf-8")
    done = machine.course("bench", "--merge", str(path))
    assert done.returncode == 2 and done.stderr[:-1].isprintable() and "'quick' cannot be" in done.stderr


def test_a_folder_in_place_of_a_file_is_one_line(machine: Machine):
    folder = str(machine.root / "scripts")
    for words in (["progress", "--import", folder], ["progress", "--export", folder],
                  ["bench", "--compare", folder, folder], ["bench", "--merge", folder],
                  ["plot", "--no-setup", "--json", folder], ["report", folder]):
        done = machine.course(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (words, done.stderr)
    machine.variables["COURSE_WORKSPACE"] = str(machine.root / "README.md")
    done = machine.course("list")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
