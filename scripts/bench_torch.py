#!/usr/bin/env python3
"""Does the course's work in PyTorch on this machine: the peer to compare with.

scripts/bench_torch.py                     matmul, and whole trainings: xor, sales, mnist, cnn, small, medium
scripts/bench_torch.py mnist --json FILE   one of them; the figures also as JSON
scripts/bench_torch.py --like build/cuda/results/gemm.json
                                           for each table of a program's results the same work, at the same
                                           shape; `scripts/course bench` calls it so

Inputs are random, on the device, and as large as the program's: larger than the last-level cache where
the program's are. A time is that of CUDA events around calls that follow one another, after a warm-up;
what is shown is the median and the 10th and 90th percentile. Without a GPU it is the host's clock.

PyTorch eager        a call as one writes it, with PyTorch's fused functions where there are any
PyTorch compile      the same through torch.compile, where that can gain: more than one operation over the
                     same numbers, softmax, losses, layernorm, transformers
PyTorch CUDA graph   calls captured and replayed, where one takes so little that launching it counts

Everything is float32 without TF32 unless it says otherwise; cuDNN tries its algorithms and keeps the
fastest. The backward passes are autograd's, without the forward pass before them. An error is the largest
difference to the same work in double precision. Trainings are those of course_lib/torch_training.py, with
the model, data, batch, optimizer, precision and seed that are printed with them.

Exit codes: 0 all is well, 1 PyTorch failed, 2 the request must change, 3 no PyTorch, or no GPU for what
needs one.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from course_lib import peers, problems
from course_lib.arguments import Parser
from course_lib.errors import MISSING, USAGE, CourseError
from course_lib.peers import CannotDo, blank_row, first_line, make_row

try:
    import torch
except ImportError as error:
    print(f"bench_torch: no PyTorch here ({error}): pip install torch", file=sys.stderr)
    sys.exit(MISSING)

from course_lib import torch_training
from course_lib.torch_cases import Case, Cases, Function, largest_difference

PEER = "PyTorch"
# A call of less may be held up by its launches, and is captured in a graph too: common/measure.h's kGraphBelow.
SHORT_MS = 1
WARM_UPS = 3  # calls before a capture
QUICK_REPEAT = 3
BUDGET_MS = 150  # for the timed calls of a row

# What is measured where no report is given: problems in the words of the programs.
ALONE = {
    "matmul": [("gemm", "NN   M=2^12 N=2^12 K=2^12 float32"),
               ("gemm", "NN   M=2^13 N=2^13 K=2^13 float32"),
               ("gemm_mixed", "tf32   M=2^13 N=2^13 K=2^13"),
               ("gemm_mixed", "fp16   M=2^13 N=2^13 K=2^13"),
               ("gemm_mixed", "bf16   M=2^13 N=2^13 K=2^13")],
    "xor": [("train_toy", "xor   points=4 network=2-8-2 momentum lr=0.2 epochs=5000")],
    "sales": [("train_sales", "rows=292800 batch=1024 epochs=50 adam float32")],
    "mnist": [("train_mnist", "784-128-10   MNIST (60000 images)   adam lr=0.001 batch=64 epochs=10")],
    "cnn": [("train_cnn",
             "8C3-P2-16C3-P2-64-10   MNIST (60000 images)   adam lr=0.001 batch=64 epochs=10")],
    "small": [("train_shakespeare",
               "layers=2 heads=4 width=64 context=128 batch=32 (116608 parameters)   "
               "Tiny Shakespeare   adamw lr=0.003 steps=1000")],
    "medium": [("train_shakespeare",
                "layers=6 heads=6 width=384 context=256 batch=64 (10795776 parameters)   "
                "Tiny Shakespeare   adamw lr=0.001 steps=200")],
}


# ---- Measuring ---------------------------------------------------------------------------------


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def use_float32() -> None:
    """cuDNN's convolutions round to TF32 unless they are told not to."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def compiled(function: Function) -> Function:
    """torch.compile keeps what it has made for a piece of code and gives up after a few shapes: each
    problem gets code of its own."""
    import torch._functorch.config as functorch

    functorch.donated_buffer = False  # a backward pass is timed more than once
    if isinstance(function, types.FunctionType):
        function = types.FunctionType(function.__code__.replace(co_name=function.__name__),
                                      function.__globals__, function.__name__,
                                      function.__defaults__, function.__closure__)
    return torch.compile(function, dynamic=False)


