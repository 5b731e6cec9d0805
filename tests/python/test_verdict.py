"""What `course check` says of wrong files: each kind of mistake that could once pass, or was called by a
wrong name, in the kernels of steps 1.1 and 1.3, with the CPU backend's build that is here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from conftest import ROOT
from course_lib import check, compiling, exercises, fingerprints, learn, process, steps, verdict_words
from course_lib.build import Build, build_root
from course_lib.check import PLAIN, Outcome, Run
from course_lib.exercises import Course
from course_lib.verdict import Verdict


def course_of(name: str) -> Course:
    return exercises.load(next(step for step in steps.discover(ROOT) if step.name == name))


@dataclass(frozen=True)
class Said:
    ok: bool
    text: str

    def line(self, beginning: str) -> str:
        """The line that begins so."""
        found = [line for line in self.text.splitlines() if line.lstrip().startswith(beginning)]
        assert found, f"no line begins with '{beginning}':\n{self.text}"
        return found[0]


def changed(course: Course, file: str, *changes: tuple[str, str]) -> str:
    """The solution with some words replaced, of which each occurs once."""
    text = course.solution(file)
    for old, new in changes:
        assert text.count(old) == 1, f"{file}: '{old}' occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def cpu() -> Build:
    """The CPU backend's build, with the programs and the tests of both steps."""
    build = Build(ROOT, build_root(ROOT) / "cpu", "cpu", dict(os.environ))
    for program in ("vector_add", "vector_add_test", "dot", "dot_test"):
        if not (build.folder / "stage1_vector" / program).is_file():
            pytest.skip(f"{program} is not built for the CPU backend")
    return build


@pytest.fixture
def judge(cpu: Build, capsys) -> Callable[[str, dict[str, str]], Said]:
    """Judges texts of a step's files as `check` does."""

    def judged(name: str, files: dict[str, str]) -> Said:
        course = course_of(name)
        capsys.readouterr()
        named = {file: f"mine/{file}" for file in files}
        ok = learn._judge(course, cpu, files, named, fingerprints.load(ROOT))
        return Said(ok, capsys.readouterr().out)

    return judged


@pytest.fixture
def wrong(judge) -> Callable[..., Said]:
    """wrong("dot", "shared_tree", (old, new), ...): what `check` says of a version with these changes."""

    def judged(name: str, version: str, *changes: tuple[str, str]) -> Said:
        file = f"versions/{version}.hip"
        said = judge(name, {file: changed(course_of(name), file, *changes)})
        assert not said.ok, said.text
        return said

    return judged


TREE = """  sums[threadIdx.x] = sum;
  __syncthreads();  // every thread's sum is in sums
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
"""
ADD = "if (threadIdx.x == 0) atomicAdd(result, sums[0]);"


# ---- What could pass ---------------------------------------------------------------------------


def test_a_sum_without_an_atomic_is_a_race_on_its_line(wrong):
    said = wrong("dot", "shared_tree", (ADD, "if (threadIdx.x == 0) *result += sums[0];"))
    assert said.line("safety       FAILED").endswith("a data race")
    line = said.line("data race in dot_shared_tree: ")
    text = changed(course_of("dot"), "versions/shared_tree.hip",
                   (ADD, "if (threadIdx.x == 0) *result += sums[0];"))
    number = next(n for n, words in enumerate(text.splitlines(), 1) if "*result += sums[0]" in words)
    assert f"mine/versions/shared_tree.hip:{number}" in line
    assert said.line("wrong: ") == "  wrong: dot_shared_tree"


def test_a_missing_barrier_is_a_race(wrong):
    said = wrong("dot", "shared_tree", ("__syncthreads();  // every thread's sum is in sums", ""))
    assert "mine/versions/shared_tree.hip:" in said.line("data race in dot_shared_tree: ")


@pytest.mark.parametrize(("line", "words"), [
    ("std::vector<float> own(4);", "std::vector"),
    ("__shared__ float table[262144]; table[threadIdx.x] = 0;", "1049600 bytes of shared memory"),
])
def test_what_no_gpu_takes_is_refused_before_anything_runs(wrong, line, words):
    said = wrong("dot", "shared_tree", ("float sum = 0;", f"float sum = 0; {line}"),
                 ('#include "common/gpu.h"', '#include <vector>\n#include "common/gpu.h"'))
    assert words in said.text and "a GPU's compiler does not take this" in said.line("build        failed")
    assert "correctness" not in said.text


def test_a_read_just_behind_a_buffer_is_refused_though_its_value_does_not_matter(wrong):
    said = wrong("vector_add", "naive", ("if (i < n) c[i] = a[i] + b[i];",
                                         "const float sum = i <= n ? a[i] + b[i] : 0;\n  if (i < n) c[i] = sum;"))
    assert "a thread leaves its buffer" in said.line("safety       FAILED")
    assert "just past the end" in said.text or "past the end of" in said.text


def test_an_access_that_is_not_aligned_is_called_that(wrong):
    said = wrong("vector_add", "vectorized",
                 ("reinterpret_cast<const float4*>(a + split.head)", "reinterpret_cast<const float4*>(a)"))
    assert "a pointer is not aligned as its type asks" in said.line("safety       FAILED")
    assert said.line("fails only").endswith("or a buffer does not begin at a multiple of 16 bytes")


# ---- What had a wrong name ---------------------------------------------------------------------


