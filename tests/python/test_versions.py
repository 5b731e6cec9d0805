"""Steps with a file per version: a learner's file is compiled alone and linked before the step's library,
and two versions are shown beside each other."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Machine, built_by
from course_lib import compiling, diffs, exercises, process, steps, symbols
from course_lib.build import Build
from course_lib.errors import CourseError
from course_lib.symbols import Symbols
from course_lib.workspace import Workspace

CONTRACT = """#pragma once
namespace sum {
void launch_naive(float* out, unsigned long n);
void launch_fast(float* out, unsigned long n);
struct V { const char* name; void (*launch)(float*, unsigned long); };
inline constexpr V kVersions[] = {
    {"naive", launch_naive},
    {"fast", launch_fast},
};
}
"""
MAIN = """#include <cstdio>
#include "stage1_vector/01_sum/sum.h"
int main() {
  for (const auto& version : sum::kVersions) {
    float out = 0;
    version.launch(&out, 3);
    std::printf("%s %g\\n", version.name, out);
  }
}
"""
VERSION = """// {name}: one after the other.
#include "common/gpu.h"
#include "stage1_vector/01_sum/sum.h"

namespace sum {{

static float value_{name}(unsigned long n) {{
  // exercise: what n is worth (about 1 line)
  return {value} * n;
  // end exercise
}}

void launch_{name}(float* out, unsigned long n) {{ *out = value_{name}(n); }}

}}  // namespace sum
"""
TOML = """
[[exercise]]
name = "value_naive"
file = "versions/naive.hip"
versions = ["naive"]
blank = "return 0;"
hints = ["one", "two", "three"]

[[exercise]]
name = "value_fast"
file = "versions/fast.hip"
versions = ["fast"]
blank = "return 0;"
hints = ["one", "two", "three"]
"""
FLAGS = "-DNDEBUG -Wall -Wextra -std=c++17"


@pytest.fixture
def step(tmp_path: Path) -> steps.Step:
    folder = tmp_path / "a course" / "stage1_vector" / "01_sum"
    (folder / "versions").mkdir(parents=True)
    (folder.parents[1] / "common").mkdir()
    (folder.parents[1] / "common" / "gpu.h").write_text("#pragma once\n")
    for name, value in (("naive", 1), ("fast", 2)):
        (folder / "versions" / f"{name}.hip").write_text(VERSION.format(name=name, value=value))
    for name, text in (("sum.h", CONTRACT), ("sum.cpp", MAIN), ("exercise.toml", TOML)):
        (folder / name).write_text(text)
    return steps.discover(folder.parents[1])[0]


@pytest.fixture
def build(step: steps.Step, tmp_path: Path, monkeypatch) -> Build:
    """The step, compiled as CMake does it, and a ninja that knows the commands."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None or shutil.which("nm") is None or shutil.which("ar") is None:
        pytest.skip("no C++ compiler here")
    root = step.folder.parents[1]
    made = tmp_path / "build" / "cpu"
    sources = {"CMakeFiles/sum.dir/sum.cpp.o": ("", step.folder / "sum.cpp")}
    for name in ("naive", "fast"):
        sources[f"CMakeFiles/step_sum.dir/versions/{name}.hip.o"] = ("-x c++ ", step.folder / "versions" /
                                                                   f"{name}.hip")
    commands = [f"{compiler} -I'{root}' {language}-O3 {FLAGS} -MD -MT {made_object} -MF {made_object}.d "
                f"-o {made_object} -c '{source}'" for made_object, (language, source) in sources.items()]
    versions = " ".join(list(sources)[1:])
    commands += [f": && ar qc libstep_sum.a {versions} && :",
                 f": && {compiler} -O3 CMakeFiles/sum.dir/sum.cpp.o -o stage1_vector/sum  libstep_sum.a && :"]
    for path in (*sources, "stage1_vector/sum"):
        (made / path).parent.mkdir(parents=True, exist_ok=True)
    return built_by(commands, root, made, tmp_path, monkeypatch)


