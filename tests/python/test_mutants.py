"""scripts/mutants.py: what it changes in a kernel, and what it makes of the verdicts. No test compiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mutants
from course_lib import exercises, mutation, steps
from course_lib.errors import CourseError
from course_lib.verdict import Refusal

ROOT = Path(__file__).resolve().parents[2]


def kernel(line: str, before: str = "", head: str = "static __global__ void sum(float* c)") -> str:
    return f"{before}\n{head} {{\n  {line}\n}}\n"


def changes(text: str, operator: str) -> list[str]:
    """What an operator makes of the text's only changing line."""
    return [mutant.after for mutant in mutation.mutants_of(text, "sum.hip")
            if mutant.operator == operator]


@pytest.mark.parametrize("operator, line, expected", [
    ("barrier dropped", "__syncthreads();  // all are in", ["; // all are in"]),
    ("barrier dropped", "gpu::wave_sync();", [";"]),
    ("atomic dropped", "atomicAdd(&c[i], a * b);", ["*(&c[i]) += a * b;"]),
    ("atomic dropped", "last = atomicAdd(n, 1u) == 3;", ["last = ((*(n) += 1u) - (1u)) == 3;"]),
    ("atomic dropped", "atomicMin(c, v);", ["*(c) = v < *(c) ? v : *(c);"]),
    ("blocks assumed in order", "last = atomicAdd(n, 1u) == 3;", ["last = blockIdx.x == 3;"]),
    ("blocks assumed in order", "atomicAdd(n, 1u);", []),
    ("comparison off by one", "if (i < n) f(x);", ["if (i <= n) f(x);"]),
    ("comparison off by one", "if (static_cast<int>(i) == n) f(x);", []),
    ("comparison off by one", "while (half > 0) half = f(half);", ["while (half > 1) half = f(half);"]),
    ("loop begins one later", "for (int i = t; i < n; ++i) f();", ["for (int i = t + 1; i < n; ++i) f();"]),
    ("loop begins one later", "for (int d = w / 2; d != 0; d /= 2) f(d);", []),
    ("stride changed", "for (; i != n; i += step) f(i);", ["for (; i != n; i += 2 * (step)) f(i);"]),
    ("stride changed", "for (; i != n; ++i) f(i);", ["for (; i != n; i += 2) f(i);"]),
    ("stride changed", "for (; i != 0; i /= 2) f(i);", ["for (; i != 0; i /= 4) f(i);"]),
    ("index off by one", "c[i] = 2;", ["c[i + 1] = 2;"]),
    ("index off by one", "float a[2], b[4];", []),
    ("index off by one", "const auto f = [&] { g(); };", []),
    ("indices swapped", "c[i][j] = 2;", ["c[j][i] = 2;"]),
    ("indices swapped", "float c[4][8];", []),
    ("indices swapped", "f(threadIdx.x + threadIdx.y);",
     ["f(threadIdx.y + threadIdx.y);", "f(threadIdx.x + threadIdx.x);"]),
    ("indices swapped", "f(threadIdx.x);", []),
    ("wrong dimension", "if (row < rows) f(cols);", ["if (row < cols) f(cols);", "if (row < rows) f(rows);"]),
    ("wrong dimension", "const int row = f(col);", ["const int row = f(row);"]),
    ("wrong initial value", "float sum = 0;", ["float sum = 1;"]),
    ("wrong initial value", "float max = -INFINITY;", ["float max = 0.0f;"]),
    ("wrong initial value", "for (int i = 0; i < n; ++i) f(i);", []),
    ("initial value missing", "float sums[2] = {};", ["float sums[2] ;"]),
    ("initial value missing", "float sum = 0;", ["float sum ;"]),
    ("wave size assumed", "int d = gpu::wave_size() / 2;", ["int d = 32 / 2;", "int d = 16;"]),
    ("wave size assumed", "gpu::WaveMask m = gpu::wave_ballot(p);",
     ["gpu::WaveMask m = static_cast<unsigned>(gpu::wave_ballot(p));", "unsigned m = gpu::wave_ballot(p);"]),
    ("guard dropped", "if (i < n) f(i);", ["if (true) f(i);"]),
    ("guard dropped", "if (i >= n) return;", ["if (false) return;"]),
    ("guard dropped", "x = i < n ? a : b;", ["x = true ? a : b;"]),
    ("part of a guard dropped", "if (i < n && j < m) f(i);", ["if (i < n ) f(i);", "if ( j < m) f(i);"]),
    ("term dropped", "x = a * b + c;", ["x = a * b ;", "x = c;"]),
    ("term dropped", "x = f(a + b) - c;", ["x = f(a + b) ;", "x = f(a ) - c;", "x = f( b) - c;"]),
    ("factor dropped", "x = scale * y[i + 1];", ["x = scale ;", "x = y[i + 1];"]),
    ("factor dropped", "const float* row = *rows;", []),
    ("sign changed", "x += a - b;", ["x -= a - b;", "x += a + b;"]),
    ("sign changed", "x = -a;", ["x = a;"]),
    ("int for size_t", "const size_t at = row * cols;", ["const int at = row * cols;"]),
    ("int for size_t", "x[static_cast<size_t>(token) * C + c] = 0;",
     ["x[static_cast<int>(token) * C + c] = 0;"]),
    ("int for size_t", "const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;", []),
    ("int for size_t", "for (int k = 0; k < 4; ++k) x[static_cast<size_t>(k) * C] = 0;", []),
    ("int for size_t", "return size_t{row} * cols;", ["return static_cast<int>(row) * cols;"]),
    ("int for size_t", "return size_t{number} * Tile::kOwn;", []),
    ("shared array one too small", "__shared__ float tile[16][kTile + 1];",
     ["__shared__ float tile[(16) - 1][kTile + 1];"]),
    ("shared array one too small", "__shared__ float of_wave[kMaxWaves];", []),
    ("index off by one", "__shared__ float tile[16];", []),
    ("stored, not added", "c[i] += a;", ["c[i] = a;"]),
    ("stored, not added", "for (; i < n; i += 2) f(i);", []),
    ("added, not stored", "c[i] = a;", ["c[i] += a;"]),
    ("added, not stored", "*c = a;", ["*c += a;"]),
    ("added, not stored", "float x = a;", []),
    ("minimum for maximum", "m = fmaxf(m, x);", ["m = fminf(m, x);"]),
    ("arguments swapped", "x = index_of(row, col);", ["x = index_of(col, row);"]),
    ("arguments swapped", "x = fmaxf(a, b);", []),
    ("arguments swapped", "x = fmaf(a, b, c);", ["x = fmaf(a, c, b);"]),
    ("leap dropped", "if (bad) continue;", ["if (bad) ;"]),
])
def test_an_operator_changes_this_and_nothing_else(operator, line, expected):
    assert sorted(changes(kernel(line), operator)) == sorted(expected)


