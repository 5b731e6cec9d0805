"""What no GPU's compiler takes: the list of it, the compilers' words on it, and static shared memory."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from course_lib import device_code, exercises, steps
from course_lib.build import Build

# What stands in a kernel k(float* c, int n), and what the line must be said to be.
REFUSED = {
    "std::vector<float> v(3);": "a kernel can't use std::vector",
    "std::string s;": "a kernel can't use std::string",
    "auto f = std::function<void()>();": "a kernel can't use std::function",
    "std::cout << c[0];": "a kernel can't use std::cout",
    "std::sort(c, c + 3);": "a kernel can't use std::sort",
    "c[0] = std::max(c[0], c[1]);": "a kernel can't use std::max",
    "float* p = new float[3];": "a kernel can't use new",
    "delete c;": "a kernel can't use delete",
    "c = (float*)malloc(4);": "a kernel can't use malloc",
    "if (n > 3) throw 1;": "a kernel can't use throw",
    "c[0] = dynamic_cast<D*>(b) != nullptr;": "a kernel can't use dynamic_cast",
    "thread_local int count = 0;": "a kernel can't use thread_local",
    "static int count = 0;": "a kernel's static variable",
    "hipDeviceSynchronize();": "a kernel can't call hipDeviceSynchronize",
    "c[0] = on_host(c[0]);": "a kernel can't call on_host",
    "float held[n];": device_code.VARIABLE_LENGTH,
    "const int m = n + 1; float held[2][m];": device_code.VARIABLE_LENGTH,
    "int m = 3; float held[m] = {};": device_code.VARIABLE_LENGTH,
    "float held[blockDim.x];": device_code.VARIABLE_LENGTH,
}
TAKEN = (
    "constexpr int m = std::max(3, 4); float held[m];",
    "const int m = 3; float held[m];",
    "float held[kSize * sizeof(n)];",
    "__shared__ float tile[32][33];",
    "static __shared__ float tile[32];",
    "static const float table[] = {1, 2};",
    'printf("new %d", 3);  // delete, throw: std::vector',
    "c[0] = std::numeric_limits<float>::max();",
    "std::size_t i = 3; c[i] = fmaxf(c[0], on_both(c[1])); c[n] = old[n];",
    "const float renewed = c[0], thrown = 1;",
)


def kernel(body: str) -> str:
    return ("float on_host(float a) { std::vector<float> v(3); return a + v[0]; }\n"
            "constexpr float on_both(float a) { return a; }\n"
            "template <int kSize>\n"
            f"__launch_bounds__(256) static __global__ void k(float* c, int n) {{\n{body}\n}}\n"
            "void launch_k(float* c, int n) {\n  std::vector<int> v(n);\n"
            "  LAUNCH((k<3>), 1, 1, 0, c, on_host(n));\n}\n")


@pytest.mark.parametrize("body", REFUSED)
def test_the_list_refuses(body):
    (line, words), = device_code.listed_problems(kernel(body))
    assert line == 5 and words.startswith(REFUSED[body])


@pytest.mark.parametrize("body", TAKEN)
def test_the_list_takes(body):
    assert device_code.listed_problems(kernel(body)) == []


@pytest.mark.parametrize("head", ["__device__ inline float f(float a)",
                                  "__host__ __device__ auto f(int n) -> int",
                                  "const auto f = [=] __device__(int n)",
                                  "struct S { __device__ int operator()(int n) const"])
def test_device_functions_of_all_kinds_are_looked_at(head):
    assert device_code.listed_problems(head + " {\n  throw 1;\n}") == [
        (2, "a kernel can't use throw: a GPU has no exceptions")]


def test_the_list_finds_nothing_in_the_repository():
    found = []
    for path in [*ROOT.glob("stage*/**/*.hip"), *ROOT.glob("stage*/**/*.h"), *ROOT.glob("common/*.h*")]:
        found += [f"{path}:{line}: {words}" for line, words in device_code.listed_problems(path.read_text())]
    assert found == []


# ---- Compilers ---------------------------------------------------------------------------------


# A file of each kind: for any GPU, and for NVIDIA's hardware alone.
INTS = {("1.3", "versions/shared_tree.hip"): ("for (size_t i = thread", "for (int i = thread"),
        ("2.4", "versions/mma_sync_sm80.hip"): ("const size_t to_row = row", "const int to_row = row")}


def course_of(number: str) -> exercises.Course:
    return exercises.load(next(step for step in steps.discover(ROOT) if step.number == number))


@pytest.fixture
def cpu(tmp_path, monkeypatch) -> Build:
    monkeypatch.setenv("COURSE_BUILD_DIR", str(tmp_path))
    return Build(ROOT, tmp_path / "cpu", "cpu", {})


# Complains of what a comment in the source asks for: "// say FILE:LINE:1: error: words", FILE may be "here".
COMPILER = """
import sys
text = open(sys.argv[-1]).read()
said = [line[7:].replace("here", sys.argv[-1]) for line in text.splitlines() if line.startswith("// say ")]
print("\\n".join(said), file=sys.stderr)
sys.exit(bool(said))
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    script = tmp_path / "compiler.py"
    script.write_text(COMPILER)
    fake = device_code.DeviceCompiler("fake", (sys.executable, str(script)), device_code.CLANG_MESSAGE)
    monkeypatch.setattr(device_code, "compilers", lambda: [fake])


