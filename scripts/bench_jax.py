#!/usr/bin/env python3
"""Does the course's work in JAX on this machine: a peer to compare with.

scripts/bench_jax.py --like build/cuda/results/softmax.json
                            for each table of a program's results the same work, at the same shape;
                            `scripts/course bench` calls it so

"JAX jit" is one function that XLA has compiled: forwards, or the gradients alone, with what they need of the
forward pass made before, or both; of an optimizer one step of all tensors; of a training an epoch
(course_lib/jax_training.py). Inputs are random, on the device, and as large as the program's. Everything is
float32 without TF32 unless it says otherwise. A time is the host's clock around calls that follow one another
until the device is done with the last, after a warm-up: what is shown is the median and the 10th and 90th
percentile. A call whose work is shorter than its launch is as long as the launch: JAX has no graph
that a caller could replay. An error is the largest difference to the same work in double precision.

Exit codes: 0 all is well, 1 JAX failed, 2 the request must change, 3 no JAX.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from course_lib import peers, problems
from course_lib.arguments import Parser
from course_lib.errors import MISSING, USAGE, CourseError
from course_lib.peers import CannotDo, first_line, make_row

# Three quarters of the device's memory is what it would keep to itself, and other peers and programs are on it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it warns of processors that nobody asked for

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    print(f"bench_jax: no JAX here ({error}): pip install jax, or jax[cuda13]", file=sys.stderr)
    sys.exit(MISSING)

from course_lib import jax_training
from course_lib.jax_cases import Case, Cases, largest_difference

try:
    double_precision = jax.enable_x64
except AttributeError:  # before JAX 0.8
    from jax.experimental import enable_x64 as double_precision

PEER, ROW = "JAX", "JAX jit"
QUICK_REPEAT = 3
BUDGET_MS = 150  # for the timed calls of a row


def time_queue(call: Callable[[], object]) -> Callable[[int], float]:
    """For peers.time_call: so many calls are queued, and the last is waited for."""
    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        return 1e3 * (time.perf_counter() - start)
    return run


class Bench:
    """Measures problems."""

    def __init__(self, data: Path, quick: bool = False):
        self.quick, self.on_gpu = quick, jax.default_backend() != "cpu"
        self.trainings = jax_training.Trainings(self.on_gpu, data, quick)
        self.checked: set[str] = set()  # problems whose error is known
        self.seed = 1

    def measure(self, problem: problems.Problem) -> list[dict]:
        try:
            if problem.kind in jax_training.TASKS:
                return self.trainings.measure(problem, self.seed)
            cases = Cases(self.seed, self.on_gpu)
            if problem.kind == "optimizer":
                return [self.row(self.optimizer(cases, **problem.values))]
            return [self.measure_case(problem, cases.make(problem))]
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:  # XLA's own among them
            raise CannotDo(first_line(error)) from None

    def row(self, call: Callable[[], object], case: Case | None = None, error: float | None = None,
            compared: int = 0) -> dict:
        settle_ms = 0 if self.quick else case.settle_ms if case else 20
        repeat = QUICK_REPEAT if self.quick else 0
        times = peers.time_call(time_queue(call), repeat, settle_ms, BUDGET_MS, peers.BY_HOST_MS)
        return make_row(ROW, times, case.note if case else "", error, compared)

    def measure_case(self, problem: problems.Problem, case: Case) -> dict:
        call = case.call()
        error, compared = self.error_of(case, call) if repr(problem) not in self.checked else (None, 0)
        self.checked.add(repr(problem))
        return self.row(call, case, error, compared)

    @staticmethod
    def error_of(case: Case, call: Callable[[], object]) -> tuple[float | None, int]:
        """(None, 0) where there is no room for the same in double precision."""
        got = call()
        try:
            with double_precision(True):
                return largest_difference(got, case.in_double().call()())
        except (RuntimeError, MemoryError):
            return None, 0

    @staticmethod
    def optimizer(cases: Cases, rule: str, n: int, tensors: int) -> Callable[[], object]:
        """One step over all tensors, cut at random as the program cuts them, in the memory where they are."""
        places = jax.random.randint(cases.next_key(), (tensors - 1,), 0, n + 1)
        cuts = sorted(map(int, places))
        sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, n])]
        parameters, grads = ([cases.random(size) for size in sizes] for _ in range(2))
        carry = parameters, jax_training.zeros_for(rule, parameters), jnp.zeros((), jnp.int32)

        def step(carry: tuple, grads: list) -> tuple:
            parameters, state, number = carry
            number = number + 1
            return (*jax_training.updated(rule, parameters, state, grads, 1e-3, number), number)
        compiled = jax.jit(step, donate_argnums=0)

        def call() -> object:
            nonlocal carry
            carry = compiled(carry, grads)
            return carry
        return call

    def like(self, report: dict) -> list[dict]:
        self.seed = report["seed"]
        return peers.measure_report(report, PEER, self.measure)


def configure(folder: str) -> None:
    """`folder` keeps what XLA compiles: a later round makes the same functions again, of new inputs."""
    jax.config.update("jax_default_matmul_precision", "highest")  # else products of floats are TF32
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def body(arguments: list[str]) -> None:
    title, _, details = (__doc__ or "").partition("\n")
    parser = Parser(prog="bench_jax", description=title, epilog=details,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--data", default=os.environ.get("COURSE_DATA") or "data", metavar="DIR",
                        help="folder of the data sets (default: $COURSE_DATA, or data)")
    options = parser.parse_args(arguments)
    peers.check_options(options)
    if not options.like and not options.serve:
        raise CourseError("--like REPORT.json: whose work is to be done?", USAGE)
    with tempfile.TemporaryDirectory(prefix="bench_jax-") as folder:
        configure(folder)
        bench = Bench(Path(options.data), options.quick)
        peers.run(peers.Peer(PEER, {"jax": jax.__version__}, bench.like), options)


def main(arguments: list[str]) -> int:
    return peers.main("bench_jax", lambda: body(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