def test_an_endless_loop_is_called_one_soon_and_ends_the_check(wrong):
    before = os.times()
    said = wrong("vector_add", "naive", ("if (i < n) c[i] = a[i] + b[i];", "while (i < n) c[i] = a[i] + b[i];"))
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 20  # 10 s of two processors: how long a loaded machine takes is no matter
    assert "an endless loop" in said.line("safety       FAILED")
    # Those that ran at the same time may be at their end, too.
    assert int(re.search(r"of (\d+) runs?", said.line("correctness  FAILED"))[1]) <= process.cpu_count()
    assert "looks like" not in said.text


def test_a_sum_in_shared_memory_that_nobody_has_set_to_0_is_nan(wrong):
    said = wrong("dot", "shared_tree", (TREE, "  atomicAdd(&sums[0], sum);\n  __syncthreads();\n"))
    assert "a result is NaN" in said.line("safety       FAILED")
    assert "looks like" not in said.text


def test_what_is_wrong_with_waves_of_64_only_is_said_first(wrong):
    """The lanes are counted in the lower 32 bits of a ballot."""
    once = "// exercise: the sum over the wave; one per wave to sums; their sum in wave 0 (about 9 lines)\n"
    loop = "  for (int distance = gpu::wave_size() / 2;"
    lanes = "__builtin_popcount(static_cast<unsigned>(gpu::wave_ballot(true)))"
    said = wrong("dot", "wave_shuffle", (once + loop, once + loop.replace("gpu::wave_size()", lanes)))
    lines = said.text.splitlines()
    assert lines[lines.index("  wrong: dot_wave_shuffle") + 1] == "  fails only with waves of 64"


def test_what_relies_on_the_order_of_blocks_is_called_that(wrong):
    said = wrong("dot", "shared_tree", (ADD, """if (threadIdx.x == 0) {
    if (blockIdx.x == 0) atomicExch(result, sums[0]);
    else atomicAdd(result, sums[0]);
  }"""))
    assert "only where threads or blocks run in another order" in said.line("fails only")


def test_each_exercise_is_right_wrong_or_still_empty(judge):
    course = course_of("dot")
    said = judge("dot", {
        "versions/shared_tree.hip": course.solution("versions/shared_tree.hip"),
        "versions/wave_shuffle.hip": changed(course, "versions/wave_shuffle.hip", (
            "gpu::lane_id() < waves ?", "gpu::lane_id() + 1 < waves ?")),
        "versions/loads_in_flight.hip": course.skeleton("versions/loads_in_flight.hip")})
    assert not said.ok
    assert said.line("right: ") == "  right: dot_shared_tree"
    assert said.line("wrong: ") == "  wrong: dot_wave_shuffle"
    assert said.line("still empty: ") == "  still empty: dot_loads_in_flight"


def test_of_two_exercises_in_one_row_the_wrong_one_is_named(judge):
    course = course_of("vector_add")
    said = judge("vector_add", {"versions/naive.hip": changed(course, "versions/naive.hip", (
        "c[i] = a[i] * b[i]", "c[i] = a[i] - b[i]"))})
    assert said.line("right: ") == "  right: add_naive"
    assert said.line("wrong: ") == "  wrong: multiply_naive"


@pytest.fixture
def known_mistake(cpu: Build, monkeypatch) -> None:
    """Nothing but one mistake of dot_shared_tree is known, whose fingerprint is that of the runs here."""
    course = course_of("dot")
    (exercise,) = course.named("dot_shared_tree")
    mistake = next(one for one in exercise.mistakes if one.name == "a tree that stops one round early")
    compiled = compiling.Compiler(cpu, course, build_root(ROOT) / "check" / "dot").compile(
        {exercise.file: course.with_mistake(exercise, mistake)}, {}, fast=True)
    runs = check.run_all(compiled.program, course, list(exercise.versions), False, {})
    monkeypatch.setattr(fingerprints.Signatures, "known", lambda self, course, asked: (
        {mistake.name: fingerprints.of(runs)} if asked.name == exercise.name else {}))


def test_a_mistake_is_named_only_where_the_same_runs_fail_in_the_same_way(known_mistake, wrong):
    said = wrong("dot", "shared_tree", ("half > 0", "half > 1"))
    assert said.line("dot_shared_tree looks like ") == (
        "  dot_shared_tree looks like a tree that stops one round early")
    assert "looks like" not in wrong("dot", "shared_tree", ("sum += x[i] * y[i]", "sum += x[i] + y[i]")).text


def test_a_shape_of_many_numbers_names_the_one_that_counts(capsys):
    """Every other shape is wrong, and all of those have a W that is no multiple of 4."""
    course = course_of("dot")
    exercise = course.exercises[0]

    def run(shape: str, ok: bool) -> Run:
        outcome = Outcome("direct", shape, "ok" if ok else "wrong", 0 if ok else 1, 1, 0, 1.0, 0.1)
        return Run(shape, PLAIN, (outcome,), dimensions=("N", "H", "W"))

    runs = [run("1x8x9", False), run("2x9x5", False), run("1x9x8", True), run("3x8x16", True)]
    verdict = Verdict(written=[exercise], wrong=[exercise], runs={exercise.versions: runs})
    verdict_words.say_correctness(replace(course, shapes=tuple(run.shape for run in runs)), verdict, 1.0)
    assert "  failing shapes: 1x8x9, 2x9x5   (W is no multiple of 4)\n" in capsys.readouterr().out