def test_every_operator_is_tested():
    [mark] = test_an_operator_changes_this_and_nothing_else.pytestmark
    tested = {operator for operator, _, _ in mark.args[1]}
    assert tested | {"wrong grid", "memory not cleared"} == set(mutation.OPERATORS)


LAUNCHER = """
void launch(float* c, size_t n, hipStream_t stream) {
  HIP_CHECK(hipMemsetAsync(c, 0, 4, stream));
  LAUNCH_ON(stream, (fill<float, 4>), gpu::ceil_div(n, 256), 256, 0, c, n);
}
"""


def test_a_launcher_gets_a_smaller_grid_and_forgets_to_clear():
    text = kernel("c[threadIdx.x] = 1;", head="static __global__ void fill(float* c)") + LAUNCHER
    grids = changes(text, "wrong grid")
    assert len(grids) == 2
    assert "[&] { dim3 grid(gpu::ceil_div(n, 256)); grid.x = 1; return grid; }(), 256, 0" in grids[0]
    assert changes(text, "memory not cleared") == [";"]
    assert changes(LAUNCHER, "wrong grid") == []  # nobody knows what the kernel does


@pytest.mark.parametrize("step", ["gridDim.x", "Team::rows_in_grid()"])
def test_a_kernel_that_goes_round_is_right_with_any_grid(step):
    text = kernel(f"for (; i < n; i += {step}) f(i);", head="static __global__ void fill(float* c)")
    held = LAUNCHER.replace("LAUNCH_ON(stream", "const auto blocks = gpu::ceil_div(n, 256);\n  LAUNCH_ON(stream")
    held = held.replace("gpu::ceil_div(n, 256), 256, 0", "grid_size(blocks), 256, 0")
    for launcher in (LAUNCHER, held):
        assert changes(text + launcher, "wrong grid") == []
        assert not any("ceil_div(256" in change for change in changes(text + launcher, "arguments swapped"))
    twice = held.replace("  LAUNCH_ON", "  if (n > 9) LAUNCH_ON(stream, (fill<float, 8>), blocks, 256, 0, c, n);\n"
                         "  LAUNCH_ON")
    assert not any("ceil_div(256" in change for change in changes(text + twice, "arguments swapped"))
    also = held.replace("}\n", "  f(blocks);\n}\n")
    assert any("ceil_div(256" in change for change in changes(text + also, "arguments swapped"))
    once = kernel("c[blockIdx.x] = 1;", head="static __global__ void fill(float* c)")
    assert any("ceil_div(256" in change for change in changes(once + held, "arguments swapped"))


