"""scripts/bench_torch.py where it cannot measure: its figures need PyTorch and a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, committed_problems

# As little of PyTorch as the script needs to find out that there is no GPU.
TORCH = """
import sys, types
__version__ = "1.2.3"
Tensor = object
cuda = types.SimpleNamespace(is_available=lambda: False)
nn = types.ModuleType("torch.nn")
nn.Module = object
optim = types.SimpleNamespace(Optimizer=object)
device = object
float32, float16, bfloat16 = "float32", "float16", "bfloat16"
relu = sigmoid = tanh = None
functional = types.ModuleType("torch.nn.functional")
functional.__getattr__ = lambda name: None
nn.functional = sys.modules["torch.nn.functional"] = functional
sys.modules["torch.nn"] = nn
"""


def run(modules: Path, torch: str, *arguments: str) -> subprocess.CompletedProcess:
    (modules / "torch.py").write_text(torch, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(modules), "PYTHONDONTWRITEBYTECODE": "1"}
    script = [sys.executable, str(ROOT / "scripts" / "bench_torch.py"), *arguments]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


def test_without_pytorch_it_says_so(tmp_path: Path):
    result = run(tmp_path, "raise ImportError('No module named torch')")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == (
        "bench_torch: no PyTorch here (No module named torch): pip install torch\n")


def test_without_a_gpu_it_says_so(tmp_path: Path):
    result = run(tmp_path, TORCH)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "bench_torch: PyTorch 1.2.3 finds no GPU here\n"


@pytest.mark.parametrize("arguments, complaint", [
    (["mnits"], "'mnits' is unknown; there are matmul, xor, sales, mnist, cnn, small, medium"),
    (["--json", "/no/such/a.json"], "--json: there is no folder /no/such"),
    (["mnist", "--like", "a.json"], "either names or --like"),
    (["--repeat", "0"], "'0' is not a number from 1 to 10^10"),
])
def test_what_cannot_be_asked_for(tmp_path: Path, arguments: list[str], complaint: str):
    result = run(tmp_path, TORCH, *arguments)
    assert result.returncode == 2
    assert result.stderr.endswith(f"{complaint}\n")


# Layers that remember what they were made of, and settings that can be set.
RECORDER = TORCH + """
nn.__getattr__ = lambda name: lambda *values, **named: (name, *values, *named.items())
nn.Sequential = lambda *layers: list(layers)
manual_seed = lambda seed: None
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=True)),
    cudnn=types.SimpleNamespace(allow_tf32=True, benchmark=False))
"""


def look(folder: Path, program: str) -> object:
    """What a program prints as JSON that has bench_torch and the recording PyTorch."""
    (folder / "torch.py").write_text(RECORDER, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'scripts'}",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    begin = "import inspect, json, sys, torch, bench_torch\nfrom course_lib import problems, torch_tasks\n"
    result = subprocess.run([sys.executable, "-c", begin + program], env=environment,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_network_is_that_of_the_course(tmp_path: Path):
    found = look(tmp_path, """
bench_torch.use_float32()
print(json.dumps({"cnn": torch_tasks.cnn_network(64),
                  "toy": torch_tasks.mlp([2, 8, 2], torch.nn.Tanh),
                  "tf32": [torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32]}))
""")
    same = ["padding", 1]
    assert found["cnn"] == [
        ["Unflatten", 1, [1, 28, 28]],
        ["Conv2d", 1, 8, 3, same], ["ReLU"], ["MaxPool2d", 2],
        ["Conv2d", 8, 16, 3, same], ["ReLU"], ["MaxPool2d", 2],
        ["Flatten"], ["Linear", 784, 64], ["ReLU"], ["Linear", 64, 10]]
    assert found["toy"] == [["Linear", 2, 8], ["Tanh"], ["Linear", 8, 2]]
    assert found["tf32"] == [False, False]


def test_every_problem_has_a_function_that_takes_its_values(tmp_path: Path):
    (tmp_path / "texts.json").write_text(json.dumps(committed_problems()), encoding="utf-8")
    wrong = look(tmp_path, f"""
