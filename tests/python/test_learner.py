"""The learner's loop as a whole: `check` and `watch` with stand-ins for the compiler and the program,
`watch` in a terminal; and what compute-sanitizer says, put into a line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from conftest import ROOT, Machine
from course_lib import check, exercises, process, sanitizer
from course_lib.check import Run

VERSION = """// naive: one more.
// exercise: one more than a (about 1 line)
int one_more(int a) { return a + 1; }
// end exercise
"""
TOML = """shapes = ["1", "257"]
[[exercise]]
name = "one_more"
file = "versions/naive.hip"
versions = ["naive"]
hints = ["look at a", "add one", "return a + 1"]
"""
# `compile` keeps the text of a version as its object file, `link` makes a program that is right where the
# learner's, which comes before the library, is.
COMPILE = """
import sys
words = sys.argv[1:]
text = open(words[-1]).read()
if "typo" in text:
    sys.exit(f"{words[-1]}:3: error: typo")
open(words[words.index("-o") + 1], "w").write(text)
"""
LINK = """
import os, sys
words = sys.argv[1:]
text = "".join(open(word).read() for word in words if word.endswith("object.o"))
right = "return a + 1" in text
on_gpu = right and "wrong on the GPU" not in text
program = words[words.index("-o") + 1]
open(program, "w").write(f'''#!{sys.executable}
import json, os, sys
if "-r" in sys.argv:  # the step's tests
    open(sys.argv[sys.argv.index("-o") + 1], "w").write("<Catch2TestRun></Catch2TestRun>")
if "--json" not in sys.argv:  # they, or the run under ThreadSanitizer
    sys.exit(0)
report = json.load(open(os.environ["FAKES"] + "/report.json"))
right = {right} if "--wave" in sys.argv else {on_gpu}
if not right:
    for row in report["tables"][0]["rows"]:
        row.update(status="FAIL", failed=3, index=2)
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(report))
sys.exit(int(not right))
''')
os.chmod(program, 0o755)
"""


@pytest.fixture
def learner(machine: Machine) -> Machine:
    """A machine whose step 1.1 has an exercise, and whose build of it can be asked for commands."""
    folder = machine.root / "stage1_vector" / "01_vector_add"
    (folder / "versions").mkdir()
    (folder / "versions" / "naive.hip").write_text(VERSION)
    (folder / "exercise.toml").write_text(TOML)
    for name, text in (("compile", COMPILE), ("link", LINK)):
        (machine.fakes / f"{name}.py").write_text(text)
        machine.fake(name, f'exec "{sys.executable}" "{machine.fakes}/{name}.py" "$@"')
    (machine.fakes / "nice").symlink_to(shutil.which("nice"))
    machine.fake("ninja", f"""case "$*" in *commands*_test) test=_test ;; *commands*) ;; *) exit ;; esac