def test_a_grid_of_one_block_is_no_mistake():
    text = kernel("c[threadIdx.x] = 1;", head="static __global__ void fill(float* c)")
    assert changes(text + LAUNCHER.replace("gpu::ceil_div(n, 256), 256", "1, 256"), "wrong grid") == []


def test_host_code_has_a_kernels_mistakes_in_its_exercises_only():
    host = "double sum_of(double a, double b) {\n  return a + b;\n}\n"
    assert changes(host, "term dropped") == []
    written = host.replace("  return", "  // exercise: the sum (about 1 line)\n  return").replace(
        ";\n}", ";\n  // end exercise\n}")
    assert "return a ;" in changes(written, "term dropped")
    assert changes("constexpr int kSide = 2 + 3;\n", "term dropped") == []
    assert changes(kernel("constexpr int kSide = 2 + 3;"), "term dropped") == []


def test_which_random_numbers_the_host_draws_is_no_mistake():
    assert changes("void draw(int seed) {\n  x = uniform(seed, 1, scale);\n}\n", "arguments swapped") == []
    assert changes("void draw(int seed) {\n  x = uniform(n, seed);\n}\n", "arguments swapped") == [
        "x = uniform(seed, n);"]
    assert changes(kernel("x = uniform(seed, 1);"), "arguments swapped") == ["x = uniform(1, seed);"]


def test_bounds_are_no_part_of_a_version():
    roundings = "double roundings_tree(size_t rows, size_t cols) {\n  return f(rows, cols);\n}\n"
    assert mutation.mutants_of(roundings, "tree.hip") == []
    assert mutation.mutants_of(roundings.replace("roundings_tree", "tree"), "tree.hip") != []


def test_comments_strings_and_other_backends_are_left_alone():
    assert mutation.mutants_of(kernel('f("a + b");  // a + b, c[i] < d'), "sum.hip") == []
    branches = "#if defined(GPU_BACKEND_CUDA)\n  x = a + b;\n#else\n  x = c + d;\n#endif"
    assert sorted(changes(kernel(branches), "term dropped")) == ["x = c ;", "x = d;"]
    assert sorted(changes(kernel(branches.replace("CUDA", "CPU")), "term dropped")) == ["x = a ;", "x = b;"]


