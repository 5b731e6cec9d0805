"""scripts/bench_jax.py: where there is no JAX, that it has every kind of work, and with JAX that all is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, committed_problems

# A JAX that can be asked for anything and does nothing.
JAX = """
import sys
from unittest.mock import MagicMock
jax = MagicMock(__path__=[], __version__="1.2.3")
sys.modules.update({"jax": jax, "jax.numpy": jax.numpy})
sys.modules["numpy"] = MagicMock()
"""


def environment_with(modules: Path, jax: str) -> dict:
    (modules / "jax.py").write_text(jax, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": f"{modules}:{ROOT / 'scripts'}", "PYTHONDONTWRITEBYTECODE": "1"}


def run(modules: Path, jax: str, *arguments: str) -> subprocess.CompletedProcess:
    script = [sys.executable, str(ROOT / "scripts" / "bench_jax.py"), *arguments]
    return subprocess.run(script, env=environment_with(modules, jax), capture_output=True, text=True, check=False)


def test_without_jax_it_says_so(tmp_path: Path):
    result = run(tmp_path, "raise ImportError('No module named jax')")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "bench_jax: no JAX here (No module named jax): pip install jax, or jax[cuda13]\n"


@pytest.mark.parametrize("arguments, complaint", [
    ([], "--like REPORT.json: whose work is to be done?"),
    (["--like", "absent.json"], "absent.json"),
    (["--like", "a.json", "--json", "/no/such/a.json"], "--json: there is no folder /no/such"),
])
def test_what_cannot_be_asked_for(tmp_path: Path, arguments: list[str], complaint: str):
    result = run(tmp_path, JAX, *arguments)
    assert result.returncode == 2
    assert complaint in result.stderr and result.stderr.count("\n") == 1


# Problems of the committed results for which there is neither a function of their values nor a reason.
UNKNOWN = """
import inspect, json, sys
import bench_jax
from course_lib import jax_training, problems
cases, unknown = bench_jax.Cases(1, False), []
for program, text in json.load(open(sys.argv[1])):
    problem = problems.parse(program, text)
    if problem is None or problem.kind in jax_training.TASKS:
        continue
    made_by = bench_jax.Bench.optimizer if problem.kind == "optimizer" else getattr(cases, problem.kind, None)
    try:
        if made_by is not None:
            inspect.signature(made_by).bind(*([cases] if problem.kind == "optimizer" else []), **problem.values)
        elif problem.kind not in ("allocations", "dispatch", "network", "memory_plan"):
            unknown.append([program, text, "no function"])
    except TypeError as error:
        unknown.append([program, text, str(error)])
print(json.dumps(unknown))
"""


def test_every_problem_has_a_function_that_takes_its_values(tmp_path: Path):
    (tmp_path / "texts.json").write_text(json.dumps(committed_problems()), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", UNKNOWN, str(tmp_path / "texts.json")],
                          env=environment_with(tmp_path, JAX), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


# Calls that the host waits 50 ms for, whatever they do.
LATE = """
import json, time
import bench_jax
bench_jax.jax.block_until_ready = lambda result: time.sleep(0.05)
run = bench_jax.time_queue(lambda: time.sleep(0.001))
print(json.dumps([run(1), run(20)]))
"""


def test_calls_are_waited_for_together(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", LATE], env=environment_with(tmp_path, JAX), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, twenty = json.loads(done.stdout)
    assert 51 <= one and 70 <= twenty < 20 * 51


TRAININGS = [
    ("train_toy", "xor   points=4 network=2-8-2 momentum lr=0.2 epochs=5"),
    ("train_toy", "spiral   points=30 network=2-8-3 adam lr=0.01 epochs=5"),
    ("train_sales", "rows=300 batch=64 epochs=2 adam float32"),
    ("train_mnist", "784-16-10   made (256 images)   sgd lr=0.1 batch=64 epochs=1"),
    ("train_cnn", "8C3-P2-16C3-P2-64-10   made (128 images)   adam lr=0.001 batch=64 epochs=1"),
    ("train_shakespeare", "layers=1 heads=2 width=8 context=16 batch=4 (1 parameters)   made   "
                          "adamw lr=0.003 steps=3"),
]


def test_with_jax_every_kind_of_work_is_right(report: dict, tmp_path: Path):
    pytest.importorskip("jax")
    import bench_jax
    from test_bench_numpy import OPTIMIZERS, SMALL

    more = [("activations", "gelu_erf forward   n=100 float32"), ("gemm_mixed", "bf16 TN   M=7 N=5 K=3"),
            ("gemm_mixed", "tf32   M=7 N=5 K=3"), ("gemm_mixed", "fp8   NT   M=16 N=32 K=48"),
            ("tensor", "every second column   2x3x4x6 float32"), ("tensor", "expand (H,W)   2x3x4x6 float32"),
            ("backends", "X * W   (2,3,7,6) -> 4 filters 3x3, stride 1x1, padding 1x1 float32"),
            ("autograd", "gradients of a perceptron   batch=4 width=5 layers=3 tanh float32"),
            ("autograd", "four operations and backward   n=2^5 float32"),
            ("autograd", "six branches in a row and backward   n=2^5 float32"),
            ("fusion", "gelu((y z + y) / 2) z + y   n=2^6 float32"),
            ("fusion", "mean of (x - m)^2 over each row   2^3x2^4 float32"),
            ("fusion", "gelu backward and its sum over the rows   2^3x2^4 float32")]
    blocks = [("transformer_block", f"{way}   B=2 T=3 C=4 H=2 {precision}")
              for way in ("forward", "backward") for precision in ("float32", "bf16")]
    bench_jax.configure(str(tmp_path))
    bench = bench_jax.Bench(Path("absent"), quick=True)
    for program, text in [*SMALL, *more, *blocks, *OPTIMIZERS, *TRAININGS]:
        [table] = bench.like({**report, "program": program, "tables": [{"problem": text, "rows": []}]})
        [row] = table["rows"]
        assert (row["status"], row["name"]) == ("ok", "JAX jit"), (text, row["skipped"])
        assert row["ms"] > 0
        assert (row["max_error"] or 0) < (0.2 if "bf16" in text else 1e-2 if "fp16" in text else 1e-4), text


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "adamw"])
def test_the_optimizers_are_those_of_the_course(rule: str):
    """Two steps of one number, by the formulas of step 5.4."""
    jax = pytest.importorskip("jax")
    from course_lib import jax_training

    rate, p, m, v = 0.1, 2.0, 0.0, 0.0
    parameters = {"p": jax.numpy.array(p)}
    state = jax_training.zeros_for(rule, parameters)
    for number, g in ((1, 0.5), (2, -3.0)):
        parameters, state = jax_training.updated(rule, parameters, state, {"p": jax.numpy.array(g)}, rate,
                                                 jax.numpy.int32(number))
        if rule in ("sgd", "momentum"):
            m = 0.9 * m + g if rule == "momentum" else g
            p -= rate * m
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p -= rate * 0.01 * p if rule == "adamw" else 0
            p -= rate * (m / (1 - 0.9**number)) / ((v / (1 - 0.999**number)) ** 0.5 + 1e-8)
    assert float(parameters["p"]) == pytest.approx(p, rel=1e-5)