def judged(cpu: Build, more: str) -> tuple[list[str], str]:
    course = course_of("1.3")
    name = "versions/shared_tree.hip"
    return device_code.problems(course, cpu, {name: course.solution(name) + more}, {name: "mine.hip"})


def test_a_compilers_error_in_the_file_counts(cpu, compiler):
    assert judged(cpu, "") == ([], "fake")
    assert judged(cpu, "// say here:7:1: error: no such thing") == (["mine.hip:7: no such thing"], "fake")


def test_an_error_elsewhere_counts_where_a_note_leads_to_the_file(cpu, compiler):
    more = ("// say /usr/include/array:9:1: error: reference to __host__ function 'f' in function\n"
            "// say here:8:1: note: called by 'k'\n")
    assert judged(cpu, more) == (["mine.hip:8: a kernel can't call f: it is a function of the host"], "fake")


def test_an_error_of_the_environment_does_not_count(cpu, compiler, monkeypatch):
    assert judged(cpu, "// say hip.h:9:1: fatal error: no such header") == ([], device_code.LISTED)
    monkeypatch.setattr(exercises.Course, "solution", lambda *_: "// say here:7:1: error: an old HIP")
    assert judged(cpu, "") == ([], device_code.LISTED)


def test_what_both_find_is_said_in_plain_words(cpu, compiler):
    more = "static __global__ void k() {\n  throw 1;\n}\n// say here:42:1: error: cannot use it\n"
    lines, by = judged(cpu, more)
    assert lines == ["mine.hip:42: a kernel can't use throw: a GPU has no exceptions"] and by == "fake"


def test_nvccs_words():
    fake = device_code.DeviceCompiler("nvcc", (), device_code.NVCC_MESSAGE)
    text = ('a.hip(3): error: calling a __host__ function("std::f") from a __global__ function("k") is not\n'
            'b.h(4): error: other\na.hip(5): warning #177-D: unused\n')
    assert list(device_code._places(fake, text, {"a.hip": "a"})) == [
        ("a", 3, "a kernel can't call std::f: it is a function of the host")]


needs_clang = pytest.mark.skipif(not any(compiler.name == "clang" for compiler in device_code.compilers()),
                                 reason="no clang with HIP's headers")


@needs_clang
@pytest.mark.parametrize("number", ["1.3", "3.2"])  # versions, and headers
def test_clang_takes_the_repositorys_own(cpu, number):
    course = course_of(number)
    own = {name: course.solution(name) for name in course.files}
    assert device_code.problems(course, cpu, own, {}) == ([], "clang")


@needs_clang
def test_clang_knows_what_the_list_does_not(cpu):
    course = course_of("1.3")
    name = course.files[0]
    begin, mark, end = course.solution(name).partition("  // exercise:")
    line = begin.count("\n") + 2
    text = "int on_host = 0;\n" + begin + "  on_host = 1;\n" + mark + end
    assert device_code.problems(course, cpu, {name: text}, {}) == (
        [f"{name}:{line}: a kernel can't use on_host: it is a variable of the host"], "clang")


