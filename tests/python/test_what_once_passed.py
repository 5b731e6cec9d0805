"""Wrong kernels that `course check` once let pass, many of them with a medal: each is refused now. Their inputs
are what a small run of a program does not have: strides that differ, rows of -1000, grids smaller than the work.

They are judged as the mutants are, at the same time where there are several processors, with the CPU backend's
build that is here.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from conftest import ROOT
from course_lib import exercises, process, steps
from course_lib.build import Build, build_root
from course_lib.verdict import Judge, Refusal


@dataclass(frozen=True)
class Wrong:
    """A version with some words replaced, of which each occurs once."""

    program: str
    version: str
    changes: tuple[tuple[str, str], ...]
    reason: str = ""  # the only one to refuse it for; "": any but that it is no code


def wrong(program: str, version: str, *changes: tuple[str, str], reason: str = "") -> Wrong:
    return Wrong(program, version, changes, reason)


SECOND_ROUND = ("i += threads", "i = n")
VOLATILE = """  for (unsigned half = kBlock / 2; half > 32; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
  volatile float* last = sums;
  if (threadIdx.x < 32)
    for (unsigned half = 32; half > 0; half /= 2) last[threadIdx.x] += last[threadIdx.x + half];
"""
TREE = """  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
"""

CASES = {
    "a grid for n = 256 k + 1": wrong("vector_add", "naive", (
        "gpu::ceil_div(count, kNaiveBlock);\n    LAUNCH_ON(stream, add_naive",
        "std::max<size_t>((count + kNaiveBlock - 2) / kNaiveBlock, 1);\n    LAUNCH_ON(stream, add_naive")),
    "a read just before a buffer": wrong("vector_add", "naive", (
        "if (i < n) c[i] = a[i] + b[i];",
        "const float before = i < n ? a[i - 1] : 0;\n  if (i < n) c[i] = before == 12345 ? 0 : a[i] + b[i];"),
        reason="outside"),
    "a pointer that is one float off alignment": wrong("axpy", "vectorized", (
        "{y, x});\n  LAUNCH_ON(stream, (update_vectorized<Axpy>)", "{y});\n  LAUNCH_ON(stream, (update_vectorized<Axpy>)")),
    "a reduction whose last wave knows no barrier": wrong("dot", "shared_tree", (TREE, VOLATILE)),
    "rows that are as long as a row's distance": wrong("gemv", "vectorized", (
        "min(first_row + r, p.rows - 1) * p.lda", "min(first_row + r, p.rows - 1) * p.cols")),
    "unequal strides": wrong("conv2d", "direct", (
        "pixel % Q * static_cast<int>(p.stride_w)", "pixel % Q * static_cast<int>(p.stride_h)")),
    "unequal paddings": wrong("conv2d", "direct", (
        "- static_cast<int>(p.pad_w)", "- static_cast<int>(p.pad_h)")),
    "rows of -1000": wrong("softmax", "block_per_row", ("float max = -FLT_MAX, sum", "float max = 0, sum")),
    "scores of ten thousand": wrong("attention", "fused", (
        "softmax::exponential(row[j] - max)", "softmax::exponential(row[j])"), ("max + logf(sum)", "logf(sum)")),
    "more queries than keys": wrong("attention", "composed", (
        "key < visible_keys(p, query)", "(!p.causal || key <= query)")),
    "labels that are ignored": wrong("losses", "from_probabilities", (
        "const float weight = label >= 0 ? 1.0f / count.value() : 0.0f;",
        "const float weight = 1.0f / count.value();")),
    "NaN that is no maximum": wrong("maxpool", "thread_per_output", (
        "!(value <= best) && best == best", "value > best")),
    "the last of equal maxima": wrong("maxpool", "thread_per_output", (
        "!(value <= best) && best == best", "!(value < best) && best == best")),
    "gradients of 0": wrong("optimizers", "per_tensor", (
        "    const float g = grad_w[i];\n    float", "    const float g = grad_w[i];\n    if (g == 0) continue;\n    float")),
    "beta = 1": wrong("dense_backward", "naive", (
        "beta == 0 ? sum : sum + beta * grad_bias[o]", "sum")),
    "a row whose first element is far from the others": wrong("softmax", "block_per_row", (
        "float max = -FLT_MAX, sum = 0;", "float max = row_x[0], sum = 0;"), (
        "    for (size_t c = threadIdx.x; c < cols; c += kBlock) max = fmaxf(max, row_x[c]);\n"
        "    max = block_max_tree(max);\n", "")),
    "fewer blocks than items: inputs that are rounded": wrong("gemm_mixed", "round_inputs", SECOND_ROUND),
    "fewer blocks than items: an embedding": wrong("embedding", "element_per_thread", (
        "k += threads", "k = n")),
    "fewer blocks than items: a mask": wrong("attention", "composed", (
        "query += gridDim.y", "query += p.Tq")),
    "fewer blocks than items: the heads of a mask": wrong("attention", "composed", (
        "head += gridDim.z", "head += p.B * p.H")),
    "fewer blocks than items: the heads of sums": wrong("attention", "composed", (
        "head += gridDim.y", "head += p.B * p.H")),
    "blocks that leave their sums in one place": wrong("train_sales", "fused", (
        "block_sums + blockIdx.x * kSlotParts", "block_sums")),
    "a gradient 20% too small: 5.6": wrong("train_toy", "one_kernel", (
        "grads[at] = sums[j] *", "grads[at] = 0.8f * sums[j] *")),
    "a gradient 20% too small: 5.7": wrong("train_sales", "fused", (
        "sums[s] > 0 ? grad_y * unit.out_weight", "sums[s] > 0 ? 0.8f * grad_y * unit.out_weight")),
    "a gradient 20% too small: 5.8": wrong("train_mnist", "fused", (
        "= grad * activations::Relu", "= 0.8f * grad * activations::Relu")),
    "a gradient 20% too small: 6.4": wrong("train_cnn", "per_image", (
        "  if (is_back)\n    route_to_sums1", "  for (auto& row : grads1)\n    for (float& grad : row) grad *= 0.8f;\n"
        "  if (is_back)\n    route_to_sums1")),
}


def judged(case: Wrong) -> Refusal | None:
    """None: the step's program or its test is not built here."""
    step = next(step for step in steps.discover(ROOT) if step.name == case.program)
    build = Build(ROOT, build_root(ROOT) / "cpu", "cpu", dict(os.environ))
    if not all(build.program(step).with_name(name).is_file() for name in (step.name, f"{step.name}_test")):
        return None
    course, file = exercises.load(step), f"versions/{case.version}.hip"
    text = course.solution(file)
    for old, new in case.changes:
        assert text.count(old) == 1, f"{step.number} {file}: '{old}' occurs {text.count(old)} times"
        text = text.replace(old, new)
    rows = [version for exercise in course.exercises if exercise.file == file for version in exercise.versions]
    return Judge(course, build).refusal({file: text}, rows)


@pytest.fixture(scope="module")
def refusals() -> dict[str, Refusal | Exception | None]:
    """What becomes of each case."""
    def result(name: str) -> Refusal | Exception | None:
        try:
            return judged(CASES[name])
        except Exception as error:  # belongs to one test, not to all of them
            return error

    with ThreadPoolExecutor(process.cpu_count()) as pool:
        return dict(zip(CASES, pool.map(result, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(refusals, name: str):
    refusal = refusals[name]
    if refusal is None:
        pytest.skip("the step is not built for the CPU backend")
    if isinstance(refusal, Exception):
        raise refusal
    wanted = CASES[name].reason
    assert refusal.reason == wanted if wanted else refusal.reason not in ("", "compile", "device"), refusal
