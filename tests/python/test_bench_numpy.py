"""scripts/bench_numpy.py: it does the work of every kind of problem, or says that it cannot."""

from __future__ import annotations

import pytest

# A small problem of every kind.
SMALL = [
    ("vector_add", "c = a * b   n=100 float32"), ("axpy", "y = alpha * x   n=100 float32"),
    ("axpy", "y = alpha * x + y   n=100 float32"), ("dot", "n=100 float32"),
    ("activations", "tanh forward   n=100 float32"), ("activations", "softplus backward   n=100 float32"),
    ("transpose", "7x5 float32"), ("gemv", "y = alpha A x   A 7x5 float32"),
    ("gemv", "y = alpha A^T x   A 7x5 float32"), ("gemm", "NN   M=7 N=5 K=3 float32"),
    ("gemm", "NT   M=7 N=5 K=3 float32"), ("gemm", "TN   M=7 N=5 K=3 float32"),
    ("gemm_mixed", "fp16   M=7 N=5 K=3"), ("matrix_activations", "relu(X + bias)   7x5 float32"),
    ("matrix_activations", "gelu_tanh(X + bias) backward   7x5 float32"), ("softmax", "7x5 float32"),
    ("losses", "squared error and gradient   n=100 float32"),
    ("losses", "cross-entropy and gradient   7x5 float32"),
    ("dense", "relu(X W^T + b)   batch 7, 5 -> 3 float32"),
    ("mlp_forward", "batch 7, 5 -> 4 -> 3 float32"),
    ("dense_backward", "grad_W, grad_b, grad_X   batch 7, 5 -> 3 float32"),
    ("activation_backward", "sigmoid backward, with bias   7x5 float32"),
    ("activation_backward", "softmax backward   7x5 float32"),
    ("activation_backward", "softmax + cross-entropy backward   7x5 float32"),
    ("sequential", "batch 7, 5 -> 4 -> 4 -> 3 float32"),
    ("conv2d", "relu(X * W + b)   (2,3,7,6) -> 4 filters 3x3, stride 1x1, padding 1x1 float32"),
    ("conv2d_backward", "grad_X   (2,3,7,6) -> 4 filters 3x3, stride 1x1, padding 1x1 float32"),
    ("conv2d_backward", "grad_W   (2,3,7,6) -> 4 filters 3x3, stride 1x1, padding 1x1 float32"),
    ("conv2d_backward", "grad_W, grad_b, grad_X   (2,3,7,6) -> 4 filters 3x3, stride 1x1, padding 1x1 float32"),
    ("maxpool", "3x3 every 2, padding 1, forward   2x3x7x6 float32"),
    ("embedding", "embedding   B=2 T=3 C=4 V=5 float32"),
    ("embedding", "embedding backward   B=2 T=3 C=4 V=5 float32"),
    ("layernorm", "layernorm   7x5 float32"), ("layernorm", "layernorm of a sum   7x5 float32"),
    ("layernorm_backward", "layernorm backward   7x5 float32"),
    ("attention", "forward   B=2 H=3 T=5 D=4, causal float32"),
    ("attention", "forward   B=2 H=3 T=5 D=4, 1 query, causal float32"),
    ("attention_backward", "backward   B=2 H=3 T=5 D=4, full float32"),
]
OPTIMIZERS = [("optimizers", f"{rule}   n=100 tensors=3 float32")
              for rule in ("sgd", "momentum", "adam", "adamw")]


@pytest.mark.parametrize(("program", "text"), SMALL + OPTIMIZERS)
def test_numpy_does_the_work(report: dict, program: str, text: str):
    pytest.importorskip("numpy")
    import bench_numpy

    report = {**report, "program": program, "tables": [{"problem": text, "rows": []}]}
    [table] = bench_numpy.Bench(quick=True).like(report)
    [row] = table["rows"]
    assert row["status"] == "ok", row["skipped"]
    assert row["name"] == "NumPy" and row["ms"] > 0 and row["compared"] > 0
    assert row["max_error"] < (1e-2 if "fp16" in text else 1e-4)


@pytest.mark.parametrize(("program", "text", "reason"), [
    ("activations", "gelu_erf forward   n=100 float32", "NumPy has no erf"),
    ("gemm_mixed", "bf16   M=7 N=5 K=3", "NumPy has no bf16"),
    ("gemm_mixed", "bf16 NT   M=7 N=5 K=3", "NumPy has no bf16"),
    ("gemm_mixed", "fp8   NT   M=7 N=5 K=3", "NumPy has no fp8"),
    ("transformer_block", "forward   B=2 T=3 C=4 H=2 float32", "no obvious NumPy expression"),
    ("hello_gpu", "2 blocks of 80 threads", "no NumPy counterpart"),
])
def test_numpy_says_what_it_cannot_do(report: dict, program: str, text: str, reason: str):
    pytest.importorskip("numpy")
    import bench_numpy

    report = {**report, "program": program, "tables": [{"problem": text, "rows": []}]}
    [table] = bench_numpy.Bench(quick=True).like(report)
    assert table["rows"][0]["skipped"] == reason