@pytest.mark.parametrize("number, name", INTS)
@pytest.mark.parametrize("host", ["clang++", "g++"])
def test_an_int_that_takes_a_size_is_refused_whatever_compiler_is_here(cpu, number, name, host, monkeypatch):
    if not shutil.which(host):
        pytest.skip(f"no {host}")
    find = device_code.backend.find_program
    monkeypatch.setattr(device_code.backend, "find_program",
                        lambda program, folders: find(program, folders) if program == host else None)
    monkeypatch.setattr(device_code, "compilers", lambda: [])
    course = course_of(number)
    text, (old, new) = course.solution(name), INTS[number, name]
    assert text.count(old) == 1
    assert device_code.problems(course, cpu, {name: text}, {}) == ([], device_code.LISTED)
    line = text[:text.index(old)].count("\n") + 1
    (found,), by = device_code.problems(course, cpu, {name: text.replace(old, new)}, {})
    assert found.startswith(f"{name}:{line}: an int can't hold this ") and by == device_code.LISTED


@needs_clang
def test_a_file_for_nvidias_hardware_is_nothing_to_hip(cpu, monkeypatch):
    course, name = course_of("2.4"), "versions/mma_sync_sm80.hip"
    clang = next(compiler for compiler in device_code.compilers() if compiler.name == "clang")
    monkeypatch.setattr(device_code, "compilers", lambda: [clang])
    assert device_code.problems(course, cpu, {name: course.solution(name)}, {}) == ([], device_code.LISTED)


@pytest.mark.skipif(not any(compiler.name == "nvcc" for compiler in device_code.compilers()), reason="no nvcc")
@pytest.mark.parametrize("name", ["versions/mma_sync_sm80.hip", "versions/wgmma_sm90.hip"])
def test_nvcc_looks_at_a_file_for_nvidias_hardware(cpu, name):
    course = course_of("2.4")
    text = course.solution(name)
    both = {name: text, "versions/wmma.hip": course.solution("versions/wmma.hip")}
    lines, by = device_code.problems(course, cpu, both, {})
    assert lines == [] and by.split(" and ")[-1] == "nvcc"
    begin, mark, end = text.partition("    const TilePlace place = ")
    wrong = begin + "    on_host = 1;\n" + mark + end
    head, space, rest = wrong.partition("namespace gemm_mixed {\n")
    lines, by = device_code.problems(course, cpu, {name: head + "int on_host = 0;\n" + space + rest}, {})
    assert len(lines) == 1 and "a kernel can't use on_host" in lines[0] and by == "nvcc"


# ---- Shared memory -----------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_static_shared_memory_has_a_limit(tmp_path):
    source = tmp_path / "kernels.cpp"
    source.write_text("""#include "common/cpu/types.h"
namespace { template <int n> __global__ void large(float* c) {
  __shared__ float a[n], b[8];
  c[0] = a[1] += b[1] += 1;
} }
static __global__ void small(float* c) { __shared__ float a[1024]; c[0] = a[1] += 1; }
void* host() { static float table[100000]; return table; }
void launch(float* c) { large<12288>(c); small(c); }
""")
    made = tmp_path / "kernels.o"
    subprocess.run(["g++", "-std=c++17", "-O0", f"-I{ROOT}", "-c", source, "-o", made], check=True)
    assert device_code.too_much_shared_memory(made) == [
        "kernel large has 49184 bytes of shared memory; a block has 49152"]


def test_an_int_that_takes_a_size_is_named():
    words = device_code.plain("implicit conversion loses integer precision: 'unsigned long' to 'int'", [])
    assert words == "an int can't hold this unsigned long: sizes and indices may be more than 2^31"
    words = device_code.plain("implicit conversion loses integer precision: 'const size_t' "
                              "(aka 'const unsigned long') to 'const int'", [])
    assert words.startswith("an int can't hold this size_t")
    # A grid's number of blocks is unsigned, and launchers hold themselves to its limits.
    message = device_code.CLANG_MESSAGE.match(
        "a.hip:4:5: warning: implicit conversion loses integer precision: 'size_t' to 'uint32_t'")
    assert not device_code.is_refusal(message)