@pytest.fixture
def compiler(build: Build, step: steps.Step, tmp_path: Path) -> compiling.Compiler:
    return compiling.Compiler(build, exercises.load(step), tmp_path / "check" / "sum")


def text_of(step: steps.Step, name: str) -> str:
    return (step.folder / "versions" / f"{name}.hip").read_text()


# ---- Compiling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
def test_only_the_learners_file_is_compiled_and_it_comes_first(compiler, step, monkeypatch, fast):
    ran = []
    real = process.limited
    monkeypatch.setattr(process, "limited", lambda words, *rest, **more: (
        ran.append(words[-1]), real(words, *rest, **more))[1])
    mine = text_of(step, "naive").replace("return 1", "return 100")
    done = compiler.compile({"versions/naive.hip": mine}, {}, fast=fast)
    assert done.program and not done.refusal, done
    assert process.output([str(done.program)]) == "naive 300\nfast 6\n"
    compiled = [command for command in ran if " -c " in command and "c++-header" not in command]
    assert len(compiled) == 1 and "naive.hip" in compiled[0]
    assert ("-Og" in compiled[0]) == ("-fsanitize=bounds,alignment" in compiled[0]) == fast
    assert "-MD" not in compiled[0]
    ran.clear()
    again = compiler.compile({"versions/naive.hip": mine}, {}, fast=fast)
    assert again.program == done.program and ran == []  # taken from the folder
    # A second file: the first one's object is there already.
    both = {"versions/naive.hip": mine, "versions/fast.hip": text_of(step, "fast").replace("2 *", "7 *")}
    assert process.output([str(compiler.compile(both, {}, fast=fast).program)]) == "naive 300\nfast 21\n"
    assert len([command for command in ran if " -c " in command]) == 1


def test_a_step_may_ask_for_no_optimization_in_its_checks(build, step, tmp_path, monkeypatch):
    declared = step.folder / "exercise.toml"
    declared.write_text("optimized = false\n" + declared.read_text())
    compiler = compiling.Compiler(build, exercises.load(step), tmp_path / "check" / "sum")
    ran = []
    monkeypatch.setattr(process, "limited", lambda words, *rest, **more: (ran.append(words[-1]), (0, "", ""))[1])
    command, made = compiler.command_of("versions/naive.hip")
    plain = compiler.adapted(command, made, "new.o", fast=True)
    assert " -O0 " in plain and "-fsanitize=bounds " in plain and "alignment" not in plain
    assert " -O3 " in compiler.adapted(command, made, "new.o", fast=False)
    # What is precompiled fits only compilations that optimize as much.
    assert {re.search(r"gpu-cpu[^/]*", words)[0] for words in ran} == {"gpu-cpu-O0", "gpu-cpu-timed"}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("void launch_naive(", "void launch_naiv(",
         "naive.hip defines sum::launch_naiv(float*, unsigned long), but the step calls "
         "sum::launch_naive(float*, unsigned long)"),
        ("void launch_naive(float* out, unsigned long n)", "void launch_naive(float* out, int n)",
         "naive.hip defines sum::launch_naive(float*, int), but the step calls "
         "sum::launch_naive(float*, unsigned long)"),
        ("void launch_naive(float* out, unsigned long n) { *out = value_naive(n); }", "",
         "naive.hip does not define sum::launch_naive(float*, unsigned long), which the step calls"),
        ("void launch_naive(", "void launch_fast(",
         "naive.hip defines sum::launch_fast(float*, unsigned long), but the step calls "
         "sum::launch_naive(float*, unsigned long)"),
        ("}  // namespace sum", "void launch_fast(float*, unsigned long) {}\n}",
         "naive.hip defines sum::launch_fast(float*, unsigned long), which another file of the step "
         "defines"),
    ])
def test_a_file_that_does_not_define_what_the_step_calls_is_one_line(compiler, step, old, new, line):
    mine = text_of(step, "naive")
    assert old in mine
    done = compiler.compile({"versions/naive.hip": mine.replace(old, new)}, {}, fast=True)
    assert (done.program, done.refusal) == (None, line)


