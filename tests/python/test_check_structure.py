"""check_structure.py must be able to fail: it gets something good, then the same thing broken."""

import pytest
from conftest import run_script, write

STEP = "stage1_vector/01_vector_add"
COMMENT = """// y = 2 x    x, y (n).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element.
// Thread: t owns y[t].
// Costs : 8 n bytes.
"""
VERSION_OF_STEP = f"""#include "common/gpu.h"
// A comment may say % 32 and __shfl_sync.
{COMMENT}static __global__ void add_naive() {{}}
"""


@pytest.fixture
def project(tmp_path):
    """The smallest project that follows every rule."""
    files = {
        "CMakeLists.txt": f"set(steps\n  {STEP})\n",
        "README.md": f"| step | program |\n|---|---|\n| 1.1 | [`vector_add`]({STEP}) |\n",
        "common/gpu.h": "#pragma once\n",
        f"{STEP}/vector_add.h": "#pragma once\nextern const Version<Launch> kVersions[1];\n",
        f"{STEP}/vector_add.cpp": f'#include "{STEP}/vector_add.h"\n',
        f"{STEP}/vector_add_test.cpp": "",
        f"{STEP}/versions/naive.hip": VERSION_OF_STEP,
        f"{STEP}/README.md": "![](a.svg)\n",
        "build/headers/a.hip": '#include "common/gpu.h"\n',
        "build/headers/b.cpp": f'#include "{STEP}/vector_add.h"\n',
    }
    for name, text in files.items():
        write(tmp_path, name, text)
    return tmp_path


def structure(project):
    return run_script("check_structure.py", "--root", project, "--build", project / "build")


def test_a_project_that_follows_the_rules_passes(project):
    answer = structure(project)
    assert answer.returncode == 0, answer.stdout
    assert "1 steps" in answer.stdout and "0 findings" in answer.stdout


def test_a_step_without_versions_is_found(project):
    (project / STEP / "versions" / "naive.hip").unlink()
    assert only_finding(project) == f"{STEP}: versions/ has no .hip or .cpp file"


def test_a_step_without_a_row_or_without_a_build_is_found(project):
    write(project, "README.md", f"see {STEP}\n")
    write(project, "CMakeLists.txt", "")
    answer = structure(project)
    assert answer.returncode == 1
    assert "README.md: the roadmap has no row" in answer.stdout
    assert f"CMakeLists.txt: {STEP} is not in the list of steps" in answer.stdout


def test_a_row_without_a_step_is_found(project):
    readme = project / "README.md"
    readme.write_text(readme.read_text() + "| 1.2 | [`axpy`](stage1_vector/02_axpy) |\n")
    assert "links stage1_vector/02_axpy, which does not exist" in structure(project).stdout


@pytest.mark.parametrize(
    "line",
    [
        "int lane = threadIdx.x % 32;",
        "int wave = threadIdx.x / 64u;",
        "int lane = threadIdx.x & 31;",
        "int wave = threadIdx.x >> 5;",
        "constexpr int kWarpSize = 32;",
        "unsigned mask = 0xffffffff;",
        "int lanes = warpSize;",
        "x = __shfl_down_sync(mask, x, 1);",
        "x = __ballot(true);",
        "cudaDeviceSynchronize();",
        "cublasCreate(&handle);",
        'asm volatile("bar.sync 0;");',
        "__builtin_amdgcn_s_barrier();",
        "kernel<<<1, 1>>>();",
        '#include "stage2_matrix/01_transpose/transpose.h"',
        '#include "vector_add.h"',
        '#include "common/missing.h"',
    ],
)
def test_what_a_step_must_not_write_is_found_at_its_line(project, line):
    write(project, f"{STEP}/versions/naive.hip", VERSION_OF_STEP + line + "\n")
    answer = structure(project)
    assert answer.returncode == 1
    assert f"{STEP}/versions/naive.hip:9: " in answer.stdout


@pytest.mark.parametrize(
    "line",
    [
        "size_t half = n / 2, part = n % 320, high = word >> 32;",
        "int width = properties.warpSize;",
        "int lane = gpu::lane_id();  // not threadIdx.x % 32",
        'const char* text = "n % 32";',
        "float x = 1.0f / 32.0f;",
    ],
)
def test_what_only_looks_forbidden_is_let_through(project, line):
    write(project, f"{STEP}/versions/naive.hip", VERSION_OF_STEP + line + "\n")
    answer = structure(project)
    assert answer.returncode == 0, answer.stdout