class Bench:
    """Measures problems on a device. It keeps what torch.compile has made for the next round."""

    def __init__(self, device: torch.device, data: Path, repeat: int = 0, trainings: int = 1,
                 quick: bool = False):
        self.device, self.repeat, self.quick = device, repeat, quick
        self.cases = Cases(device)
        self.trainings = torch_training.Trainings(device, data, trainings, quick)
        self.functions: dict[str, Function | str] = {}  # of a problem: compiled, or why it is not
        self.seen: set[str] = set()  # kinds that were compiled
        self.checked: set[str] = set()  # problems whose error is known
        self.seed = 1

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def measure(self, problem: problems.Problem) -> list[dict]:
        torch.manual_seed(self.seed)
        try:
            if problem.kind in torch_training.TASKS:
                return self.trainings.measure(problem, self.seed)
            if problem.kind == "optimizer":
                return self.measure_optimizer(**problem.values)
            return self.measure_case(problem, self.cases.make(problem))
        except RuntimeError as error:  # out of memory among them
            raise CannotDo(first_line(error)) from None
        finally:
            if self.on_gpu:
                torch.cuda.empty_cache()

    def times(self, call: Callable[[], object], settle_ms: float = 20) -> list[float]:
        least_ms = 0.2
        if self.on_gpu:
            least_ms = peers.BY_EVENTS_MS
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

            def run(count: int) -> float:
                start.record()
                for _ in range(count):
                    call()
                stop.record()
                stop.synchronize()
                return start.elapsed_time(stop)
        else:
            run = peers.time_host(call)
        repeat = self.repeat or (QUICK_REPEAT if self.quick else 0)
        return peers.time_call(run, repeat, 0 if self.quick else settle_ms, BUDGET_MS, least_ms)

    def measure_case(self, problem: problems.Problem, case: Case) -> list[dict]:
        with tf32(case.tf32):
            call = case.call(case.function)
            error, compared = self.error_of(case, call) if repr(problem) not in self.checked else (None, 0)
            self.checked.add(repr(problem))
            eager = make_row("PyTorch eager", self.times(call, case.settle_ms), case.note, error,
                             compared)
            rows = [eager]
            del call
            if case.compiles and self.on_gpu:
                rows += self.measure_compiled(problem, case)
            if self.on_gpu and eager["ms"] < SHORT_MS:
                rows.append(self.measure_graph(lambda: case.call(case.function), eager["ms"], case.settle_ms))
        return rows

    def error_of(self, case: Case, call: Callable[[], object]) -> tuple[float | None, int]:
        """(None, 0) where there is no room for the same in double precision."""
        got = call()
        try:
            return largest_difference(got, case.in_double().call(case.function)())
        except (RuntimeError, MemoryError):
            return None, 0
        finally:
            if self.on_gpu:
                torch.cuda.empty_cache()

    def measure_compiled(self, problem: problems.Problem, case: Case) -> list[dict]:
        """Compiling takes seconds: --quick does it once for each kind of work."""
        key = repr(problem)
        if key not in self.functions and self.quick and problem.kind in self.seen:
            return []
        self.seen.add(problem.kind)
        function = self.functions.get(key) or compiled(case.function)
        try:
            if isinstance(function, str):
                raise CannotDo(function)
            row = make_row("PyTorch compile", self.times(case.call(function), case.settle_ms))
        except Exception as error:  # torch.compile fails in as many ways as it has parts
            function = first_line(error)
            row = blank_row("PyTorch compile", function)
        self.functions[key] = function
        return [row]

    def measure_graph(self, prepare: Callable[[], Callable[[], object]], once_ms: float,
                      settle_ms: float = 20) -> dict:
        """prepare() gives the call, which takes `once_ms`. What is captured must have run before, on the
        stream of its capture: a backward pass runs where its forward pass did. As many calls are captured
        as common/measure.h captures launches."""
        name, count = "PyTorch CUDA graph", int(min(max(2 / once_ms, 3), 256))
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                call = prepare()
                for _ in range(WARM_UPS):
                    call()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(count):
                    kept = call()
            row = make_row(name, [ms / count for ms in self.times(graph.replay, settle_ms)])
            del kept
            return row
        except RuntimeError as error:
            return blank_row(name, first_line(error))

    def measure_optimizer(self, rule: str, n: int, tensors: int) -> list[dict]:
        """One step over all tensors, cut at random as the program cuts them."""
        cuts = sorted(torch.randint(n + 1, (tensors - 1,)).tolist())
        sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, n])]

        def prepare(captured: bool, **how: bool) -> Callable[[], object]:
            parameters = [torch.nn.Parameter(self.cases.random(size)) for size in sizes]
            for parameter in parameters:
                parameter.grad = self.cases.random(parameter.numel())
            if rule in ("sgd", "momentum"):
                momentum = 0.9 if rule == "momentum" else 0
                return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, **how).step
            make = torch.optim.AdamW if rule == "adamw" else torch.optim.Adam
            return make(parameters, lr=1e-3, capturable=captured, **how).step

        rows = []
        for name, how in (("PyTorch eager", {"foreach": True}), ("PyTorch fused", {"fused": True})):
            times = self.times(prepare(False, **how))
            rows.append(make_row(name, times, "foreach" if "foreach" in how else ""))
        if self.on_gpu and rows[-1]["ms"] < SHORT_MS:
            rows.append(self.measure_graph(lambda: prepare(True, fused=True), rows[-1]["ms"]))
        return rows

    def like(self, report: dict) -> list[dict]:
        self.seed = report["seed"]
        return peers.measure_report(report, PEER, self.measure)