def test_a_helper_of_the_learners_own_is_no_mistake(compiler, step):
    mine = text_of(step, "naive").replace("namespace sum {\n", "namespace sum {\nint helper() { return 4; }\n"
                                          "template <class T> T twice(T x) { return 2 * x; }\n", 1)
    mine = mine.replace("return 1 * n", "return twice(helper()) * n")
    done = compiler.compile({"versions/naive.hip": mine}, {}, fast=True)
    assert process.output([str(done.program)]) == "naive 24\nfast 6\n"


def test_what_the_compiler_says_names_the_learners_file(compiler, step):
    mine = text_of(step, "naive").replace("return 1 * n;", "return m;")
    for _ in range(2):  # also when it is taken from the folder
        done = compiler.compile({"versions/naive.hip": mine}, {"versions/naive.hip": "mine/naive.hip"}, True)
        assert done.program is None and "mine/naive.hip:9:" in done.messages, done.messages
        assert str(compiler.folder) not in done.messages


def test_an_old_build_is_no_answer(build, step, tmp_path):
    (tmp_path / "commands").write_text("")
    with pytest.raises(CourseError, match="has no sum: run `scripts/course run 1.1` first"):
        compiling.Compiler(build, exercises.load(step), tmp_path / "check")


def test_a_check_asks_nm_only_about_what_is_new(compiler, build, step, monkeypatch):
    asked = []
    real = process.output
    monkeypatch.setattr(process, "output", lambda words, *rest, **more: (
        asked.append(words) if words[0] == "nm" else None, real(words, *rest, **more))[1])
    for change in ("100", "200"):
        asked.clear()
        mine = text_of(step, "naive").replace("return 1", f"return {change}")
        needed = compiler.needed(build)
        assert compiler.compile({"versions/naive.hip": mine}, {}, fast=True).program
    assert needed == ["CMakeFiles/sum.dir/sum.cpp.o", "libstep_sum.a"]
    assert [[Path(path).name for path in words[2:]] for words in asked] == [["object.o"]]