def test_common_includes_no_step(project):
    write(project, "common/timer.h", f'#pragma once\n#include "{STEP}/vector_add.h"\n')
    write(project, "build/headers/c.hip", '#include "common/timer.h"\n')
    assert "common/timer.h:2: " in structure(project).stdout


# One lesson per file.

LADDER = "stage1_vector/02_axpy"
CONTRACT = """#pragma once
#include "common/gpu_runtime.h"
namespace axpy {
void launch_naive(float* y, const float* x, size_t n);
void launch_vectorized(float* y, const float* x, size_t n);
void best(float* y, const float* x, size_t n);
inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "one element per thread"},
    {"vectorized", launch_vectorized, "16 bytes per load"},
};
}  // namespace axpy
"""
VERSION = f"""#include "common/gpu.h"
#include "{LADDER}/axpy.h"
namespace axpy {{
{COMMENT}template <int kBlock>
static __global__ void axpy_NAME(float* y, const float* x, size_t n) {{
  // exercise: double it (about 1 line)
  if (threadIdx.x < n) y[threadIdx.x] = twice(x[threadIdx.x]);
  // end exercise
  __syncthreads();  // y is written
}}
void launch_NAME(float* y, const float* x, size_t n) {{ LAUNCH(axpy_NAME<1>, 1, 1, 0, y, x, n); }}
}}  // namespace axpy
"""
TWICE = """#pragma once
#include "common/gpu.h"
namespace axpy {
__device__ inline float twice(float x) { return x + x; }
}
"""


@pytest.fixture
def ladder(project):
    """The smallest project, with a second step that has all that a step may have."""
    files = {
        "CMakeLists.txt": f"set(steps\n  {STEP}\n  {LADDER})\n",
        "common/gpu_runtime.h": "#pragma once\n",
        "common/rounding.h": "#pragma once\n#define ROUNDED 1\ninline constexpr double kRoundoff = 6e-8;\n"
                             "double gamma(double n);\nstruct Carrier { double error; };\n",
        "common/testing.h": "#pragma once\n#if __has_include(<x>)\n#include <catch2/catch.hpp>\n#endif\n",
        f"{LADDER}/README.md": "# 1.2\n\n```\n x x x\n```\n",
        f"{LADDER}/axpy.h": CONTRACT,
        f"{LADDER}/axpy.cpp": f'#include "{LADDER}/axpy.h"\nint main() {{ return axpy::run(1); }}\n',
        f"{LADDER}/axpy_test.cpp": '#include "common/testing.h"\nvoid launch_wrong(float* y);\n',
        f"{LADDER}/axpy_test.hip": '#include "common/gpu.h"\n',
        f"{LADDER}/reference.h": "#pragma once\nstd::vector<double> axpy_cpu(double a);\n",
        f"{LADDER}/reference.cpp": f'#include "{LADDER}/reference.h"\n',
        f"{LADDER}/detail/twice.h": TWICE,
        f"{LADDER}/versions/naive.hip": VERSION.replace("NAME", "naive"),
        f"{LADDER}/versions/vectorized.hip": VERSION.replace("NAME", "vectorized"),
        f"{LADDER}/versions/best.hip": "namespace axpy {\nvoid best(float* y, const float* x, size_t n) {}\n}\n",
        f"{LADDER}/exercise.toml": '[[exercise]]\nfile = "versions/naive.hip"\n',
    }
    headers = [name for name in files if name.endswith(".h")]
    for number, header in enumerate(headers):
        suffix = "hip" if "detail" in header else "cpp"
        write(project, f"build/headers/new{number}.{suffix}", f'#include "{header}"\n')
    for name, text in files.items():
        write(project, name, text)
    with (project / "README.md").open("a") as readme:
        readme.write(f"| 1.2 | [`axpy`]({LADDER}) |\n")
    return project


def change(root, name, old, new):
    """Replaces `old` in a file of the step LADDER, or appends `new` where `old` is empty."""
    path = root / LADDER / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")


def only_finding(root):
    answer = structure(root)
    lines = answer.stdout.splitlines()
    assert answer.returncode == 1 and len(lines) == 2, answer.stdout + answer.stderr
    return lines[0]