def test_a_function_is_named_and_members_of_classes_are_found():
    head = "template <int kSide>\nstatic __global__ void GPU_LAUNCH_BOUNDS(kSide, 2)\n    fill(float* c)"
    found = mutation.mutants_of(kernel("c[i] = 1;", head=head), "fill.hip")
    assert {mutant.function for mutant in found} == {"fill"}
    member = ("struct Row {\n  __device__ Row(int n) : n_{n} { f(n + 1); }\n"
              "  __device__ int f() { return n_ + 1; }\n};")
    assert {mutant.function for mutant in mutation.mutants_of(member, "row.h")} == {"Row", "f"}


def test_a_mutant_says_where_it_is_and_can_be_applied():
    text = kernel("if (i < n) c[i] = 1;")
    mutant = next(m for m in mutation.mutants_of(text, "sum.hip") if m.operator == "guard dropped")
    assert (mutant.line, mutant.before) == (3, "if (i < n) c[i] = 1;")
    assert mutant.applied(text) == text.replace("i < n", "true")
    keys = [m.key for m in mutation.mutants_of(text, "sum.hip")]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {m.key for m in mutation.mutants_of(text + "\n", "sum.hip")}


def test_the_same_text_is_one_mutant():
    assert changes(kernel("x = a + a;"), "term dropped") == ["x = a ;"]


def test_every_beginning_of_the_order_has_all_operators():
    tiled = ROOT / "stage2_matrix" / "03_gemm" / "versions" / "tiled.hip"
    found = mutation.mutants_of(tiled.read_text(encoding="utf-8"), "tiled.hip")
    operators = {mutant.operator for mutant in found}
    order = mutation.spread(found, "1")
    assert sorted(order, key=str) == sorted(found, key=str)
    assert {mutant.operator for mutant in order[:len(operators)]} == operators
    assert order == mutation.spread(found, "1") != mutation.spread(found, "2")


def test_shares():
    assert mutation.shares([5, 100, 400, 10000], 60, least=8, most=25) == [5, 10, 20, 25]
    assert sum(mutation.shares([200] * 70, 700, least=8, most=25)) == 700


# ---- mutants.py ----------------------------------------------------------------------------------


VERSION = """// naive: an element per thread.
static __global__ void fill(float* c, unsigned n) {
  // exercise: store 1 (about 2 lines)
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = 1;
  // end exercise
}
"""
EXERCISE = """shapes = ["1"]
[[exercise]]
name = "fill"
file = "versions/naive.hip"
versions = ["naive"]
hints = ["a", "b", "c"]
"""
GUARD = ("1.1", "versions/naive.hip", "fill", "guard dropped", "if (i < n) c[i] = 1;", "if (true) c[i] = 1;")


@pytest.fixture
def course(tmp_path):
    folder = tmp_path / "stage1_vector" / "01_fill"
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "naive.hip").write_text(VERSION)
    (folder / "exercise.toml").write_text(EXERCISE)
    (folder / "fill.cpp").write_text("int main() {}\n")
    return exercises.load(steps.discover(tmp_path)[0])


class Scene:
    """mutants.Tester with a judge that refuses whatever lacks some words."""

    def __init__(self, course, tmp_path):
        self.course, self.written = course, tmp_path / "verdicts.json"
        self.root = tmp_path
        self.asked: list[str] = []
        self.needed = "if (i < n)"  # what is refused without it
        self.same_machine_code = ""  # words of mutants for which the compiler makes the original's code
        self.equivalent: dict[tuple[str, ...], str] = {}
        self.known_to_pass: set[str] | None = None
        self.chosen = mutants.choose([course], 700, "1")

    def choose(self, *operators: str) -> None:
        self.chosen = [one for one in self.chosen if one.mutant.operator in operators]

    def run(self) -> int:
        scene = self

        class FakeJudge:
            def __init__(self, course, build, folder):
                pass

            def refusal(self, files, versions):
                [(name, text)] = files.items()
                assert name == "versions/naive.hip"
                assert versions == ([] if text == VERSION else ["naive"])
                if text != VERSION:
                    scene.asked.append(text)
                return Refusal("" if scene.needed in text else "runs", "naive")

        class FakeSameCode:
            def __init__(self, build, folder):
                pass

            def same(self, course, file, original, changed):
                assert original == VERSION
                return bool(scene.same_machine_code) and scene.same_machine_code in changed

        build = mutants.Build(self.root, self.root / "build", "cpu", {})
        known = mutants.load_verdicts(self.written)
        tester = mutants.Tester(build, self.equivalent, known, self.written, 2, FakeJudge, FakeSameCode)
        tester.known_to_pass = self.known_to_pass
        return tester.test(self.chosen, mutants.stale_entries(self.equivalent, [self.course]))


