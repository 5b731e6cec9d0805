"""Problems as the programs word them: what bench's peers read out of a table's heading."""

from __future__ import annotations

import pytest
from conftest import ROOT
from course_lib import problems, results

# Programs whose work has no counterpart in another library, and the one table that has none.
ALONE = {"hello_gpu", "error_check", "timing", "device_matrix", "memory_pool", "first_kernels",
         "gradient_check"}


def committed_problems() -> list[tuple[str, str]]:
    reports = [results.load(path) for path in sorted(ROOT.glob("results/h200/*.json"))]
    return [(report["program"], table["problem"]) for report in reports for table in report["tables"]]


def test_every_committed_problem_is_understood():
    unknown = {(program, text) for program, text in committed_problems()
               if problems.parse(program, text) is None and program not in ALONE}
    assert unknown == {("train_sales", "optimizers   persistent")}


@pytest.mark.parametrize(("program", "text", "kind", "values"), [
    ("dot", "n=2^28 float32", "dot", {"n": 2**28}),
    ("gemm", "TN   M=129 N=2^12 K=3 float32", "gemm", {"layout": "TN", "M": 129, "N": 4096, "K": 3}),
    ("gemm_mixed", "fp32   NN   M=2^12 N=2^12 K=2^12", "gemm",
     {"layout": "NN", "M": 4096, "N": 4096, "K": 4096}),
    ("gemm_mixed", "bf16 TN   M=2^13 N=16 K=32", "gemm_mixed",
     {"precision": "bf16", "layout": "TN", "M": 8192, "N": 16, "K": 32}),
    ("gemm_mixed", "fp8   NT   M=2^13 N=16 K=32", "gemm_mixed",
     {"precision": "fp8", "M": 8192, "N": 16, "K": 32}),
    ("transpose", "2^14x16381 float32", "transpose", {"rows": 2**14, "cols": 16381}),
    ("gemv", "y = alpha A x   A 2^10x43 float32", "gemv",
     {"transposed": "", "rows": 1024, "cols": 43}),
    ("layernorm", "layernorm of a sum   8x9 float32", "layernorm",
     {"what": "of a sum", "rows": 8, "cols": 9}),
    ("attention", "forward   B=8 H=16 T=2^12 D=64, 1 query, causal bf16", "attention",
     {"way": "forward", "B": 8, "H": 16, "T": 4096, "D": 64, "queries": 1, "mask": "causal",
      "precision": "bf16"}),
    ("tensor", "NHWC of NCHW   2^6x3x5x7 float32", "view_copy",
     {"view": "NHWC of NCHW", "N": 64, "C": 3, "H": 5, "W": 7}),
    ("train_toy", "xor   points=4 network=2-8-2 momentum lr=0.2 epochs=5000", "train_toy",
     {"data": "xor", "points": 4, "network": "2-8-2", "optimizer": "momentum",
      "learning_rate": "0.2", "epochs": 5000}),
])
def test_a_problem_says_its_shape(program: str, text: str, kind: str, values: dict):
    assert problems.parse(program, text) == problems.Problem(program, kind, values)


@pytest.mark.parametrize(("program", "text"), [
    ("dot", "n=2^28 float64"), ("gemm", "NN   M=1 N=2 K=3"), ("mystery", "n=4 float32"), ("dot", "")])
def test_another_text_is_not_guessed_at(program: str, text: str):
    assert problems.parse(program, text) is None