def test_weak_names_count_only_where_another_file_relies_on_them():
    def of(strong="", weak="", undefined="") -> Symbols:
        return Symbols(*(frozenset(words.split()) for words in (strong, weak, undefined)))

    assert symbols.refusal("a.hip", of("f"), of("f", "inlined"), of()) == ""
    line = "a.hip does not define instance, which the step calls"
    assert symbols.refusal("a.hip", of("f"), of("f", "instance"), of(undefined="instance")) == line
    assert symbols.refusal("a.hip", of("f", "instance"), of("f", "instance"), of(undefined="instance")) == ""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nm's stand-in was asked about: it has read a file's own words. "broken" is none that nm can read."""
    names: list[str] = []

    def nm(command: list[str], any_exit_code: bool = False) -> str | None:
        names.extend(Path(path).name for path in command[2:])
        text = "".join(Path(path).read_text() for path in command[2:])
        return text if any_exit_code or "broken" not in text else None

    monkeypatch.setattr(process, "output", nm)
    (tmp_path / "libsum.a").write_text("00 T f\n00 W g\n U h\n")
    return names


SUM = Symbols(frozenset("f"), frozenset("g"), frozenset("h"))


def test_nm_is_asked_once_about_a_file_as_it_is(asked: list[str], tmp_path: Path):
    for _ in range(3):  # each as a command of its own would
        assert symbols.Kept(tmp_path).of(["libsum.a"]) == SUM
    assert asked == ["libsum.a"]
    library = tmp_path / "libsum.a"
    at = library.stat().st_mtime_ns
    library.write_text(library.read_text() + "00 T e\n")  # another size
    os.utime(library, ns=(at, at))
    assert symbols.Kept(tmp_path).of(["libsum.a"]).strong == {"e", "f"}
    library.write_text(library.read_text().replace("T e", "T d"))
    os.utime(library, ns=(at + 1, at + 1))
    assert symbols.Kept(tmp_path).of(["libsum.a"]).strong == {"d", "f"}
    assert asked == ["libsum.a"] * 3


def test_what_nm_has_said_of_several_files_is_put_together(asked: list[str], tmp_path: Path):
    (tmp_path / "main.o").write_text("00 T main\n U f\n U puts\n")
    found = symbols.Kept(tmp_path).of(["main.o", "libsum.a", "missing.a"])
    assert found == symbols.of([tmp_path / "main.o", tmp_path / "libsum.a"])
    assert found.unresolved == {"h", "puts"}


@pytest.mark.parametrize("text", ["", '{"mtime_ns": 1', "[]", "\0", '{"strong": "x"}'])
def test_where_the_kept_words_are_broken_nm_is_asked_again(asked: list[str], tmp_path: Path, text: str):
    kept = tmp_path / "symbols" / "libsum.a.json"
    symbols.Kept(tmp_path).of(["libsum.a"])
    kept.write_text(text or kept.read_text()[:-9])
    for _ in range(2):
        assert symbols.Kept(tmp_path).of(["libsum.a"]) == SUM
    assert asked == ["libsum.a"] * 2
    assert list(kept.parent.iterdir()) == [kept]


def test_what_nm_could_not_read_is_not_kept(asked: list[str], tmp_path: Path):
    (tmp_path / "half.a").write_text("00 T f\nbroken\n")
    for _ in range(2):
        assert symbols.Kept(tmp_path).of(["half.a"]).strong == {"f"}
    assert not (tmp_path / "symbols").exists()


def test_an_exercise_outside_of_versions_is_refused(step):
    path = step.folder / "exercise.toml"
    path.write_text(path.read_text().replace("versions/fast.hip", "sum.h"))
    with pytest.raises(CourseError, match="sum.h is no file of versions/"):
        exercises.load(step)


# ---- The workspace -----------------------------------------------------------------------------


def test_only_files_with_exercises_are_started(step, tmp_path):
    (step.folder / "versions" / "extra.hip").write_text("// extra: nothing to do.\n")
    course = exercises.load(step)
    workspace = Workspace(step.folder.parents[1], tmp_path / "mine")
    workspace.start(course, reset=False)
    place = tmp_path / "mine" / "stage1_vector" / "01_sum" / "versions"
    assert sorted(path.name for path in place.iterdir()) == ["fast.hip", "naive.hip"]
    assert "return 0;" in (place / "naive.hip").read_text()
    (place / "fast.hip").unlink()
    assert list(workspace.files(course)) == ["versions/naive.hip"]
    assert workspace.all_files() == [place / "naive.hip"]
    assert course.files_of("fast") == ["versions/fast.hip"]


# ---- check, as a whole, with stand-ins ---------------------------------------------------------

COMPILE = """
import sys
words = sys.argv[1:]
text = open(words[-1]).read()
open(words[words.index("-o") + 1], "w").write(text)
"""
LINK = """
import os, sys
words = sys.argv[1:]
own = words[words.index("libstep_vector_add.a") - 1]
right = "return a + 1" in open(own).read()
program = words[words.index("-o") + 1]
open(program, "w").write(f'''#!{sys.executable}
import json, os, sys
if "-r" in sys.argv:  # the step's tests
    open(sys.argv[sys.argv.index("-o") + 1], "w").write("<Catch2TestRun></Catch2TestRun>")
if "--json" not in sys.argv:  # they, or the run under ThreadSanitizer
    sys.exit(0)
report = json.load(open(os.environ["FAKES"] + "/report.json"))
if not {right}:
    for row in report["tables"][0]["rows"]:
        row.update(status="FAIL", failed=3, index=2)
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(report))
sys.exit(int(not {right}))
''')
os.chmod(program, 0o755)
"""
ONE_MORE = """// naive: one more.
// exercise: one more than a (about 1 line)
int one_more(int a) { return a + 1; }
// end exercise
"""


@pytest.fixture
def learner(machine: Machine) -> Machine:
    """A machine whose step 1.1 has a version file with an exercise."""
    folder = machine.root / "stage1_vector" / "01_vector_add"
    (folder / "versions").mkdir()
    (folder / "versions" / "naive.hip").write_text(ONE_MORE)
    (folder / "exercise.toml").write_text(
        '[[exercise]]\nname = "one_more"\nfile = "versions/naive.hip"\nversions = ["naive"]\n'
        'hints = ["a", "b", "c"]\n')
    for name, text in (("compile", COMPILE), ("link", LINK)):
        (machine.fakes / f"{name}.py").write_text(text)
        machine.fake(name, f'exec "{sys.executable}" "{machine.fakes}/{name}.py" "$@"')
    (machine.fakes / "nice").symlink_to(shutil.which("nice"))
    machine.fake("ninja", f"""case "$*" in *commands*_test) test=_test ;; *commands*) ;; *) exit ;; esac