echo "compile -I'{machine.root}' -o version.o -c '{folder}/versions/naive.hip'"
echo "link main.o -o stage1_vector/vector_add$test libstep_vector_add.a" """)
    built = 'touch "$2/main.o" "$2/version.o" "$2/libstep_vector_add.a"\n           for step in'
    machine.fake("cmake", machine.CMAKE.replace("for step in", built))
    # The program of the build itself: what the learner's speed is compared with.
    program = machine.PROGRAM.replace("$2", "$to")
    machine.fake("program", 'while [ $# -gt 0 ]; do [ "$1" = --json ] && to="$2"; shift; done' + program)
    return machine


def version_of(machine: Machine) -> Path:
    return machine.root / "workspace" / "stage1_vector" / "01_vector_add" / "versions" / "naive.hip"


# ---- check -------------------------------------------------------------------------------------


def test_check_says_build_correctness_safety_and_time(learner: Machine):
    assert learner.course("start", "1.1").returncode == 0
    done = learner.course("check")
    assert done.returncode == 1 and "nothing is written yet: one_more\n" in done.stdout, (
        done.stdout + done.stderr)
    assert "hint: scripts/course hint 1.1 one_more" in done.stdout and "build  " not in done.stdout
    version_of(learner).write_text(VERSION.replace("a + 1", "a"))
    done = learner.course("check")
    assert done.returncode == 1 and "correctness  FAILED   8 of 8 runs" in done.stdout, (
        done.stdout + done.stderr)
    assert "failing shapes: 1, 257   (every shape fails)" in done.stdout
    assert "  wrong: one_more\n" in done.stdout and "still empty" not in done.stdout
    assert not re.search("^(time|speed) ", done.stdout, re.MULTILINE)
    version_of(learner).write_text("typo")
    done = learner.course("check", "1.1")
    assert done.returncode == 1 and "build        failed" in done.stdout
    assert "workspace/stage1_vector/01_vector_add/versions/naive.hip:3: error: typo" in done.stdout
    version_of(learner).write_text(VERSION)
    done = learner.course("check", "1.1")
    assert done.returncode == 0, done.stdout + done.stderr
    words = re.findall(r"^(build|correctness|safety) +(\w+)", done.stdout, re.MULTILINE)
    assert words == [("build", "ok"), ("correctness", "ok"), ("safety", "ok")]
    # The CPU backend gives a plain time, and no medal.
    assert "\ntime  " in done.stdout and "speed" not in done.stdout


def test_a_check_says_why_it_takes_which_backend(learner: Machine):
    learner.course("start", "1.1")
    assert "backend cpu: a check begins on the CPU backend\n" in learner.course("check").stdout
    assert "backend cpu: asked for with --backend cpu\n" in learner.course("check", "--backend", "cpu").stdout
    learner.fake("nvidia-smi", 'echo "GPU 0: Example GPU (UUID: GPU-1)"')
    learner.fake("nvcc", "")
    done = learner.course("check")
    assert "backend cuda: Example GPU and nvcc" in done.stdout and "asked for" not in done.stdout, done.stdout


def test_a_check_need_not_set_anything_up(learner: Machine):
    learner.course("start", "1.1")
    learner.remove("dpkg-query", "apt-get", "sudo")
    version_of(learner).write_text(VERSION)
    done = learner.course("check", "--no-setup")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apt" not in done.stdout + done.stderr


SANITIZER = """
echo "========= Invalid __global__ read of size 4 bytes"
echo "=========     at add(float *)+0x70 in naive.hip:3"
echo "=========     by thread (1,0,0) in block (3,0,0)"
"""


def test_what_is_right_on_the_cpu_is_run_on_the_gpu_too(learner: Machine):
    learner.fake("nvidia-smi", 'echo "GPU 0: Example GPU (UUID: GPU-1)"')
    learner.fake("nvcc", "")
    learner.fake("compute-sanitizer", SANITIZER)
    learner.course("start", "1.1")
    version_of(learner).write_text(VERSION + "// wrong on the GPU")
    done = learner.course("check")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "right on the CPU backend, wrong with cuda" in done.stdout
    assert "failing shapes: 1, 257" in done.stdout and "speed" not in done.stdout
    assert ("kernel add: thread (1,0,0) of block (3,0,0) reads 4 bytes at naive.hip:3, outside of a "
            "global buffer") in done.stdout
    assert "in progress" in learner.course("list").stdout
    version_of(learner).write_text(VERSION)
    done = learner.course("check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on the GPU   ok   2 shapes" in done.stdout and done.stdout.count("speed   ") == 1


def test_after_a_run_that_hangs_none_is_begun(tmp_path, monkeypatch):
    begun = []

    def run_one(*arguments, **_) -> Run:
        begun.append(arguments[3])
        return Run(arguments[3], arguments[4], (), "timeout" if arguments[3] == "2" else "")

    monkeypatch.setattr(check, "run_one", run_one)
    course = exercises.Course(None, ("1", "2", "3", "4"), (), ())
    runs = check.run_all(tmp_path / "program", course, [], True, {})
    assert begun == ["1", "2"] == [run.shape for run in runs]


def test_a_built_tree_is_not_configured_again(learner: Machine):
    learner.course("start", "1.1")
    for _ in range(2):
        learner.course("check")
    assert len([call for call in learner.calls() if call.startswith("cmake --preset")]) == 1


def test_what_takes_too_long_is_ended_with_its_children(tmp_path):
    begun = time.monotonic()
    code, *_ = process.limited(["sh", "-c", "sleep 50 & sleep 50; true"], 0.3)
    assert code is None and time.monotonic() - begun < 5


def test_list_is_quick():
    begun = time.monotonic()
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "course"), "list"], check=True,
                          stdout=subprocess.PIPE, text=True)
    # 0.2 s on an idle machine: the bound leaves room for a busy one.
    assert time.monotonic() - begun < 3 and "vector_add" in done.stdout


# ---- watch, in a terminal ----------------------------------------------------------------------


class Terminal:
    """`course watch 1.1` in a pseudo-terminal."""

    def __init__(self, machine: Machine, **variables: str):
        self.ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.text = ""
        self.process = subprocess.Popen(
            machine.command("watch", "1.1"), env={**machine.environment(), "TERM": "xterm", **variables},
            cwd=machine.root, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))

    def until(self, words: str, seconds: float = 30) -> str:
        """What is printed up to these words; the rest is kept."""
        end = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < end, f"no '{words}' in:\n{self.text}"
            if select.select([self.ours], [], [], 0.2)[0]:
                self.text += os.read(self.ours, 65536).decode(errors="replace")
        before, _, self.text = self.text.partition(words)
        return before + words

    def press(self, key: str) -> None:
        os.write(self.ours, key.encode())

    def end(self) -> int:
        code = self.process.wait(timeout=30)
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal is left as it was changed"
        os.close(self.ours)
        os.close(self.theirs)
        return code


def test_watch(learner: Machine):
    terminal = Terminal(learner)
    first = terminal.until("watching workspace (inotify)")
    assert "fill in" in first and "nothing is written yet" in first  # begun, and checked
    assert "\x1b[31m" in first
    assert "h hint   n next   s solution   r reset   q quit" in terminal.until("q quit")
    version_of(learner).write_text(VERSION)
    passed = terminal.until("q quit")
    assert "correctness  ok" in passed and "safety       ok" in passed
    version_of(learner).write_text(VERSION.replace("a + 1", "a - 1"))
    assert "correctness  FAILED" in terminal.until("q quit")
    terminal.press("h")
    assert "look at a" in terminal.until("1. look at a")
    terminal.press("s")
    terminal.until("return a + 1")  # it has passed before: the difference is shown
    terminal.press("r")
    assert "kept: " in terminal.until("q quit")
    assert "return" not in version_of(learner).read_text()
    assert [path for path in version_of(learner).parent.glob("*.old") if "a - 1" in path.read_text()]
    terminal.press("n")
    terminal.until("this one first")
    terminal.press("q")
    assert terminal.end() == 0


def test_watch_without_inotify_and_colour(learner: Machine, tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import ctypes\ndef refuse(*_, **__):\n    raise OSError\nctypes.CDLL = refuse\n")
    terminal = Terminal(learner, NO_COLOR="1", PYTHONPATH=str(tmp_path / "site"))
    text = terminal.until("watching workspace (a look every 0.5 s)")
    terminal.press("s")
    text += terminal.until("--give-up")
    version_of(learner).write_text(VERSION)
    text += terminal.until("correctness  ok")
    text += terminal.until("q quit")
    assert not re.search("\x1b\\[[0-9;]*m", text)
    terminal.press("\x03")  # Ctrl-C
    assert terminal.end() == 0


# ---- compute-sanitizer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [("""========= Invalid __global__ read of size 4 bytes
=========     at vector_add::add_naive(float *, const float *, unsigned long)+0x70 in add.h:42
=========     by thread (1,0,0) in block (3,0,0)
=========     Address 0x7f3c95a00404 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3c95a00000 of size 1,028 bytes
""", ["kernel add_naive: thread (1,0,0) of block (3,0,0) reads 4 bytes at add.h:42, outside of a global "
      "buffer, 1 bytes after the nearest"]),
     ("""========= Error: Race reported between Write access at void dot_tree<(int)4>(float *)+0x70 in dot.h:130