# ---- The command line --------------------------------------------------------------------------


def environment(device: torch.device) -> dict:
    on_gpu = device.type == "cuda"
    cudnn = torch.backends.cudnn.version() if on_gpu else None
    return {"device": torch.cuda.get_device_name(device) if on_gpu else platform.processor(),
            "torch": torch.__version__, "torch_toolkit": torch.version.hip or torch.version.cuda,
            "cudnn": str(cudnn) if cudnn else None}


def positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**10:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 10^10")
    return int(text)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    title, _, details = (__doc__ or "").partition("\n")
    parser = Parser(prog="bench_torch", description=title, epilog=details,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", metavar="NAME",
                        help=f"some of {', '.join(ALONE)}; default: all")
    peers.add_options(parser)
    parser.add_argument("--repeat", type=positive, default=0, metavar="N",
                        help="trainings, or timed calls (default: 3 trainings alone, 1 with --like, and "
                             "5 to 100 calls)")
    parser.add_argument("--data", default=os.environ.get("COURSE_DATA") or "data", metavar="DIR",
                        help="folder of the data sets (default: $COURSE_DATA, or data)")
    options = parser.parse_args(arguments)
    for name in options.measurements:
        if name not in ALONE:
            raise CourseError(f"'{name}' is unknown; there are {', '.join(ALONE)}", USAGE)
    if options.like and options.measurements:
        raise CourseError("either names or --like", USAGE)
    peers.check_options(options)
    return options


def measure_alone(bench: Bench, names: list[str]) -> Iterator[dict]:
    for name in names or ALONE:
        for program, text in ALONE[name]:
            problem = problems.parse(program, text)
            yield {"problem": f"{program}   {text}", "rows": bench.measure(problem)}


def body(arguments: list[str]) -> None:
    options = parse_options(arguments)
    alone = not options.like and not options.serve
    has_gpu = torch.cuda.is_available()
    if alone and not has_gpu:
        raise CourseError(f"PyTorch {torch.__version__} finds no GPU here", MISSING)
    device = torch.device("cuda", torch.cuda.current_device()) if has_gpu else torch.device("cpu")
    use_float32()
    trainings = options.repeat or (3 if alone and not options.quick else 1)
    bench = Bench(device, Path(options.data), options.repeat, trainings, options.quick)
    peer = peers.Peer(PEER, environment(device), bench.like)
    if not options.serve:
        print(f"PyTorch {torch.__version__} on {peer.environment['device'] or 'the processor'}: float32 "
              f"without TF32 where nothing else is said, seed {bench.seed}")
    peers.run(peer, options, measure_alone(bench, options.measurements))


def main(arguments: list[str]) -> int:
    return peers.main("bench_torch", lambda: body(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