echo "compile -I'{machine.root}' -o version.o -c '{folder}/versions/naive.hip'"
echo "link main.o -o stage1_vector/vector_add$test libstep_vector_add.a" """)
    program = machine.PROGRAM.replace("$2", "$to")
    machine.fake("program", 'while [ $# -gt 0 ]; do [ "$1" = --json ] && to="$2"; shift; done' + program)
    made = machine.CMAKE.replace('for step in', 'touch "$2/main.o" "$2/version.o" "$2/libstep_vector_add.a"\n'
                                 "           for step in")
    machine.fake("cmake", f"""case "$*" in *" -f "*)
mkdir -p "$2-mine/stage1_vector" && cp "$FAKES/program" "$2-mine/stage1_vector/vector_add"; exit ;; esac
{made}""")
    return machine


def test_check_export_and_import(learner: Machine):
    done = learner.course("start", "1.1")
    assert done.returncode == 0, done.stderr
    mine = learner.root / "workspace" / "stage1_vector" / "01_vector_add" / "versions" / "naive.hip"
    assert "return" not in mine.read_text() and "versions/naive.hip:2" in done.stdout
    done = learner.course("check")
    assert done.returncode == 1 and "nothing is written yet: one_more" in done.stdout, done.stdout + done.stderr
    mine.write_text(ONE_MORE)
    done = learner.course("check")
    assert done.returncode == 0, done.stdout + done.stderr
    words = re.findall(r"^(build|correctness|safety) +(\w+)", done.stdout, re.MULTILINE)
    assert words == [("build", "ok"), ("correctness", "ok"), ("safety", "ok")]
    compiled = [call for call in learner.calls() if call.startswith("compile ") and "c++-header" not in call]
    assert compiled and all(call.endswith("naive.hip") for call in compiled)
    exported = learner.root / "mine.json"
    assert learner.course("progress", "--export", str(exported)).returncode == 0
    mine.unlink()
    assert learner.course("progress", "--import", str(exported)).returncode == 0
    assert mine.read_text() == ONE_MORE


def test_run_mine_builds_with_the_versions_that_have_passed(learner: Machine):
    learner.course("start", "1.1")
    done = learner.course("run", "1.1", "--mine")
    assert done.returncode == 2 and "nothing of yours to run" in done.stderr
    mine = learner.root / "workspace" / "stage1_vector" / "01_vector_add" / "versions" / "naive.hip"
    mine.write_text(ONE_MORE)
    assert learner.course("check", "1.1").returncode == 0
    learner.fake("nm", 'echo "0000 T one_more"')
    done = learner.course("run", "1.1", "--mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs with your stage1_vector/01_vector_add/versions/naive.hip" in done.stdout
    taken = learner.root / "build" / "mine" / "stage1_vector" / "01_vector_add" / "versions" / "naive.hip"
    assert taken.read_text() == ONE_MORE
    rules = (learner.root / "build" / "cpu-mine" / "build.ninja").read_text()
    commands = re.findall("words = (.*)", rules)
    assert len(commands) == 2 and commands[0].endswith(f" -c '{taken}'")
    assert commands[1] == ("link main.o -o ../cpu-mine/stage1_vector/vector_add "
                           "../cpu-mine/objects/version.o libstep_vector_add.a")


# ---- diff --------------------------------------------------------------------------------------

LEFT = "one\ntwo\nthree\n" + "same\n" * 20 + "float x = a[i];\nend\n"
RIGHT = "one\ntwo\nthree\nmore\n" + "same\n" * 20 + "float4 x = a[i];\nend\n"


def test_two_texts_stand_beside_each_other():
    rows = diffs.rows_of(LEFT, RIGHT)
    assert "".join(f"{text}\n" for text in (
        "".join(part for part, _ in row.left) for row in rows if row.left_number)) == LEFT
    assert "".join(f"{text}\n" for text in (
        "".join(part for part, _ in row.right) for row in rows if row.right_number)) == RIGHT
    changed = [row for row in rows if not row.same]
    assert [(row.left_number, row.right_number) for row in changed] == [(None, 4), (24, 25)]
    assert changed[1].left[0] == ("float", True) and changed[1].right[0] == ("float4", True)
    assert (" x = a[i];", False) in changed[1].left
    folds = [row for row in diffs.folded(rows) if isinstance(row, diffs.Fold)]
    assert [str(fold) for fold in folds] == ["14 unchanged lines"]
    assert not any(isinstance(row, diffs.Fold) for row in diffs.folded(rows, whole=True))


@pytest.mark.parametrize("width", [60, 100, 10_000])
def test_a_diff_keeps_within_the_width(width):
    left, right = LEFT + "long words " * 20 + "\n", RIGHT + "long words of another kind " * 12 + "\n"
    lines = list(diffs.terminal_lines(("naive", "fast"), (left, right), width))
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["naive", "fast"] and any("14 unchanged lines" in line for line in lines)


def test_a_diff_as_a_page(step):
    names, texts = ("naive", "fast"), (LEFT + "a < b\n", RIGHT + "a < b\n")
    page = diffs.page(step, names, texts)
    assert "<title>1.1 sum: naive and fast</title>" in page and "a &lt; b" in page
    assert "<del>float</del>" in page and "<ins>float4</ins>" in page
    assert page.count("<details>") == 1 and "14 unchanged lines" in page
    assert page.count("<tr>") == 1 + len(diffs.rows_of(*texts))  # folded lines are there, too
    assert not re.search(r'(src|href)="(?!data:)', page)
    ladder = diffs.ladder(step)
    assert "naive and fast, line by line" in ladder


def test_course_diff(machine: Machine):
    folder = machine.root / "stage1_vector" / "01_vector_add"
    (folder / "versions").mkdir()
    for name in ("naive", "vectorized"):
        (folder / "versions" / f"{name}.hip").write_text(f"// {name}\nint a;\n")
    (folder / "vector_add.h").write_text('kVersions[] = {{"naive", f}, {"vectorized", g}};')
    done = machine.course("diff", "1.1")
    assert done.returncode == 0 and "scripts/course diff 1.1 naive vectorized" in done.stdout
    done = machine.course("diff", "1.1", "naive", "versions/vectorized.hip")
    assert done.returncode == 0 and "// naive" in done.stdout and "// vectorized" in done.stdout
    page = machine.root / "diff.html"
    assert machine.course("diff", "1.1", "naive", "vectorized", "--html", str(page)).returncode == 0
    assert "<!DOCTYPE html>" in page.read_text()
    for arguments, line in (
            (("1.2", "a", "b"), "1.2 axpy has no version files"),
            (("1.1", "naive", "vectorised"),
             "1.1 vector_add has no version file 'vectorised': did you mean vectorized?"),
            (("1.1", "naive"),
             "two versions are compared: `scripts/course diff 1.1` shows which are neighbours"),
            (("1", "a", "b"), "'1' is 2 steps: name one"),
            (("1.1", "--html", "x"), "--html needs two versions")):
        done = machine.course("diff", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"course: {line}\n")


def test_the_versions_of_the_course_are_in_the_order_of_their_ladder():
    for step in steps.discover(ROOT):
        names = step.versions()
        assert names and sorted(names) == sorted(step.version_files())