=========     and Read access at void dot_tree<(int)4>(float *)+0xd0 in dot.h:133 [508 hazards]
""", ["data race in shared memory: kernel dot_tree: one thread writes at dot.h:130 what another reads at "
      "dot.h:133, and nothing says who comes first"]),
     ("========= ERROR SUMMARY: 0 errors\n", [])])
def test_compute_sanitizer_in_a_line(text, words):
    assert sanitizer.parse(text) == words


@pytest.mark.parametrize(("fault", "words"), [
    ("outside", "hipDeviceSynchronize: an illegal memory access was encountered"),
    ("outside", "Memory access fault by GPU node-1 on address 0x7f. Reason: Page not present"),
    ("early", "thread (0,0,0) at multiply_64x256() ring.hip:70: reads a tile that has not arrived yet"),
    ("early", "thread (128,0,0) at load_box() ring.hip:44: overwrites a tile that a product reads"),
    ("fence", "thread (0,0,0) at load_box() ring.hip:44: overwrites what threads have changed, without "
              "fence_for_tma() behind it"),
    ("deadlock", "thread (128,0,0) waits at PhaseBarrier::wait() ring.hip:63 for phase 1 of barrier 0 in the order "
                 "of init(), which has 0 of 1 arrivals and misses 0 bytes, and no other thread can go on"),
    ("barrier", "thread (0,0,0) waits at __syncthreads() tree.hip:9 while thread (1,0,0) waits at __syncthreads() "
                "tree.hip:12: all threads of a block must reach the same barrier")])
def test_what_a_device_says_is_known(fault, words):
    assert check.last_words(words) == (fault, words)