cases, wrong = bench_torch.Cases("cpu"), []
alone = [pair for pairs in bench_torch.ALONE.values() for pair in pairs]
for program, text in json.load(open({str(tmp_path / "texts.json")!r})) + alone:
    problem = problems.parse(program, text)
    if problem is None or problem.kind in torch_tasks.TASKS:
        continue
    try:
        function = getattr(cases, problem.kind, None) or bench_torch.Bench.measure_optimizer
        bound = [] if hasattr(cases, problem.kind) else [None]
        inspect.signature(function).bind(*bound, **problem.values)
    except (TypeError, AttributeError) as error:
        wrong.append([program, text, str(error)])
print(json.dumps(wrong + [pair for pair in alone if problems.parse(*pair) is None]))
""")
    assert wrong == []


# What a case is measured as: its time says whether a graph is captured too.
MEASURE = """
import contextlib
torch.no_grad = contextlib.nullcontext
class Device:
    type = "cuda"
bench = bench_torch.Bench(Device, None)
bench.times = lambda call, settle_ms=20: [call()]
bench.error_of = lambda case, call: (1e-7, 5)
bench.measure_graph = lambda prepare, once_ms, settle_ms: bench_torch.make_row("PyTorch CUDA graph", [prepare()()])
bench_torch.compiled = lambda function: function
problem = problems.Problem("dot", "dot", {})
def rows(ms, compiles):
    case = bench_torch.Case(lambda: ms, [], compiles=compiles)
    return [row["name"] for row in bench.measure_case(problem, case)]
def broken(function):
    raise ValueError("no compiler here\\nand more")
found = [rows(1.0, False), rows(0.1, False), rows(1.0, True)]
bench.functions.clear()
bench_torch.Case.call = lambda self, function: broken(function) if function == "new" else function
bench_torch.compiled = lambda function: "new" and (lambda: broken(function))
[row] = bench.measure_compiled(problem, bench_torch.Case(lambda: 1.0, [], compiles=True))
print(json.dumps([*found, [row["name"], row["status"], row["skipped"]], bench.functions[repr(problem)]]))
"""


def test_what_is_compiled_and_captured(tmp_path: Path):
    assert look(tmp_path, MEASURE) == [
        ["PyTorch eager"], ["PyTorch eager", "PyTorch CUDA graph"],
        ["PyTorch eager", "PyTorch compile"],
        ["PyTorch compile", "skipped", "no compiler here"], "no compiler here"]


# A graph of as many calls as take two milliseconds; a replay takes as many milliseconds as it may settle.
CAPTURE = """
import contextlib, types
none = lambda *_, **__: contextlib.nullcontext()
class Stream:
    def wait_stream(self, other):
        pass
torch.cuda = types.SimpleNamespace(Stream=Stream, current_stream=Stream, stream=none, graph=none,
                                   CUDAGraph=lambda: types.SimpleNamespace(replay=None))
bench = bench_torch.Bench(None, None)
bench.times = lambda call, settle_ms: [settle_ms]
def measured(once_ms):
    calls = []
    row = bench.measure_graph(lambda: lambda: calls.append(1), once_ms, 500)
    return [len(calls) - bench_torch.WARM_UPS, row["ms"]]
print(json.dumps([measured(0.8), measured(0.2), measured(0.02), measured(1e-4)]))
"""


def test_a_graph_has_many_calls_and_settles_as_they_do(tmp_path: Path):
    assert look(tmp_path, CAPTURE) == [[3, 500 / 3], [10, 50], [100, 5], [256, 500 / 256]]


def test_with_pytorch_every_kind_of_work_is_right(report: dict):
    torch = pytest.importorskip("torch")
    import bench_torch
    from test_bench_numpy import OPTIMIZERS, SMALL

    blocks = [("transformer_block", f"{way}   B=2 T=3 C=4 H=2 {precision}")
              for way in ("forward", "backward") for precision in ("float32", "bf16")]
    bench = bench_torch.Bench(torch.device("cpu"), Path("absent"), quick=True)
    for program, text in [*SMALL, *blocks, *OPTIMIZERS]:
        tables = bench.like({**report, "program": program, "tables": [{"problem": text, "rows": []}]})
        for row in tables[0]["rows"]:
            assert row["status"] == "ok", (text, row["skipped"])
            assert row["ms"] > 0
            assert (row["max_error"] or 0) < (
                0.2 if "bf16" in text else 1e-2 if "fp16" in text else 1e-4), text