@pytest.fixture
def scene(course, tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_BUILD_DIR", raising=False)
    return Scene(course, tmp_path)


def test_what_passes_is_shown_and_too_much_of_it_fails(scene, capsys):
    assert scene.run() == 1
    out = capsys.readouterr().out
    assert "passes: 1.1 fill, versions/naive.hip:5, fill: index off by one" in out
    assert "    -  if (i < n) c[i] = 1;\n    +  if (i < n) c[i + 1] = 1;" in out
    assert "fewer than 97% are refused" in out
    assert len(scene.asked) == len(scene.chosen)


def test_all_refused_is_a_pass(scene, capsys):
    scene.needed = VERSION
    assert scene.run() == 0
    assert f"{len(scene.chosen)} of {len(scene.chosen)} mutants are refused" in capsys.readouterr().out


def test_a_step_that_is_refused_itself_says_so(scene, capsys):
    scene.needed = "no such words"
    assert scene.run() == 1
    assert "the repository's own files are refused: runs: naive" in capsys.readouterr().out
    assert scene.asked == []


def test_verdicts_are_kept_and_not_asked_for_again(scene, capsys):
    scene.run()
    first = capsys.readouterr().out.splitlines()[:-1]
    assert len(json.loads(scene.written.read_text())) == len(scene.chosen)
    scene.asked.clear()
    scene.run()
    assert scene.asked == []
    assert capsys.readouterr().out.splitlines()[:-1] == first


def test_equivalent_mutants_are_not_counted(scene, capsys):
    scene.needed = "c[i] = 1;"
    scene.choose("guard dropped", "added, not stored")
    scene.equivalent = {GUARD: "the grid has exactly n threads"}
    assert scene.run() == 0
    assert "1 of 1 mutants are refused (100.0%); 0 more do not compile, 1 are equivalent" in (
        capsys.readouterr().out)


def test_the_same_machine_code_is_equivalent(scene, capsys):
    scene.needed = "c[i] = 1;"
    scene.choose("guard dropped", "added, not stored")
    scene.same_machine_code = "if (true)"
    assert scene.run() == 0
    assert "1 same code" in capsys.readouterr().out


def test_an_entry_that_is_refused_or_matches_nothing_is_an_error(scene, capsys):
    scene.equivalent = {GUARD: "wrong"}
    assert scene.run() == 1
    assert "this one is refused (runs, naive): 1.1, versions/naive.hip, fill, guard dropped" in (
        capsys.readouterr().out)
    scene.equivalent = {(*GUARD[:5], "gone"): "was right once"}
    assert scene.run() == 1
    assert "no mutant is this any more: 1.1, versions/naive.hip" in capsys.readouterr().out


def test_an_entry_needs_a_proof(tmp_path):
    (tmp_path / "stage1.toml").write_text('[[mutant]]\nstep = "1.1"\n')
    with pytest.raises(CourseError, match="an entry has step, not step, file"):
        mutants.load_equivalent(tmp_path)


def test_the_choice_covers_the_course():
    courses = [exercises.load(step) for step in steps.discover(ROOT) if exercises.has_exercises(step)]
    chosen = mutants.choose(courses, 1200, "1")
    assert abs(len(chosen) - 1200) <= 2  # files with as many candidates get one more together
    of_step = {number: [one for one in chosen if one.course.step.number == number]
               for number in (course.step.number for course in courses)}
    assert min(map(len, of_step.values())) >= mutants.LEAST
    assert {one.mutant.operator for one in chosen} == set(mutation.OPERATORS)


def test_the_list_of_equivalent_mutants_is_up_to_date():
    courses = [exercises.load(step) for step in steps.discover(ROOT) if exercises.has_exercises(step)]
    assert mutants.stale_entries(mutants.load_equivalent(mutants.EQUIVALENT), courses) == []


# ---- same_code.py --------------------------------------------------------------------------------


# Takes "machine code" to be the text without its comments, and refuses what says `error`.
COMPILER = """while [ $# -gt 0 ]; do
  case $1 in -o) made=$2;; -c) source=$2;; esac
  shift
done
! grep -q error "$source" && grep -v '^//' "$source" > "$made"
"""


@pytest.fixture
def same_code(course, tmp_path, monkeypatch):
    (tmp_path / "cc.sh").write_text(COMPILER)

    class Commands:
        def command_of(self, file):
            (tmp_path / "compiled").open("a").write("once\n")
            return f"sh {tmp_path}/cc.sh -I{tmp_path} -MD -o fill.o -c {course.step.folder / file}", "fill.o"

    monkeypatch.setattr("course_lib.compiling.Compiler", lambda *_: Commands())
    return mutants.SameCode(mutants.Build(tmp_path, tmp_path, "cpu", {}), tmp_path / "same_code")


def test_texts_of_the_same_code(same_code, course, tmp_path):
    def same(changed: str) -> bool:
        return same_code.same(course, "versions/naive.hip", VERSION, changed)

    assert same(VERSION.replace("an element", "one element"))
    assert not same(VERSION.replace("i < n", "true"))
    assert not same(VERSION + "error")
    assert len((tmp_path / "compiled").read_text().split()) == 4  # the original only once
    assert list((tmp_path / "same_code").iterdir()) == []


def test_texts_that_both_do_not_compile_are_not_the_same(same_code, course):
    assert not same_code.same(course, "versions/naive.hip", "error", "error")


def test_of_a_sample_only_what_did_not_pass_before_fails(scene, capsys, tmp_path, monkeypatch):
    """And the summary of a campaign is what says which those are."""
    monkeypatch.setattr(mutants, "SUMMARY", tmp_path / "mutants.json")
    scene.run()
    assert mutants.known_to_pass() == set()
    other = {"date": "2030-01-02", "commit": "0123abc", "mutants": 1, "uncompiled": 0, "equivalent": 0,
             "refused": 0}
    of_others = {"key": "other", "step": "9.9"}
    mutants.SUMMARY.write_text(json.dumps(
        {"steps": {"1.1": other, "9.9": other}, "passing": [of_others, {"key": "old", "step": "1.1"}]}))
    mutants.sum_up(mutants.load_verdicts(scene.written), {})
    summary = json.loads(mutants.SUMMARY.read_text())
    passing = [verdict["key"] for verdict in json.loads(scene.written.read_text()) if not verdict["reason"]]
    assert passing and {entry["key"] for entry in summary["passing"]} == {*passing, "other"}
    assert of_others in summary["passing"] and summary["steps"]["9.9"] == other
    counts = {name: count for name, count in summary["steps"]["1.1"].items() if name not in ("date", "commit")}
    assert counts == {"mutants": len(scene.chosen), "uncompiled": 0, "equivalent": 0,
                      "refused": len(scene.chosen) - len(passing)}
    scene.known_to_pass = mutants.known_to_pass()
    assert scene.run() == 0
    scene.known_to_pass.remove(passing[0])
    capsys.readouterr()
    assert scene.run() == 1 and "passes, and did not before: 1.1" in capsys.readouterr().out