def test_a_step_with_all_that_it_may_have_passes(ladder):
    answer = structure(ladder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 steps" in answer.stdout


@pytest.mark.parametrize("name", ["README.md", "axpy.h", "axpy.cpp", "axpy_test.cpp"])
def test_a_missing_file_is_found(ladder, name):
    (ladder / LADDER / name).unlink()
    assert f"{LADDER}: {name} is missing" in structure(ladder).stdout


def test_a_step_with_an_empty_folder_of_versions_is_found(ladder):
    for version in (ladder / LADDER / "versions").iterdir():
        version.unlink()
    assert f"{LADDER}: versions/ has no .hip or .cpp file" in structure(ladder).stdout


@pytest.mark.parametrize("name", ["axpy.hip", "notes.txt", "versions/shared.h", "detail/kernel.hip",
                                  "detail/deep/x.h", "data/x.csv", "versions/naive.c", "own/add.cpp"])
def test_what_is_no_file_of_a_step_is_found(ladder, name):
    write(ladder, f"{LADDER}/{name}", "#pragma once\n")
    assert f"{LADDER}: {name} is no file of a step" in structure(ladder).stdout


@pytest.mark.parametrize("name, most", [("axpy.h", 120), ("versions/vectorized.hip", 200), ("detail/twice.h", 250)])
def test_a_file_that_is_too_long_is_found(ladder, name, most):
    lines = len((ladder / LADDER / name).read_text().splitlines())
    change(ladder, name, "", "//\n" * (most - lines))
    assert structure(ladder).returncode == 0
    change(ladder, name, "", "//\n")
    assert f"{LADDER}/{name}: {most + 1} lines, of at most {most}" in only_finding(ladder)


@pytest.mark.parametrize("name, most", [
    ("common/timer.h", 400), ("scripts/course_lib/build.py", 400), ("cmake/step.cmake", 400), (".ci/run", 400),
    (f"{LADDER}/reference.cpp", 400), (f"{LADDER}/axpy_test.cpp", 500), (f"{LADDER}/arrays_for_tests.h", 500),
    ("common/tests/timer_test.hip", 500), ("tests/python/test_build.py", 500)])
def test_every_file_that_people_write_has_a_limit(ladder, name, most):
    begin = "#pragma once\n" if name.endswith(".h") else "# \n"
    begin = (ladder / name).read_text() if (ladder / name).is_file() else begin
    comment = "//\n" if name.endswith((".h", ".cpp", ".hip")) else "#\n"
    write(ladder, name, begin + comment * (most - begin.count("\n")))
    assert f"{name}: " not in "".join(line for line in structure(ladder).stdout.splitlines() if " lines, of" in line)
    write(ladder, name, begin + comment * (most - begin.count("\n") + 1))
    assert f"{name}: {most + 1} lines, of at most {most} for a " in structure(ladder).stdout


def test_tables_and_what_nobody_writes_do_not_count(ladder):
    table = "<!-- table: x -->\n" + "| 1 |\n" * 500 + "<!-- end table -->\n"
    write(ladder, "docs/operators.md", "text\n" * 399 + table)
    write(ladder, "results/mutants.json", "1\n" * 500)
    write(ladder, "scripts/course_lib/signatures.json", "1\n" * 500)
    write(ladder, "build/generated.cpp", "//\n" * 500)
    assert structure(ladder).returncode == 0
    write(ladder, "docs/operators.md", "text\n" * 401 + table)
    assert only_finding(ladder).startswith("docs/operators.md: 40")


@pytest.mark.parametrize("name, latest", [("naive", 29), ("vectorized", 40)])
def test_a_kernel_that_begins_too_late_is_found(ladder, name, latest):
    version = f"versions/{name}.hip"
    text = (ladder / LADDER / version).read_text()
    line = text[:text.index("__global__")].count("\n") + 1
    write(ladder, f"{LADDER}/{version}", "// __global__\n" * (latest - line) + text)
    assert structure(ladder).returncode == 0
    write(ladder, f"{LADDER}/{version}", "// __global__\n" * (latest - line + 1) + text)
    assert f"{LADDER}/{version}:{latest + 1}: " in only_finding(ladder)


@pytest.mark.parametrize("first", ['{"tiled_16", launch_naive, "16"},', '{"tiled_16", {launch_naive, 2}, "16"},'])
def test_the_first_version_is_the_file_that_defines_its_launcher(ladder, first):
    (ladder / LADDER / "versions/naive.hip").rename(ladder / LADDER / "versions/tiled.hip")
    change(ladder, "exercise.toml", "naive", "tiled")
    change(ladder, "axpy.h", '{"naive", launch_naive, "one element per thread"},', first)
    assert structure(ladder).returncode == 0
    text = (ladder / LADDER / "versions/tiled.hip").read_text()
    write(ladder, f"{LADDER}/versions/tiled.hip", "//\n" * 25 + text)
    assert "tiled.hip:35: the first version's first kernel begins at line 29" in only_finding(ladder)


def test_a_contract_without_a_list_of_versions_is_found(ladder):
    change(ladder, "axpy.h", "kVersions", "kOthers")
    assert f"{LADDER}/axpy.h: lists no kVersions" in only_finding(ladder)


def test_a_version_without_a_kernel_is_found_unless_a_detail_header_has_it(ladder):
    write(ladder, f"{LADDER}/versions/third.hip", f'#include "{LADDER}/detail/twice.h"\n')
    assert f"{LADDER}/versions/third.hip: has no kernel" in only_finding(ladder)
    change(ladder, "detail/twice.h", "", "static __global__ void axpy_twice() {}\n")
    assert structure(ladder).returncode == 0


def test_a_version_of_stage_0_may_be_host_code(project):
    write(project, "stage0_infra/05_memory_pool/versions/bump.hip", "void* take(size_t bytes) { return nullptr; }\n")
    assert "has no kernel" not in structure(project).stdout


def test_a_version_of_plain_cpp_reaches_no_kernel(project):
    version = "stage0_infra/05_memory_pool/versions/bump.cpp"
    write(project, version, '#include "common/gpu.h"\n')
    assert f"{version}:1: plain C++ includes common/gpu_runtime.h" in structure(project).stdout


def test_a_step_with_plugins_has_a_folder_for_each(project):
    for name in ("add.hip", "notes.txt"):
        write(project, f"stage8_framework/02_backends/own/{name}", "\n")
    found = structure(project).stdout
    assert "own/add.hip is no file" not in found and "own/notes.txt is no file" in found


@pytest.mark.parametrize("prose, fits", [
    ("word " * 1198, True),  # and the title's two
    ("word " * 1199, False),
    ("| word " * 1300 + "|", True),
    ("<!-- table: axpy -->\n" + "word\n" * 1300 + "<!-- end table -->", True),
    ("```\n" + "naive    1 ms    2 GB/s\n" * 400 + "```", True),
    ("```sh\n" + "scripts/course run 1.2\n" * 500 + "```", False),
])
def test_a_long_readme_is_found_but_its_tables_do_not_count(ladder, prose, fits):
    write(ladder, f"{LADDER}/README.md", f"# 1.2 axpy\n\n![](a.svg)\n\n{prose}\n")
    answer = structure(ladder)
    assert (answer.returncode == 0) is fits, answer.stdout
    assert fits or f"{LADDER}/README.md: " in only_finding(ladder)


@pytest.mark.parametrize("text, fits", [
    ("\n" * 39 + "![a ladder](a.svg)\n", True),
    ("\n" * 39 + '<img src="a.svg">\n', True),
    ("\n" * 40 + "```\n+--+\n```\n", False),
    ("```sh\nscripts/course run 1.2\n```\n", False),
])
def test_a_readme_without_an_early_picture_is_found(ladder, text, fits):
    write(ladder, f"{LADDER}/README.md", text)
    assert fits == (structure(ladder).returncode == 0)
    assert fits or "a picture is within the first 40 lines" in only_finding(ladder)


@pytest.mark.parametrize("name, line", [
    ("axpy.cpp", '#include "common/gpu.h"'),
    ("axpy_test.cpp", '#include "common/gpu.h"'),
    ("axpy_test.cpp", "static __global__ void spoil(float* y) {}"),
    ("reference.h", "inline void spoil() { LAUNCH(kernel, 1, 1, 0); }"),
    ("axpy.cpp", "void spoil() { LAUNCH_ON(stream, kernel, 1, 1, 0); }"),
])
def test_a_kernel_in_plain_cpp_is_found(ladder, name, line):
    before = len((ladder / LADDER / name).read_text().splitlines())
    change(ladder, name, "", f"{line}\n")
    assert f"{LADDER}/{name}:{before + 1}: " in only_finding(ladder)


def test_plain_cpp_that_reaches_gpu_h_through_a_header_is_found(ladder):
    write(ladder, "common/rounding.h", '#pragma once\n#if __CUDACC__\n#include "common/gpu.h"\n#endif\n')
    change(ladder, "axpy.cpp", "", '#include "common/rounding.h"\n')
    assert structure(ladder).returncode == 0
    write(ladder, "common/rounding.h", '#pragma once\n#include "common/gpu.h"\n')
    assert f"{LADDER}/axpy.cpp: plain C++ reaches common/gpu.h through common/rounding.h" in only_finding(ladder)


def test_kernels_of_a_test_with_catch2_are_found(ladder):
    change(ladder, "axpy_test.hip", "", '#include "common/testing.h"\n')
    assert f"{LADDER}/axpy_test.hip: includes Catch2 through common/testing.h" in only_finding(ladder)


@pytest.mark.parametrize("name", ["detail/twice.h", "axpy.cpp", "axpy.h"])
def test_an_exercise_outside_versions_is_found(ladder, name):
    change(ladder, name, "", "// exercise: nothing (about 0 lines)\n")
    assert "exercises stand in versions/ only" in only_finding(ladder)


def test_an_exercise_of_a_file_that_is_not_there_is_found(ladder):
    change(ladder, "exercise.toml", "naive.hip", "tiled.hip")
    assert f"{LADDER}/exercise.toml:2: versions/tiled.hip is not a file of versions/" in only_finding(ladder)


@pytest.mark.parametrize("hardware", ["sm80", "sm90", "cdna"])
def test_only_files_named_for_hardware_use_a_vendors_names(ladder, hardware):
    text = VERSION.replace("NAME", "mma").replace("twice(", "__builtin_amdgcn_twice(")
    write(ladder, f"{LADDER}/versions/mma_{hardware}.hip", text)
    assert structure(ladder).returncode == 0
    (ladder / LADDER / f"versions/mma_{hardware}.hip").rename(ladder / LADDER / "versions/mma.hip")
    assert "belongs in a file named for its hardware" in only_finding(ladder)


@pytest.mark.parametrize("word", ["Fixes", "Idea", "Thread", "Costs"])
def test_a_kernel_whose_comment_lacks_a_line_is_found(ladder, word):
    change(ladder, "versions/vectorized.hip", f"// {word}", "// Else")
    assert f"the comment above this kernel lacks {word}" in only_finding(ladder)


def test_a_kernel_below_another_ones_comment_is_found(ladder):
    change(ladder, "versions/vectorized.hip", "void launch_vec", "static __global__ void second() {}\nvoid launch_vec")
    assert "lacks Fixes, Idea, Thread, Costs" in only_finding(ladder)


@pytest.mark.parametrize("name", ["versions/naive.hip", "detail/twice.h"])
def test_a_barrier_without_a_comment_is_found(ladder, name):
    change(ladder, name, "", "__device__ inline void wait_NAME() { __syncthreads(); }\n".replace("NAME", name[0]))
    assert "a barrier has a comment behind it" in only_finding(ladder)


@pytest.mark.parametrize("line, finding", [
    ("static double gamma(double count) { return count; }", "gamma is defined in common/rounding.h"),
    ("struct Carrier {\n  float x;\n};", "Carrier is defined in common/rounding.h"),
    ("constexpr double kRoundoff = 6e-8;", "kRoundoff is defined in common/rounding.h"),
    ("#define ROUNDED 2", "ROUNDED is defined in common/rounding.h"),
    ("double gamma(double n);", ""),
    ("double gamma(double n, int terms) { return n * terms; }", ""),
    ("struct Carrier;", ""),
    ("namespace { template <class T = int> struct Pair { double gamma(double n) { return n; } }; }", ""),
    ("void f() { const auto gamma = [](double n) { return n; }; }", ""),
    ("// double gamma(double n) { return n; }", ""),
])
def test_a_second_definition_of_what_common_has_is_found(ladder, line, finding):
    change(ladder, "versions/naive.hip", "", line + "\n")
    if finding:
        assert finding in only_finding(ladder)
    else:
        answer = structure(ladder)
        assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("name", ["detail/twice.h", "reference.cpp", "axpy.cpp", "axpy_test.cpp", "axpy_test.hip"])
def test_a_second_definition_is_found_in_every_file_of_a_step(ladder, name):
    change(ladder, name, "", "static double gamma(double count) { return count; }\n")
    assert "gamma is defined in common/rounding.h" in only_finding(ladder)


def later_step(root, text):
    """A third step, whose program holds `text`."""
    step = "stage1_vector/03_dot"
    write(root, "CMakeLists.txt", f"set(steps\n  {STEP}\n  {LADDER}\n  {step})\n")
    with (root / "README.md").open("a") as readme:
        readme.write(f"| 1.3 | [`dot`]({step}) |\n")
    write(root, "build/headers/dot.cpp", f'#include "{step}/dot.h"\n')
    write(root, f"{step}/README.md", "![](a.svg)\n")
    write(root, f"{step}/dot.h", "#pragma once\nextern const Version<Launch> kVersions[1];\n")
    write(root, f"{step}/dot.cpp", text)
    write(root, f"{step}/dot_test.cpp", "")
    write(root, f"{step}/versions/naive.hip", f"{COMMENT}static __global__ void dot_naive() {{}}\n")


def test_a_second_definition_of_what_an_earlier_step_has_is_found(ladder):
    later_step(ladder, "float twice(float x) { return 2 * x; }\n")
    assert f"dot.cpp:1: twice is defined in {LADDER}/detail/twice.h" in only_finding(ladder)


def test_a_copy_under_another_name_is_found(ladder):
    body = "{\n  double sum = 0;  // COMMENT\n  for (double x : values) sum += x * x * x + x * x + x + 1;\n" \
           "  if (sum < 0) sum = -sum;\n  return sum;\n}\n"
    change(ladder, "reference.cpp", "", f"double cubic(const Values& values) {body}")
    later_step(ladder, f"static double together(const Values& values) {body.replace('COMMENT', 'a sum')}")
    assert f"dot.cpp:1: together is a copy of cubic in {LADDER}/reference.cpp" in only_finding(ladder)


def test_what_every_step_has_of_its_own_is_no_copy(ladder):
    change(ladder, "detail/twice.h", "", "struct Problem { int n; };\ninline double bound(double x) { return x; }\n")
    later_step(ladder, "struct Problem { int n; };\ndouble bound(double x) { return x; }\nint main() {}\n")
    answer = structure(ladder)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("line", ["static int round_up(int n) { return n; }", "struct Tile {};",
                                  "constexpr int kSide = 16;"])
def test_two_versions_that_define_the_same_are_found(ladder, line):
    change(ladder, "versions/naive.hip", "", line + "\n")
    assert structure(ladder).returncode == 0
    change(ladder, "versions/vectorized.hip", "", line + "\n")
    assert "is defined in versions/naive.hip, too" in only_finding(ladder)


@pytest.mark.parametrize("header", ["axpy.h", "detail/twice.h", "reference.h"])
def test_each_header_of_a_step_is_compiled_alone(ladder, header):
    for source in (ladder / "build/headers").iterdir():
        if f"{LADDER}/{header}" in source.read_text():
            source.unlink()
    if header != "detail/twice.h":  # it is the first that the source beside it includes
        assert structure(ladder).returncode == 0
        change(ladder, header.replace(".h", ".cpp"), "#include", "#include <vector>\n#include")
    assert f"{LADDER}/{header}: is not compiled alone" in only_finding(ladder)


@pytest.mark.parametrize("name", [f"{STEP}/vector_add.cpp", f"{STEP}/vector_add_test.cpp", f"{STEP}/vector_add.h"])
def test_an_include_of_a_later_step_of_the_same_stage_is_found(ladder, name):
    path = ladder / name
    path.write_text(path.read_text() + f'#include "{LADDER}/axpy.h"\n')
    assert f'"{LADDER}/axpy.h" is in a later step: arrows go only down' in only_finding(ladder)


def test_a_version_includes_earlier_steps_and_no_later_ones(ladder):
    change(ladder, "versions/vectorized.hip", "", f'#include "{STEP}/vector_add.h"\n')
    assert structure(ladder).returncode == 0
    later_step(ladder, "")
    change(ladder, "versions/vectorized.hip", "", '#include "stage1_vector/03_dot/dot.h"\n')
    assert "is in a later step" in only_finding(ladder)
